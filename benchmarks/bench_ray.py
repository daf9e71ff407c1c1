"""What Ray costs in a cycle, beside our own connections, on one machine.

    python benchmarks/bench_ray.py

Three learners, as fast as this machine lets them be, train on 100 samples each for two
seconds a cycle, once as processes that `melisma join` and once as nodes of a Ray
cluster of three raylets on loopback. By the records of each request: seconds until the
learner has model and shards, seconds from the end of its training until its update has
arrived, and seconds of the cycle, from one evaluation to the next, beside the slowest
learner's training. Medians over all requests, or cycles, but the first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from peers.environments import lack_of
from rich.console import Console
from rich.table import Table

from melisma import rpc
from melisma.jobs.schema import Job
from melisma.launch.local import join_command
from melisma.launch.processes import processes
from melisma.launch.serve import orchestrate
from melisma.learning.models import build, model_bytes
from melisma.provenance import provenance
from melisma.ray.fleet import LABEL
from melisma.ray.run import run_on_ray
from melisma.runs import records
from melisma.runs.records import Record
from melisma.units import Deadline

LEARNERS, CYCLES = 3, 8
MODELS = "TwoNN,ConvNet"

out = Console(width=100)

Way = Callable[[Job, Path], list[Record]]


def job_of(model: str, learners: int, cycles: int) -> Job:
    """Return a job whose learners always get the same."""
    return Job(
        name=model.lower(),
        model=model,
        scheme="eta",
        cycles=cycles,
        deadline=Deadline(2.0),
        samples=100 * learners,
        shard=50,
    )


def over_rpc(job: Job, folder: Path, names: Sequence[str]) -> list[Record]:
    """Run with processes that dial in."""
    with processes() as start:

        def begin(server: rpc.Server) -> None:
            for name in names:
                command = join_command(job, server.address, name, None, None)
                start([*command, "--until-eof"])

        return orchestrate(
            job,
            folder,
            learners=len(names),
            ready=begin,
            port=0,
            say=lambda text: None,
        )


@contextmanager
def raylets(names: Sequence[str]) -> Iterator[str]:
    """Start a cluster with a node for each name; yield its address."""
    from ray.cluster_utils import Cluster  # may not be installed

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster: Any = Cluster()
    try:
        for name in names:
            cluster.add_node(
                num_cpus=1,
                labels={LABEL: name},
                node_ip_address="127.0.0.1",
                include_dashboard=False,
            )
        yield cluster.address
    finally:
        cluster.shutdown()


def seconds(happened: list[Record]) -> tuple[float, float, float]:
    """Return medians of fetching, of handing over, and of a cycle beside training."""
    times_s = {
        (_kind(record), record.cycle, record.learner): record.time_s
        for record in happened
        if isinstance(record, records.LearnerEvent)
    }
    requests = [
        (cycle, learner)
        for kind, cycle, learner in times_s
        if kind is records.Uploaded and cycle > 1
    ]

    def between(first: Any, last: Any) -> list[float]:
        return [
            times_s[last, *request] - times_s[first, *request] for request in requests
        ]

    trained_s = dict(
        zip(requests, between(records.Downloaded, records.Trained), strict=True)
    )
    ended_s = [record.time_s for record in records.evaluations(happened)]
    beside = [
        ended_s[cycle - 1]
        - ended_s[cycle - 2]
        - max(trained_s[request] for request in requests if request[0] == cycle)
        for cycle in range(2, len(ended_s) + 1)
    ]
    return (
        median(between(records.Allocated, records.Downloaded)),
        median(between(records.Trained, records.Uploaded)),
        median(beside),
    )


def _kind(record: Record) -> Any:
    """Return its type; a learner that halted has trained as well."""
    halted = isinstance(record, records.Halted)
    return records.Trained if halted else type(record)


def main(
    learners: Annotated[int, typer.Option(min=1)] = LEARNERS,
    cycles: Annotated[int, typer.Option(min=2)] = CYCLES,
    models: Annotated[str, typer.Option(help="Commas between.")] = MODELS,
) -> None:
    """Measure both for each model, and print a table."""
    print(provenance(), flush=True)
    table = Table("model, learners by", "fetch (ms)", "hand over (ms)", "cycle (ms)")
    names = [f"learner-{k}" for k in range(1, learners + 1)]
    ways: dict[str, Way] = {"own connections": partial(over_rpc, names=names)}
    lack = lack_of({"ray": "ray"})
    if lack:
        out.print(f"Ray is left out: {lack}", markup=False)
    with ExitStack() as stack:
        root = stack.enter_context(TemporaryDirectory())
        if not lack:
            address = stack.enter_context(raylets(names))
            ways["Ray"] = partial(run_on_ray, address=address)
        for model in models.split(","):
            job, size = job_of(model, learners, cycles), model_bytes(build(model, 0))
            for name, run in ways.items():
                folder = Path(root, f"{model}-{name}")
                folder.mkdir()
                found = [f"{1e3 * s:.1f}" for s in seconds(run(job, folder))]
                table.add_row(f"{model} ({size / 1e6:.2f} MB), {name}", *found)
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
