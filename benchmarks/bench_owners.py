r"""What owners really take from learners, and what a probe is worth then: live.

    python benchmarks/bench_owners.py             as root; about ten minutes
    python benchmarks/bench_owners.py --devices pi2,pi3 --samples 200 --cycles 1 \
        --activities idle --schemes mmtt          to see it run

Emulated devices with their own rate limits and CPU quotas (docs/testbed.md), each with
an owner who multiplies matrices or downloads while the learner works. First what that
costs: training and transfers of a cycle beside an idle owner's. Then two tasks on four
devices whose owners are busy by chance, by MMTT-Uncertain, MED as learnt from the
cycles, and MED with a probe: the same owners, seed by name, for all.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
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
from melisma.provenance import provenance
from melisma.runs.records import Record
from melisma.units import Deadline
from melisma.views.ledger import learner_cycles
from melisma.views.tasks import COLUMNS, together

DEVICES = ("pi2", "pi3", "pi1", "jetson-nano")
SCHEMES = ("mmtt", "med-learned", "med-probe")
BUSY = 0.2  #: chance of either activity

out = Console(width=160)


def owners(devices: Sequence[str], **chances: float) -> tuple[LearnersTable, ...]:
    """Return learners whose owners do something with these chances."""
    states = tuple(
        StateTable(probability=chance, owner=Activity(name))
        for name, chance in chances.items()
    )
    return tuple(LearnersTable(name=name, states=states) for name in devices)


def job_of(learners: tuple[LearnersTable, ...], cycles: int, samples: int) -> Job:
    """Two tasks, both on the embedded digits."""
    return Job(
        name="owners",
        scheme="mmtt",
        cycles=cycles,
        deadline=Deadline(60.0),
        shard=100,
        training=TrainingTable(rate=0.1),
        learners=learners,
        tasks=(
            TaskTable(name="digits", samples=samples, steps=8),
            TaskTable(name="deep", model="ThreeNN", samples=samples, steps=4),
        ),
    )


def ran(job: Job, folder: Path) -> list[Record]:
    """Run a job on the devices."""
    folder.mkdir()
    return run_on_testbed(job, folder, [group.name for group in job.learners])


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


def show_costs(
    root: Path, devices: Sequence[str], samples: int, activities: Sequence[str]
) -> None:
    """Print what each kind of owner takes."""
    table = Table("owner", "training (s per 1,000)", "transfers (s)", box=None)
    for activity in map(Activity, activities):
        job = job_of(owners(devices, **{activity.value: 1.0}), 2, samples)
        training_s, transfer_s = costs(ran(job, root / activity), job)
        table.add_row(activity.value, f"{training_s:.2f}", f"{transfer_s:.2f}")
    out.print(table)


def show_schemes(
    root: Path,
    devices: Sequence[str],
    samples: int,
    cycles: int,
    schemes: Sequence[str],
) -> None:
    """Print what the schemes make of owners who are busy by chance."""
    chances = {"idle": 1 - 2 * BUSY, "computing": BUSY, "downloading": BUSY}
    table = Table("scheme", *(column.title for column in COLUMNS), box=None)
    for scheme in schemes:
        job = job_of(owners(devices, **chances), cycles, samples)
        job = msgspec.structs.replace(job, scheme=scheme)
        how = together(tasks_of(job), ran(job, root / scheme))
        table.add_row(scheme, *(column.text(how) for column in COLUMNS))
    out.print(table)


def main(
    cycles: Annotated[int, typer.Option(min=1, help="Of each task.")] = 6,
    only: Annotated[str, typer.Option(help="Of costs,schemes.")] = "costs,schemes",
    devices: Annotated[str, typer.Option(help="Commas between.")] = ",".join(DEVICES),
    samples: Annotated[int, typer.Option(min=100, help="Of each task.")] = 4000,
    activities: Annotated[str, typer.Option(help="Of owners.")] = ",".join(Activity),
    schemes: Annotated[str, typer.Option(help="Commas between.")] = ",".join(SCHEMES),
) -> None:
    """Print what owners cost, and what the schemes make of them."""
    print(provenance(), flush=True)
    names = devices.split(",")
    with TemporaryDirectory() as root:
        if "costs" in only:
            show_costs(Path(root), names, samples, activities.split(","))
        if "schemes" in only:
            show_schemes(Path(root), names, samples, cycles, schemes.split(","))


if __name__ == "__main__":
    typer.run(main)
