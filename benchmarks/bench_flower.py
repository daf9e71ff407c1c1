"""What Flower takes for a cycle, and what our own runtime takes for the same one.

    PYTHONPATH=. python benchmarks/bench_flower.py    # in the project's folder

Two learners on loopback train TwoNN by DAB on one shard of 50 samples each, which is
done in a hundredth of a second: a cycle takes as long as its messages, allocation,
aggregation, evaluation and checkpoint. First a SuperLink with two SuperNodes, then an
orchestrator with two learner processes. The first cycle, which waits for learners to
start and to benchmark themselves, is reported apart.
"""

import os
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from peers.environments import lack_of
from rich.console import Console

from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.local import run_locally
from melisma.provenance import provenance
from melisma.runs import records
from melisma.runs.records import Record, Uploaded, evaluations
from melisma.runs.store import RECORDS
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

NAME = "cost"
#: Far off: a cycle ends with its last update.
DEADLINE_S = 600.0
#: As fast as the machine is.
FAST = 1e12

out = Console(width=120)


def by_flower(cycles: int, folder: Path) -> list[Record]:
    """Run it on two SuperNodes."""
    from tests.flower.federation import federation  # needs flwr

    with federation(folder) as flower:
        for name in ("a", "b"):
            flower.start_node(name=name)
        flower.run(
            name=NAME,
            cycles=cycles,
            scheme="dab",
            deadline=f"{DEADLINE_S} s",
            steps=1,
            most=1,
        )
        return records.read(flower.runs / NAME / RECORDS)


def by_ours(cycles: int, folder: Path) -> list[Record]:
    """Run it on two processes that dial in."""
    job = Job(
        name=NAME,
        scheme="dab",
        cycles=cycles,
        deadline=Deadline(DEADLINE_S),
        shard=50,
        steps=1,
        most=1,
        learners=tuple(
            LearnersTable(
                name=name, rate=SamplesPerSecond(FAST), bandwidth=BytesPerSecond(FAST)
            )
            for name in ("a", "b")
        ),
    )
    return run_locally(job, folder)


def show(name: str, happened: list[Record]) -> None:
    """Print how long its cycles were."""
    ends_s = [record.time_s for record in evaluations(happened)]
    cycles_s = [later - earlier for earlier, later in pairwise(ends_s)]
    updates = sum(isinstance(record, Uploaded) for record in happened)
    out.print(
        f"{name}: {median(cycles_s):.3g} s a cycle ({min(cycles_s):.3g} to "
        f"{max(cycles_s):.3g}); the first ended after {ends_s[0]:.3g} s; "
        f"{updates} updates of {2 * len(ends_s)}"
    )


def main(cycles: Annotated[int, typer.Option(min=2)] = 13) -> None:
    """Run both, and say how busy the machine was before."""
    print(provenance(), flush=True)
    ways = {"Flower": by_flower, "ours": by_ours}
    if lack := lack_of({"flwr": "flwr"}):
        out.print(f"Flower is left out: {lack}", markup=False)
        del ways["Flower"]
    for name, run in ways.items():
        load = os.getloadavg()[0]
        with TemporaryDirectory() as folder:
            happened = run(cycles, Path(folder))
        show(f"{name} (load {load:.1f})", happened)


if __name__ == "__main__":
    typer.run(main)
