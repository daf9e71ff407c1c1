"""Progress on standard error: bars on a terminal, else a line for each cycle."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from melisma.cli.output import console, note

if TYPE_CHECKING:
    from rich.progress import Progress

    from melisma.jobs.schema import Job
    from melisma.runs.records import Record


@contextmanager
def run_bar(job: "Job", quiet: bool) -> Iterator[Callable[["Record"], None]]:
    """Show a bar that moves with each cycle of a run; yield what takes its records.

    Where standard error is no terminal, each cycle is a line.
    """
    if quiet:
        yield lambda record: None
        return
    if not sys.stderr.isatty():
        yield _lines(job)
        return
    from melisma.jobs.families import cycles_of
    from melisma.runs.records import (
        ACCURACY,
        Allocated,
        Dropped,
        Evaluated,
        Metric,
        Metrics,
        Uploaded,
    )
    from melisma.views import scores

    working: set[str] = set()
    back: set[str] = set()
    done: dict[str, int] = {}  # whole cycles of each task
    metrics: dict[str, Metric] = {}  # *the* metric of each task

    with _bar() as progress:
        bar = progress.add_task(
            f"{job.name} by {job.scheme}",
            total=cycles_of(job),
            state="waiting for learners",
        )

        def watch(record: "Record") -> None:
            match record:
                case Allocated(learner=name, samples=samples):
                    if back:  # the first order of another cycle
                        working.clear()
                        back.clear()
                    if samples:
                        working.add(name)
                case Uploaded(learner=name) | Dropped(learner=name):
                    back.add(name)
                case Metrics(task=task):
                    metrics[task] = record.metrics[0]
                    return
                case Evaluated(task=task, cycle=cycle):
                    done[task] = cycle
                    metric = metrics.get(task, ACCURACY)
                    value = scores.text(metric, record.metrics.get(metric.name))
                    state = f"{task}: {value}" if job.tasks else value
                    progress.update(bar, completed=sum(done.values()), state=state)
                    return
            state = f"cycle {record.cycle}: {len(back)} of {len(working)} back"
            if not job.tasks:
                progress.update(bar, state=state)

        yield watch


def _lines(job: "Job") -> Callable[["Record"], None]:
    """Return what prints a line for each cycle that ends, of every task."""
    from melisma.jobs.families import family_of
    from melisma.jobs.schema import tasks_of
    from melisma.runs.records import ACCURACY, Evaluated, Metric, Metrics
    from melisma.views import scores

    job = family_of(job).as_meant(job)
    cycles = {task.name: task.cycles for task in tasks_of(job)}
    metrics: dict[str, Metric] = {}  # *the* metric of each task

    def watch(record: "Record") -> None:
        match record:
            case Metrics(task=task):
                metrics[task] = record.metrics[0]
            case Evaluated(task=task, cycle=cycle):
                metric = metrics.get(task, ACCURACY)
                value = scores.text(metric, record.metrics.get(metric.name))
                of = f" of {cycles[task]}" if task in cycles else ""
                whose = f"{task}: " if job.tasks else ""
                note(f"{whose}cycle {cycle}{of}: {value} after {record.time_s:.4g} s")

    return watch


@contextmanager
def sweep_bar(title: str, quiet: bool) -> Iterator[Callable[[int], Callable[[], None]]]:
    """Show a bar; yield what is told the number of cycles and returns its tick."""
    if _hidden(quiet):
        yield lambda cycles: lambda: None
        return
    with _bar() as progress:
        bar = progress.add_task(title, total=None, state="")

        def begin(cycles: int) -> Callable[[], None]:
            progress.reset(bar, total=cycles)
            return lambda: progress.advance(bar)

        yield begin


@contextmanager
def slot_bar(title: str, slots: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar of slots; yield what is told how many are done."""
    if _hidden(quiet):
        yield lambda done: None
        return
    with _bar("slots") as progress:
        bar = progress.add_task(title, total=slots, state="")
        yield lambda done: progress.update(bar, completed=done)


@contextmanager
def spinner(title: str, quiet: bool) -> Iterator[None]:
    """Show that work goes on, where nobody knows how long it takes."""
    if _hidden(quiet):
        yield
        return
    from rich.text import Text

    with console(stderr=True).status(Text(title)):
        yield


def _hidden(quiet: bool) -> bool:
    return quiet or not sys.stderr.isatty()


def _bar(unit: str = "cycles") -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}", markup=False),
    )
    return Progress(*columns, console=console(stderr=True), transient=True)
