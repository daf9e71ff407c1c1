"""What owners really take from learners, and what a probe is worth then: live.

    python benchmarks/bench_owners.py             as root; about ten minutes

Emulated devices with their own rate limits and CPU quotas (docs/testbed.md), each with
an owner who multiplies matrices or downloads while the learner works. First what that
costs: training and transfers of a cycle beside an idle owner's. Then two tasks on four
devices whose owners are busy by chance, by MMTT-Uncertain, MED as learnt from the
cycles, and MED with a probe: the same owners, seed by name, for all.
"""

from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from peers.provenance import provenance
from rich.console import Console
from rich.table import Table

from melisma.jobs.schema import (
    Job,
    LearnersTable,
    StateTable,
    TaskTable,
    TrainingTable,
    tasks_of,
)
from melisma.launch.local import run_on_testbed
from melisma.learner.background import Activity
from melisma.runs.records import Record
from melisma.units import Seconds
from melisma.views.ledger import learner_cycles
from melisma.views.tasks import COLUMNS, together

DEVICES = ("pi2", "pi3", "pi1", "jetson-nano")
SCHEMES = ("mmtt", "med-learned", "med-probe")
BUSY = 0.2  #: chance of either activity

out = Console(width=160)


def owners(**chances: float) -> tuple[LearnersTable, ...]:
    """All devices, with owners who do something with these chances."""
    states = tuple(
        StateTable(probability=chance, owner=Activity(name))
        for name, chance in chances.items()
    )
    return tuple(LearnersTable(name=name, states=states) for name in DEVICES)


def job_of(learners: tuple[LearnersTable, ...], cycles: int) -> Job:
    """Two tasks, both on the embedded digits."""
    return Job(
        name="owners",
        scheme="mmtt",
        cycles=cycles,
        deadline=Seconds(60.0),
        shard=100,
        training=TrainingTable(rate=0.1),
        learners=learners,
        task=(
            TaskTable(name="digits", samples=4000, steps=8),
            TaskTable(name="deep", model="ThreeNN", samples=4000, steps=4),
        ),
    )


def ran(job: Job, folder: Path) -> list[Record]:
    """Run a job on the devices."""
    folder.mkdir()
    return run_on_testbed(job, folder, DEVICES)


def costs(records: list[Record], job: Job) -> tuple[float, float]:
    """Seconds of training for a thousand samples, and of transfers in a cycle."""
    done = [
        row
        for one in tasks_of(job)
        for row in learner_cycles([r for r in records if r.task == one.name])
        if row.samples and row.measured_s and row.trained_s and row.downloaded_s
    ]
    training_s = sum((t.trained_s or 0.0) - (t.downloaded_s or 0.0) for t in done)
    passes = sum(row.samples * row.steps for row in done)
    transfer_s = fmean(
        (t.measured_s or 0.0) - (t.trained_s or 0.0) + (t.downloaded_s or 0.0)
        for t in done
    )
    return 1000 * training_s / passes, transfer_s


def show_costs(root: Path) -> None:
    """Print what each kind of owner takes."""
    table = Table("owner", "training (s per 1,000)", "transfers (s)", box=None)
    for activity in Activity:
        job = job_of(owners(**{activity.value: 1.0}), 2)
        training_s, transfer_s = costs(ran(job, root / activity), job)
        table.add_row(activity.value, f"{training_s:.2f}", f"{transfer_s:.2f}")
    out.print(table)


def show_schemes(root: Path, cycles: int) -> None:
    """Print what the schemes make of owners who are busy by chance."""
    chances = {"idle": 1 - 2 * BUSY, "computing": BUSY, "downloading": BUSY}
    table = Table("scheme", *(column.title for column in COLUMNS), box=None)
    for scheme in SCHEMES:
        job = msgspec.structs.replace(job_of(owners(**chances), cycles), scheme=scheme)
        how = together(tasks_of(job), ran(job, root / scheme))
        table.add_row(scheme, *(column.text(how) for column in COLUMNS))
    out.print(table)


def main(
    cycles: Annotated[int, typer.Option(min=1, help="Of each task.")] = 6,
    only: Annotated[str, typer.Option(help="Of costs,schemes.")] = "costs,schemes",
) -> None:
    """Print what owners cost, and what the schemes make of them."""
    print(provenance(), flush=True)
    with TemporaryDirectory() as root:
        if "costs" in only:
            show_costs(Path(root))
        if "schemes" in only:
            show_schemes(Path(root), cycles)


if __name__ == "__main__":
    typer.run(main)
