"""Only adapters travel in every cycle, and what is frozen travels once."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.torch import load_file
from tests.examples.own import BASE, Declared, job_of, learners_of, patient
from torch import Tensor, nn

from melisma import rpc
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learner.service import Service
from melisma.learning.data import save_own
from melisma.learning.parameters import frozen_of, parameters_of
from melisma.runs.records import Evaluated, Record, Uploaded
from melisma.units import Seconds

#: A short cycle, and little to train: csa fills what there is.
HALF = Seconds(0.5)
Links = dict[str, rpc.Connection]


def ran(
    job: Job,
    folder: Path,
    learners: int,
    join: Callable[[rpc.Server, ExitStack], None],
    watch: Callable[[Record], None] = lambda record: None,
) -> int:
    """Run a job with learners that ``join``; return how often a base was fetched."""
    servers: list[rpc.Server] = []
    folder.mkdir()
    with ExitStack() as stack:

        def begin(server: rpc.Server) -> None:
            servers.append(server)
            join(server, stack)

        happened = orchestrate(
            job,
            folder,
            learners=learners,
            ready=begin,
            watch=watch,
            port=0,
            say=lambda text: None,
        )
    updates = [record for record in happened if isinstance(record, Uploaded)]
    assert len(updates) == job.cycles * learners
    calls = servers[0].metrics.answered.get("frozen")
    return calls.calls if calls else 0


def joining(learners: list[Declared], links: Links) -> Callable[..., None]:
    """Return what connects learners that find no file of the base."""

    def join(server: rpc.Server, stack: ExitStack) -> None:
        kept = BASE.rename(BASE.with_suffix(".kept"))
        stack.callback(kept.rename, BASE)
        for one in learners:
            link = rpc.connect(server.address, Service(one), name=one.name)
            links[one.name] = stack.enter_context(link)

    return join


@pytest.mark.slow
def test_adapters_are_all_that_travels_in_a_cycle(tmp_path: Path) -> None:
    job = job_of("lora", cycles=3, samples=100, deadline=HALF)
    adapters = sum(v.nbytes for v in parameters_of(task_of(job).model).values())
    assert adapters < 0.15 * BASE.stat().st_size
    learners, links, counts = learners_of(job), Links(), list[dict[str, list[int]]]()

    def count(record: Record) -> None:
        if isinstance(record, Evaluated):
            found = {name: link.metrics for name, link in links.items()}
            counts.append(
                {name: [m.received_bytes, m.sent_bytes] for name, m in found.items()}
            )

    ran(patient(job), tmp_path / "run", 3, joining(learners, links), count)
    for before, after in pairwise(counts):
        for name in links:
            for was, now in zip(before[name], after[name], strict=True):
                assert adapters <= now - was <= 1.1 * adapters, name


@pytest.mark.slow
def test_who_restarts_has_the_base_already(tmp_path: Path) -> None:
    job, base = job_of("lora", cycles=1, samples=20, deadline=HALF), load_file(BASE)
    for run, expected in (("first", 1), ("second", 0)):
        learner = learners_of(job)[0]
        join = joining([learner], {})
        assert ran(patient(job), tmp_path / run, 1, join) == expected
        (warm,) = learner._tasks.values()
        for name, value in frozen_of(warm.model).items():
            assert value.equal(base[name.replace(".frozen", "")])


@pytest.mark.slow
def test_a_device_that_has_the_code_alone_fetches_the_base_once(
    folder: Path, tmp_path: Path
) -> None:
    job, device = job_of("lora", cycles=1, samples=200), tmp_path / "device"
    device.mkdir()
    for file in ("text.py", "lora.py"):
        shutil.copy(folder / file, device)
    save_own(task_of(job).data.train[np.arange(300)], device)
    command = [sys.executable, "-m", "melisma", "join", "--name", "laptop"]
    command += ["--allow", "lora:coder", "--data", str(device), "--quiet"]

    def join(server: rpc.Server, stack: ExitStack) -> None:
        process = subprocess.Popen([*command, server.address], cwd=device)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    times = [ran(job, tmp_path / run, 1, join) for run in ("first", "second")]
    assert times == [1, 0]


@pytest.mark.slow
def test_who_trains_fewer_ranks_has_the_same_base(tmp_path: Path) -> None:
    job, links = patient(job_of("lora", cycles=1, samples=100, deadline=HALF)), Links()
    groups = [
        msgspec.structs.replace(g, submodel="rank 2" if g.name == "pi" else None)
        for g in job.learners
    ]
    job = msgspec.structs.replace(job, learners=tuple(groups))
    learners = learners_of(job)
    ran(job, tmp_path / "run", 3, joining(learners, links))
    base = frozen_of(task_of(job).model)
    assert base
    for learner in learners[1:]:
        part = learner._prepared(job.name).parts["rank 2"].part
        assert all(t.equal(base[n]) for n, t in frozen_of(part.model).items())
        ranks = {t.shape[axis] for n, t, axis in adapters(part.model)}
        assert ranks == {2}


def adapters(model: nn.Module) -> list[tuple[str, Tensor, int]]:
    return [
        (name, getattr(layer, name), axis)
        for layer in model.modules()
        for name, axis in getattr(layer, "rank_axes", {}).items()
    ]
