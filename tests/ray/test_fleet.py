"""Training on a Ray cluster: three raylets on loopback, a learner on each."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from ray.cluster_utils import Cluster
from tests.fleets.learners import JOB, Steady, changed, live, of
from tests.ray.learners import boaster, c_hangs, odd, steady, troublesome

from melisma.errors import CallTimeout, ConfigError, RemoteError, TransportError
from melisma.fleets.messages import TrainRequest
from melisma.fleets.served import ServedTask
from melisma.jobs.building import task_of
from melisma.launch.serve import orchestrate
from melisma.learning.data import load, save_own
from melisma.learning.parameters import load as load_parameters
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Late
from melisma.learning.shards import ShardStore
from melisma.ray.cluster import joined, ray
from melisma.ray.fleet import LABEL, Models, Nodes, learners
from melisma.ray.learner import Make
from melisma.ray.run import run_on_ray
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.system.law import Mode
from melisma.units import Deadline

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c")
#: Guards against hanging; nothing is measured with it.
PATIENCE_S = 240.0


def test_a_node_is_called_as_its_label_says_or_after_its_id() -> None:
    alike = {"Alive": True, "Resources": {"CPU": 2.0}}
    known = [
        {**alike, "NodeID": "0123456789", "Labels": {}},
        {**alike, "NodeID": "12", "Labels": {LABEL: "pi"}},
    ]
    assert learners(known) == {"node-01234567": "0123456789", "pi": "12"}


def test_a_name_stays_with_the_node_that_has_it() -> None:
    alike = {"Resources": {"CPU": 1.0}, "Labels": {LABEL: "pi"}}
    old, new = {**alike, "NodeID": "old"}, {**alike, "NodeID": "new", "Alive": True}
    both = [{**new}, {**old, "Alive": True}]
    assert learners(both, {"pi": "old"}) == {"pi": "old"}
    assert learners([new, {**old, "Alive": False}], {"pi": "old"}) == {"pi": "new"}


def test_nodes_without_cpus_are_no_learners() -> None:
    head = {"Alive": True, "Resources": {"memory": 1.0}, "Labels": {}, "NodeID": "h"}
    assert learners([head]) == {}


@pytest.mark.parametrize("address", ["nowhere", "ray://127.0.0.1:10001", "a:b", ""])
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a Ray cluster"):
        joined(address).__enter__()


def test_a_cluster_that_is_gone_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        joined("127.0.0.1:1").__enter__()


@pytest.mark.parametrize(
    ("job", "data", "why"),
    [
        (changed(scheme="fog"), None, "run it by `melisma serve`"),
        (changed(mode=Mode.FEDERATED), None, "give --data DIR"),
        (changed(mode=Mode.FEDERATED), Path("here"), "--data 'here' is relative"),
    ],
)
def test_a_job_that_cannot_run_on_a_cluster_is_refused(
    tmp_path: Path, job: Any, data: Path | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        run_on_ray(job, tmp_path, address="127.0.0.1:1", data=data)


class Raylets:
    """A cluster of one raylet for each name."""

    def __init__(self) -> None:
        self._cluster: Any = Cluster()
        self._nodes: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def id(self, name: str) -> str:
        return str(self._nodes[name].node_id)

    def start(self, name: str) -> None:
        self._nodes[name] = self._cluster.add_node(
            num_cpus=1,
            labels={LABEL: name},
            node_ip_address="127.0.0.1",
            include_dashboard=False,
            object_store_memory=80 << 20,
        )

    def kill(self, name: str) -> None:
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def has(self, name: str) -> bool:
        return name in self._nodes

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    """Three raylets, whose workers can import the tests' own learners."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with closing(Raylets()) as started:
            for name in NAMES:
                started.start(name)
            yield started


def on_ray(
    cluster: Raylets,
    job: Any,
    folder: Path,
    make: Make,
    watch: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Run a job with these learners on the nodes."""
    folder.mkdir(exist_ok=True)
    with joined(cluster.address):
        return orchestrate(
            job,
            folder,
            learners=len(NAMES),
            watch=watch,
            elsewhere=partial(Nodes, make=make),
            port=0,
            say=lambda text: None,
        )


def called(
    cluster: Raylets, make: Make, work: Callable[[Nodes], Coroutine[Any, Any, Any]]
) -> Any:
    """Start learners on the nodes, and do something with them."""

    async def within() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work(there)

    with joined(cluster.address), Nodes([served()], make=make) as there:
        return asyncio.run(within())


def served() -> ServedTask:
    task = task_of(JOB)
    return ServedTask(
        task.name, parameters_of(task.model), ShardStore(task.data.train, task.shard)
    )


class Met(NamedTuple):
    """What was seen of learners that were started on the nodes."""

    places: dict[str, tuple[str, int]]  #: node and process of each
    left: list[str]  #: once b was expelled


@pytest.fixture(scope="module")
def met(cluster: Raylets) -> Met:
    async def meet(nodes: Nodes) -> Met:
        names = await nodes.wait_until(3)
        places = {name: await nodes.call(name, "prepare", "where") for name in names}
        nodes.expel("b", "for a test")
        return Met(places, sorted(await nodes.wait_until(1)))

    found: Met = called(cluster, odd, meet)
    return found


@pytest.mark.slow
def test_every_learner_runs_on_its_own_node(cluster: Raylets, met: Met) -> None:
    nodes = {name: node for name, (node, _) in met.places.items()}
    assert nodes == {name: cluster.id(name) for name in NAMES}
    assert len({process for _, process in met.places.values()}) == 3


@pytest.mark.slow
def test_who_was_expelled_is_not_started_again(met: Met) -> None:
    assert met.left == ["a", "c"]


@pytest.mark.long
@pytest.mark.slow
def test_who_waits_no_longer_stops_the_learner(cluster: Raylets) -> None:
    async def give_up(nodes: Nodes) -> list[bool]:
        await nodes.wait_until(3)
        await nodes.call("a", "prepare", "where")  # has started
        late = r"measure: no answer from a within 0\.2 s"
        with pytest.raises(CallTimeout, match=late):
            await nodes.call("a", "measure", "", 0.5, within_s=0.2)
        timed_out = await nodes.call("a", "prepare", "given up")
        nap = asyncio.create_task(nodes.call("a", "measure", "", 30.0))
        await asyncio.sleep(0.5)
        before = await nodes.call("a", "prepare", "given up")
        nap.cancel()
        await asyncio.wait([nap])
        while not (cancelled := await nodes.call("a", "prepare", "given up")):
            await asyncio.sleep(0.1)
        return [timed_out, before, cancelled]

    assert called(cluster, odd, give_up) == [True, False, True]


@pytest.mark.long
@pytest.mark.slow
def test_what_a_learner_raises_is_told_and_a_crash_costs_one_actor(
    cluster: Raylets,
) -> None:
    async def crash(nodes: Nodes) -> tuple[tuple[str, int], tuple[str, int]]:
        await nodes.wait_until(3)
        with pytest.raises(RemoteError, match="ValueError: on purpose"):
            await nodes.call("b", "prepare", "fail")
        before = await nodes.call("b", "prepare", "where")
        with pytest.raises(TransportError, match="the actor of b is gone"):
            await nodes.call("b", "prepare", "crash")
        await nodes.wait_until(3)
        return before, await nodes.call("b", "prepare", "where")

    (id, process), (id_after, process_after) = called(cluster, odd, crash)
    assert (id, process != process_after) == (id_after, True)


@pytest.mark.long
@pytest.mark.slow
def test_a_model_server_that_dies_starts_again(cluster: Raylets) -> None:
    with joined(cluster.address), Nodes([served()], make=odd) as nodes:
        filler = nodes._model_server.filler
        assert len(ray.get(filler.remote(JOB.name, 10), timeout=PATIENCE_S)) == 10
        ray.kill(nodes._model_server, no_restart=False)
        assert len(ray.get(filler.remote(JOB.name, 20), timeout=PATIENCE_S)) == 20


@pytest.mark.slow
def test_a_model_is_put_once_a_cycle(cluster: Raylets) -> None:
    one = served()
    request = TrainRequest(
        task=one.task,
        cycle=1,
        keys=[],
        samples=1,
        steps=1,
        deadline_s=1.0,
        late=Late.HALT,
    )
    with joined(cluster.address):
        models = Models([one])
        one.renew(1, one.parameters)
        first, second = models.of("a", (request,)), models.of("a", (request,))
        one.renew(2, one.parameters)
        later = msgspec.structs.replace(request, cycle=2)
        third = models.of("a", (later,))
        assert first == second != third
        assert models.of("a", ("a task",)) == []
        found = ray.get(third[0])
    assert all(torch.equal(found[name], t) for name, t in one.parameters.items())


@pytest.mark.slow
def test_the_model_is_that_of_a_live_run_bit_for_bit(
    cluster: Raylets, tmp_path: Path
) -> None:
    job = changed(scheme="csa", cycles=3)
    live(job, tmp_path / "live", [Steady(name=name) for name in NAMES])
    happened = on_ray(cluster, job, tmp_path / "ray", steady)
    expected = load_parameters(tmp_path / "live" / MODEL)
    found = load_parameters(tmp_path / "ray" / MODEL)
    assert all(torch.equal(expected[name], t) for name, t in found.items())
    assert [merged.learners for merged in of(records.Aggregated, happened)] == [3] * 3


@pytest.mark.long
@pytest.mark.slow
def test_halted_learners_give_what_they_have(cluster: Raylets, tmp_path: Path) -> None:
    # 1,000 samples for each, of which 30 a second are trained. Ray takes seconds to
    # deliver the first model where cores are few.
    job = changed(cycles=1, deadline=Deadline(20.0), samples=3000, shard=10)
    happened = on_ray(cluster, job, tmp_path, boaster)
    halted = of(records.Halted, happened)
    assert {record.learner for record in halted} == set(NAMES)
    (merged,) = of(records.Aggregated, happened)
    assert merged.samples == sum(record.samples for record in halted)
    assert 0 < merged.samples < 3000


@pytest.fixture(scope="module")
def troubled(
    cluster: Raylets, tmp_path_factory: pytest.TempPathFactory
) -> list[Record]:
    """A run in which b sends poison in cycle 1, and c hangs in cycle 2.

    The deadline is long: Ray's own processes may take seconds to deliver a call where
    cores are busy, and who is late for that would be dropped, too.
    """
    job = changed(cycles=3, deadline=Deadline(20.0), samples=150)
    return on_ray(cluster, job, tmp_path_factory.mktemp("troubled"), troublesome)


@pytest.mark.alone
@pytest.mark.slow
def test_what_is_no_number_is_refused(troubled: list[Record]) -> None:
    (dropped,) = [one for one in of(records.Dropped, troubled) if one.learner == "b"]
    assert (dropped.cycle, dropped.offence) == (1, True)


@pytest.mark.alone
@pytest.mark.slow
def test_at_the_deadline_the_cycle_goes_on_without_the_missing(
    troubled: list[Record],
) -> None:
    (dropped,) = [one for one in of(records.Dropped, troubled) if one.learner == "c"]
    assert (dropped.cycle, dropped.reason) == (2, "not there by the deadline")
    assert [merged.learners for merged in of(records.Aggregated, troubled)] == [2, 2, 3]


@pytest.mark.long
@pytest.mark.slow
def test_learners_train_on_what_lies_on_their_nodes(
    cluster: Raylets, tmp_path: Path
) -> None:
    data = load("mnist-5k")
    for n, name in enumerate(NAMES):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        rows = slice(100 * n, 100 * (n + 1))
        save_own(data.train[rows], folder)
    job = changed(
        mode=Mode.FEDERATED, samples=None, shard=10, cycles=1, deadline=Deadline(4.0)
    )
    (tmp_path / "run").mkdir()
    happened = run_on_ray(
        job, tmp_path / "run", address=cluster.address, data=tmp_path / "data"
    )
    (merged,) = of(records.Aggregated, happened)
    assert (merged.learners, merged.samples) == (3, 300)


@pytest.mark.long
@pytest.mark.slow
def test_a_coded_job_with_a_task_of_ones_own_runs_on_a_cluster(
    cluster: Raylets, tmp_path: Path
) -> None:
    job = changed(scheme="coded", code="cyclic", stragglers=1, cycles=30, shard=5)
    job = changed(job, task="tests.launch.regression:line", samples=200)
    (tmp_path / "run").mkdir()
    happened = run_on_ray(job, tmp_path / "run", address=cluster.address)
    evaluated = of(records.Evaluated, happened)
    assert len(evaluated) == 30
    assert evaluated[-1].metrics["r2"] > 0.9


def melisma(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "melisma", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_command_trains_by_the_nodes_own_bids_and_reports(
    cluster: Raylets, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\nscheme = "dab"\ncycles = 2\ndeadline = "5 s"\nshard = 50\n'
        "steps = 1\nmost = 10\n"
    )
    address = ("--engine", "ray", "--address", cluster.address)
    ran = melisma("run", "tiny.toml", *address, "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)["cycles"]["metrics"]["accuracy"]) == 2
    told = melisma("report", "runs/tiny", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert sorted(row["learner"] for row in json.loads(told.stdout)["learners"]) == [
        *NAMES
    ]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--engine", "ray"), "--engine ray needs --address HOST:PORT"),
        (("--address", "127.0.0.1:1"), "--address and --data are for --engine ray"),
    ],
)
def test_flags_that_do_not_go_together_are_named(
    tmp_path: Path, flags: tuple[str, ...], why: str
) -> None:
    ran = melisma("run", *flags, cwd=tmp_path)
    assert (ran.returncode, why in ran.stderr) == (2, True), ran.stderr


@pytest.mark.slow
def test_a_killed_node_costs_one_share_of_one_cycle(
    cluster: Raylets, tmp_path: Path
) -> None:
    def pull_the_plug(record: Record) -> None:
        """Once somebody is back, while c is still at it."""
        uploaded = isinstance(record, records.Uploaded)
        if record.cycle == 2 and uploaded and cluster.has("c"):
            cluster.kill("c")

    try:
        happened = on_ray(cluster, changed(cycles=4), tmp_path, c_hangs, pull_the_plug)
    finally:
        cluster.start("c")
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.cycle, dropped.offence) == ("c", 2, False)
    counted = [merged.learners for merged in of(records.Aggregated, happened)]
    assert counted == [3, 2, 2, 2]


@pytest.mark.long
@pytest.mark.slow
def test_a_node_that_comes_back_is_a_learner_again(cluster: Raylets) -> None:
    async def come_back(nodes: Nodes) -> str:
        await nodes.wait_until(3)
        old = nodes._nodes["c"]
        cluster.kill("c")
        cluster.start("c")
        while "c" not in await nodes.wait_until(2) or nodes._nodes["c"] is old:
            await asyncio.sleep(0.5)
        id: str = (await nodes.call("c", "prepare", "where"))[0]
        return id

    assert called(cluster, odd, come_back) == cluster.id("c")
