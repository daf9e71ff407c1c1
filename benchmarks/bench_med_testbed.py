r"""MED on ten emulated Jetsons whose owners use them too: live, with real gradients.

    python benchmarks/bench_med_testbed.py              as root; 6 trials, 40 minutes
    python benchmarks/bench_med_testbed.py --quick      one trial of two cycles

Ten learners in network namespaces, each with a quota of 0.15 cores (all together leave
a quarter of two cores to the orchestrator) and half a Jetson Nano's link. An owner is
idle, computes or downloads; which is likely is drawn for each device, and the state of
each cycle by the trial's seed, the device and the cycle: the same under every scheme.
Every learner benchmarks itself on 20 shards in each state, for each of three tasks.

The time of a task's cycle is that of its slowest learner (thesis, §4.3); a trial's is
the sum over tasks and cycles. Schemes are compared trial by trial: the share of MMTT's
time that a scheme saves, its mean and 95 % interval over trials. A run in which the
machine itself stood still, or lost a learner though nobody leaves, is made again.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from melisma.jobs.benchmark_table import BenchmarkTable, Known
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
from melisma.maths import mean_interval
from melisma.provenance import provenance
from melisma.runs.records import Dropped, Evaluated, Record
from melisma.system.states import heated
from melisma.testbed import Device, Still
from melisma.units import Deadline
from melisma.views.tasks import together

SCHEMES = ("mmtt", "med", "mmtt-ideal")
CPU, LINK_BPS = 0.15, 48e6
STILL_S, ATTEMPTS = 2.0, 10  #: a cycle lasts about 4 s
HEAT = 0.5  #: the likely state of an owner has a probability of 0.79
TASKS = (
    TaskTable(name="digits", model="TwoNN", samples=2000, steps=3),
    TaskTable(name="deep", model="ThreeNN", samples=800, steps=2),
    TaskTable(name="conv", model="ConvNet", samples=800, steps=1),
)

out = Console(width=120)


def devices(number: int) -> list[Device]:
    """Equal devices, each with a name of its own, so that its owner has one."""
    return [
        Device(
            name=f"jetson{n}",
            cpu=min(CPU, 1.5 / number),
            up_bps=LINK_BPS,
            down_bps=LINK_BPS,
        )
        for n in range(number)
    ]


def job_of(scheme: str, names: Sequence[str], cycles: int, trial: int) -> Job:
    """Three tasks, and owners as the trial draws them."""
    likely = np.random.default_rng(trial).integers(len(Activity), size=len(names))
    gamma = heated(likely, len(Activity), HEAT)
    return Job(
        name="med",
        scheme=scheme,
        seed=trial,
        cycles=cycles,
        deadline=Deadline(120.0),
        shard=20,
        training=TrainingTable(rate=0.05),
        benchmark=BenchmarkTable(known=Known.MEASURED, shards=20),
        tasks=TASKS,
        learners=tuple(
            LearnersTable(
                name=name,
                states=tuple(
                    StateTable(probability=float(p), owner=activity)
                    for activity, p in zip(Activity, row, strict=True)
                ),
            )
            for name, row in zip(names, gamma, strict=True)
        ),
    )


def total_s(job: Job, records: Sequence[Record]) -> float:
    """Sum of the tasks' cycle times."""
    done = sum(isinstance(r, Evaluated) and r.cycle > 0 for r in records)
    return done * together(tasks_of(job), records).service.time_s


def ends(records: Sequence[Record]) -> list[float]:
    """Accuracy of each task after its last cycle, in per cent."""
    last = {r.task: r.metrics["accuracy"] for r in records if isinstance(r, Evaluated)}
    return [100 * (last[task.name] or 0.0) for task in TASKS]


def undisturbed(
    job: Job, folder: Path, placed: list[Device], still: Still
) -> list[Record]:
    """Run a job on a machine that does not stand still; else RuntimeError."""
    for attempt in range(ATTEMPTS):
        inner = folder / str(attempt)
        inner.mkdir(parents=True)
        still.longest_s = 0.0
        records = run_on_testbed(job, inner, placed)
        lost = sum(isinstance(r, Dropped) for r in records)
        if not lost and still.longest_s < STILL_S:
            return records
        print(
            f"{job.scheme} stood still for {still.longest_s:.1f} s and lost {lost} "
            "updates: once more",
            flush=True,
        )
    raise RuntimeError(f"the machine stood still in {ATTEMPTS} runs, one by one")


def main(
    trials: Annotated[int, typer.Option(min=1)] = 6,
    cycles: Annotated[int, typer.Option(min=1, help="Of each task.")] = 20,
    learners: Annotated[int, typer.Option(min=3, max=10)] = 10,
    schemes: Annotated[str, typer.Option(help="Commas between.")] = ",".join(SCHEMES),
    first: Annotated[int, typer.Option(help="Seed of the first trial.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="One trial, short.")] = False,
) -> None:
    """Print times and accuracies of each trial, and what is saved."""
    print(provenance(), flush=True)
    trials, cycles = (1, min(cycles, 2)) if quick else (trials, cycles)
    placed, names, still = devices(learners), schemes.split(","), Still()
    found: dict[str, list[float]] = {name: [] for name in names}
    accuracies: dict[str, list[list[float]]] = {name: [] for name in names}
    with TemporaryDirectory() as root:
        for trial in range(first, first + trials):
            for scheme in names:
                job = job_of(scheme, [d.name for d in placed], cycles, trial)
                folder = Path(root, f"{trial}-{scheme}")
                records = undisturbed(job, folder, placed, still)
                found[scheme].append(total_s(job, records))
                accuracies[scheme].append(ends(records))
                reached = "/".join(f"{a:.1f}" for a in accuracies[scheme][-1])
                print(
                    f"trial {trial}: {scheme} {found[scheme][-1]:.1f} s, {reached} %",
                    flush=True,
                )
    show(found, accuracies)


def show(
    found: dict[str, list[float]], accuracies: dict[str, list[list[float]]]
) -> None:
    """Print means over trials, and the time that is saved against the first scheme."""
    base, *_ = found
    table = Table("scheme", "total (s)", f"less than {base} (%)", box=None)
    for task in TASKS:
        table.add_column(f"{task.name} (%)", justify="right")
    for scheme, totals in found.items():
        pairs = zip(totals, found[base], strict=True)
        saved = np.array([100 * (1 - own / other) for own, other in pairs])
        text = f"{saved[0]:.1f}"
        if len(saved) > 1:
            mean, half = mean_interval(saved)
            text = f"{float(mean):.1f} ± {float(half):.1f}"
        reached = [
            f"{fmean(column):.1f}" for column in zip(*accuracies[scheme], strict=True)
        ]
        table.add_row(scheme, f"{fmean(totals):.1f}", text, *reached)
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
