"""Progress on standard error: bars on a terminal, else a line for each cycle."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from melisma.cli.output import console, note

if TYPE_CHECKING:
    from rich.progress import Progress

    from melisma.fleets.gathering import Gathering
    from melisma.jobs.schema import Job
    from melisma.runs.records import Record

#: Learners of which each is not told about.
CROWD = 16
#: How the reason begins where a code, or more learners than are asked for, spare one.
SPARED = "not needed"
#: Pause after which it is said again who is missing.
AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Takes the records of a run, and who comes before it begins; shows them."""

    watch: Callable[["Record"], None]
    gathering: "Gathering"

    def __call__(self, record: "Record") -> None:
        """Take a record."""
        self.watch(record)


@contextmanager
def run_bar(job: "Job", quiet: bool) -> Iterator[Shown]:
    """Show a bar that moves with each cycle of a run; yield what takes its records.

    Where standard error is no terminal, each cycle is a line, and whatever a learner
    does before the first one.
    """
    from melisma.fleets.gathering import Gathering

    if quiet:
        yield Shown(lambda record: None, Gathering())
        return
    with telling(quiet):
        if not sys.stderr.isatty():
            with _arrivals() as gathering:
                yield _with_losses(Shown(_lines(job), gathering), job)
            return
        with _run_bar(job) as shown:
            yield _with_losses(shown, job)


@contextmanager
def _run_bar(job: "Job") -> Iterator[Shown]:
    """Show a bar that moves with each cycle; before the first, who does what."""
    from melisma.fleets.gathering import Gathering
    from melisma.jobs.families import cycles_of
    from melisma.runs.records import (
        ACCURACY,
        Allocated,
        Dropped,
        Evaluated,
        Metric,
        Metrics,
        Uploaded,
        Waited,
    )
    from melisma.views import scores

    working: set[str] = set()
    back: set[str] = set()
    done: dict[str, int] = {}  # whole cycles of each task
    metrics: dict[str, Metric] = {}  # *the* metric of each task
    gathering, score = Gathering(), ""

    with _bar(waiting=gathering) as progress:
        bar = progress.add_task(
            f"{job.name} by {job.scheme}", total=cycles_of(job), state="starts"
        )

        def watch(record: "Record") -> None:
            nonlocal score
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
                case Waited(reason=reason):
                    progress.update(bar, state=f"waits: {reason}")
                    return
                case Evaluated(task=task, cycle=cycle):
                    done[task] = cycle
                    metric = metrics.get(task, ACCURACY)
                    value = scores.text(metric, record.metrics.get(metric.name))
                    state = score = f"{task}: {value}" if job.tasks else value
                    progress.update(bar, completed=sum(done.values()), state=state)
                    return
            state = f"cycle {record.cycle}: {len(back)} of {len(working)} back"
            if not job.tasks:
                progress.update(bar, state=", ".join(filter(None, [score, state])))

        yield Shown(watch, gathering)


def _lines(job: "Job") -> Callable[["Record"], None]:
    """Return what prints a line for each cycle that ends, of every task."""
    from melisma.jobs.families import family_of
    from melisma.jobs.schema import tasks_of
    from melisma.runs.records import ACCURACY, Evaluated, Metric, Metrics, Waited
    from melisma.views import scores

    job = family_of(job).as_meant(job)
    cycles = {task.name: task.cycles for task in tasks_of(job)}
    metrics: dict[str, Metric] = {}  # *the* metric of each task

    def watch(record: "Record") -> None:
        whose = f"{record.task}: " if job.tasks else ""
        match record:
            case Metrics(task=task):
                metrics[task] = record.metrics[0]
            case Waited(cycle=cycle, reason=reason):
                note(f"{whose}cycle {cycle} waits: {reason}")
            case Evaluated(task=task, cycle=cycle):
                metric = metrics.get(task, ACCURACY)
                value = scores.text(metric, record.metrics.get(metric.name))
                of = f" of {cycles[task]}" if task in cycles else ""
                note(f"{whose}cycle {cycle}{of}: {value} after {record.time_s:.4g} s")

    return watch


def _with_losses(shown: Shown, job: "Job") -> Shown:
    """Print also who is lost to a cycle or leaves, where learners come and go."""
    from melisma.runs.records import Dropped, Left

    gathering = shown.gathering

    def watch(record: "Record") -> None:
        whose = f"{record.task}: " if job.tasks else ""
        if gathering.begun and len(gathering.learners) <= CROWD:
            match record:
                case Dropped(learner=name, cycle=cycle, reason=why, late=False) if (
                    not why.startswith(SPARED)
                ):
                    why = why.removeprefix("lost: ")
                    note(f"{whose}cycle {cycle} goes on without {name}: {why}")
                case Left(learner=name):
                    note(f"{whose}{name} has left")
        shown(record)

    return Shown(watch, gathering)


@contextmanager
def _arrivals() -> Iterator["Gathering"]:
    """Print a line for whatever a learner does before it takes part.

    In a crowd, for each tenth of it. Where nothing happens for AGAIN_S, who is missing.
    """
    from melisma.fleets.gathering import Gathering, Stage

    printed, ended = [""], threading.Event()

    def notice(gathering: "Gathering", name: str) -> None:
        doing, crowd = gathering.learners[name], gathering.least > CROWD
        came = len(gathering.learners)
        if doing.stage == Stage.REFUSED:
            if name in gathering.lost:  # of others the log says it
                note(f"{name} {doing.stage.value}: {doing.why}")
            return
        if crowd and (doing.stage != Stage.PREPARING or came % (gathering.least // 10)):
            return
        printed[0] = ""
        if doing.stage == Stage.PREPARING:
            note(f"{name} has joined. {gathering.line()}")
        else:
            whose = f" for {doing.task}" if doing.stage == Stage.BENCHMARKING else ""
            note(f"{name} {doing.stage.value}{whose}")

    def remind(gathering: "Gathering") -> None:
        while not ended.wait(AGAIN_S):
            if gathering.waiting and (said := gathering.line()) != printed[0]:
                printed[0] = said
                note(said)

    gathering = Gathering(notice)
    threading.Thread(
        target=remind, args=[gathering], name="arrivals", daemon=True
    ).start()
    try:
        yield gathering
    finally:
        ended.set()


@contextmanager
def telling(quiet: bool) -> Iterator[None]:
    """Print what is downloaded, above a bar if there is one."""
    if quiet:
        yield
        return
    log, handler = logging.getLogger("melisma.data"), _Notes()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Notes(logging.Handler):
    """Prints what is logged, as a note."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def sweep_bar(title: str, quiet: bool) -> Iterator[Callable[[int], Callable[[], None]]]:
    """Show a bar; yield what is told the number of cycles and returns its tick.

    Where standard error is no terminal, each tenth of them is a line.
    """
    if quiet:
        yield lambda cycles: lambda: None
        return
    if not sys.stderr.isatty():
        yield lambda cycles: _tenths(title, cycles)
        return
    with _bar() as progress:
        bar = progress.add_task(title, total=None, state="")

        def begin(cycles: int) -> Callable[[], None]:
            progress.reset(bar, total=cycles)
            return lambda: progress.advance(bar)

        yield begin


def _tenths(title: str, cycles: int) -> Callable[[], None]:
    """Return what is called with each cycle, and prints a line for each tenth."""
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if done * 10 // cycles > (done - 1) * 10 // cycles:
            note(f"{title}: {done} of {cycles} cycles")

    return tick


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


def _bar(unit: str = "cycles", waiting: "Gathering | None" = None) -> "Progress":
    """Return a bar; while learners are waited for, it says who does what."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class State(ProgressColumn):
        def render(self, task: Task) -> Text:
            if waiting and waiting.waiting:
                return Text(waiting.line())
            return Text(str(task.fields["state"]))

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        State(),
    )
    return Progress(*columns, console=console(stderr=True), transient=True)
