"""Schemes side by side: one job, many schemes and seeds, means with intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from melisma.compare.sweeps import Engine, Tick, in_turn
from melisma.compare.trials import Came, leave, left, open_sweep, simulated
from melisma.errors import ConfigError, LostError, TrainingError, unknown
from melisma.jobs.coded import NAMES as CODED
from melisma.jobs.families import ready
from melisma.jobs.fog import CENTRAL, FEDERATED, check_fog, is_fog
from melisma.jobs.fog import NAMES as FOGS
from melisma.jobs.multitask import build_many, jobs_of
from melisma.jobs.schema import Job, tasks_of
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval
from melisma.schemes import SCHEMES
from melisma.views.history import Course
from melisma.views.tasks import COLUMNS as TASK_COLUMNS

#: Told how many cycles there are to do, gives what is to be called as each ends.
Begin = Callable[[int], Tick]


class Figure(NamedTuple):
    """One figure over all seeds."""

    mean: float  #: NaN: there is none
    half: float  #: of its 95 % interval; NaN for one seed
    digits: int  #: to print


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one scheme: a course for each seed, or why there is none."""

    scheme: str
    courses: list[Course] = []
    failed: str = ""

    def over_seeds(self, figure: str) -> Floats:
        """One figure of all runs, seeds × cycles."""
        return np.array([getattr(c, figure) for c in self.courses], dtype=np.float64)

    def figures(self) -> list[Figure]:
        """The figures of the comparison's table."""
        return [column.of(self) for column in columns_of(self.scheme)]


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of several tasks under one scheme: figures for each seed."""

    scheme: str
    runs: list[list[float]] = []  #: seeds × figures of all tasks together
    failed: str = ""

    def figures(self) -> list[Figure]:
        """The figures of the comparison's table."""
        return [
            Figure(float(mean), float(half), column.digits)
            for (mean, half), column in zip(
                map(mean_interval, np.array(self.runs).T), TASK_COLUMNS, strict=True
            )
        ]


Became = TypeVar("Became", Outcome, TaskOutcome)


class Comparison(msgspec.Struct, Generic[Became], frozen=True, kw_only=True):
    """All schemes on one job."""

    job: str
    seeds: list[int]
    titles: list[str]  #: what the figures of an outcome are
    outcomes: list[Became]

    @property
    def finished(self) -> list[Became]:
        """The schemes that ran to the end."""
        return [outcome for outcome in self.outcomes if not outcome.failed]


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the comparison's table."""

    title: str
    figure: str  #: a field of Course
    scale: float = 1.0
    digits: int = 2
    at_end: bool = False  #: of the last cycle; else the mean over cycles
    per: str = ""  #: another; then both are summed over cycles, and divided

    def of(self, outcome: Outcome) -> Figure:
        """Mean over seeds, and half of its 95 % interval."""
        if outcome.scheme == CENTRAL and self.figure in _COSTS:
            return Figure(math.nan, math.nan, self.digits)
        values = outcome.over_seeds(self.figure)
        per_seed = values[:, -1] if self.at_end else values.mean(axis=1)
        if self.per:
            per_seed = values.sum(axis=1) / outcome.over_seeds(self.per).sum(axis=1)
        mean, half = mean_interval(per_seed * self.scale)
        return Figure(float(mean), float(half), self.digits)


COLUMNS = (
    Column("accuracy (%)", "accuracy", scale=100.0, at_end=True),
    Column("loss (nats)", "loss", digits=3, at_end=True),
    Column("samples per cycle", "samples", digits=0),
    Column("cycle time (s)", "cycle_s", digits=3),
    Column("staleness, max", "max_staleness", digits=1),
    Column("staleness, mean", "mean_staleness"),
    Column("utilisation (%)", "utilisation", scale=100.0, digits=1),
    Column("truancy (%)", "truancy", scale=100.0, digits=1),
)

#: Of a fog; costs are those of a sample that is collected.
FOG_COLUMNS = (
    *COLUMNS[:2],
    Column("unit cost", "cost", digits=3, per="collected"),
    Column("process cost", "process_cost", digits=3, per="collected"),
    Column("transfer cost", "transfer_cost", digits=3, per="collected"),
    Column("error cost", "error_cost", digits=3, per="collected"),
    Column("offloaded (%)", "sent", scale=100.0, digits=1, per="collected"),
    Column("discarded (%)", "discarded", scale=100.0, digits=1, per="collected"),
    Column("trained (%)", "trained", scale=100.0, digits=1, per="collected"),
)

#: What a fog's yardstick has none of.
_COSTS = ("cost", "process_cost", "transfer_cost", "error_cost")


def columns_of(scheme: str) -> tuple[Column, ...]:
    """The figures that tell of a scheme."""
    return FOG_COLUMNS if is_fog(scheme) else COLUMNS


def usual(job: Job) -> tuple[str, ...]:
    """The schemes to compare on a job if none are named."""
    if job.task:
        return "med", "mmtt", "med-probe", "mmtt-ideal"
    if is_fog(job.scheme):
        return "fog:alone", "fog:windows", "fog:rolling", "fog:known"
    return "csa", "eta", "sync", "dab"


def cycles_of(job: Job, schemes: Sequence[str]) -> int:
    """Cycles of one run under each scheme."""
    cycles = sum(one.cycles for one in tasks_of(job))
    return sum(
        cycles * (job.fog.period if scheme == FEDERATED else 1) for scheme in schemes
    )


def compare(
    job: Job,
    schemes: Sequence[str],
    seeds: int,
    folder: Path,
    engine: Engine = in_turn,
    begin: Begin = lambda cycles: lambda: None,
) -> Comparison[Outcome]:
    """Run ``job`` under each scheme with seeds job.seed, job.seed + 1, …

    Every run gets a folder of its own in ``folder`` as it ends; those that are there
    from before are not done again. A scheme that has no allocation, diverges or is lost
    is reported as failed, and the others go on; raises TrainingError if all fail,
    ConfigError if ``folder`` is of another comparison.
    """
    _check(job, schemes)
    # What is wrong with the job itself is said once, before any run.
    ready(msgspec.structs.replace(job, scheme=schemes[0]))
    ran = _run_all(job, schemes, seeds, folder, engine, begin)
    return Comparison(
        job=job.name,
        seeds=_seeds(job, seeds),
        titles=[column.title for column in columns_of(schemes[0])],
        outcomes=[
            Outcome(scheme=scheme, failed=some)
            if isinstance(some, str)
            else Outcome(
                scheme=scheme, courses=[one for one in some if isinstance(one, Course)]
            )
            for scheme, some in ran.items()
        ],
    )


def _check(job: Job, schemes: Sequence[str]) -> None:
    """Raise ConfigError for schemes that are not there, or not of one kind."""
    known = (*SCHEMES, *CODED, *FOGS)
    for scheme in schemes:
        if scheme not in known:
            raise unknown("scheme", scheme, known)
    fogs = [scheme for scheme in schemes if is_fog(scheme)]
    if fogs and len(fogs) < len(schemes):
        raise ConfigError(
            f"{', '.join(schemes)}: the figures of a fog are others; compare "
            f"{', '.join(fogs)} by {'itself' if len(fogs) == 1 else 'themselves'}"
        )
    for scheme in fogs:
        check_fog(msgspec.structs.replace(job, scheme=scheme))


def compare_tasks(
    job: Job,
    schemes: Sequence[str],
    seeds: int,
    folder: Path,
    engine: Engine = in_turn,
    begin: Begin = lambda cycles: lambda: None,
) -> Comparison[TaskOutcome]:
    """Run a job of several tasks under each scheme, as `compare` does.

    A scheme under which a task is refused is reported as failed: its figures would be
    of fewer tasks than those of the others.
    """
    for scheme in schemes:
        jobs_of(msgspec.structs.replace(job, scheme=scheme))
    build_many(msgspec.structs.replace(job, scheme=schemes[0]))
    ran = _run_all(job, schemes, seeds, folder, engine, begin)
    return Comparison(
        job=job.name,
        seeds=_seeds(job, seeds),
        titles=[column.title for column in TASK_COLUMNS],
        outcomes=[
            TaskOutcome(scheme=scheme, failed=some)
            if isinstance(some, str)
            else TaskOutcome(
                scheme=scheme, runs=[one for one in some if isinstance(one, list)]
            )
            for scheme, some in ran.items()
        ],
    )


def _seeds(job: Job, seeds: int) -> list[int]:
    return list(range(job.seed, job.seed + seeds))


def _run_all(
    job: Job,
    schemes: Sequence[str],
    seeds: int,
    folder: Path,
    engine: Engine,
    begin: Begin,
) -> dict[str, list[Came] | str]:
    """Of each scheme what its runs came to, or why the first of them failed."""
    open_sweep(folder, job, schemes, seeds)
    jobs = {
        f"{scheme}-seed{seed}": msgspec.structs.replace(job, scheme=scheme, seed=seed)
        for scheme in schemes
        for seed in _seeds(job, seeds)
    }
    came: dict[str, Came | str] = {
        name: there for name in jobs if (there := left(folder / name)) is not None
    }
    missing = [name for name in jobs if name not in came]
    todo = [jobs[name] for name in missing]
    tick = begin(sum(cycles_of(one, [one.scheme]) for one in todo))
    for place, ran in engine(simulated, todo, tick):
        name = missing[place]
        if isinstance(ran, LostError):
            came[name] = str(ran)
        else:
            leave(ran, folder / name)
            came[name] = ran.failed if ran.came is None else ran.came
    return _by_scheme(schemes, [came[name] for name in jobs])


def _by_scheme(
    schemes: Sequence[str], came: Sequence[Came | str]
) -> dict[str, list[Came] | str]:
    """All seeds of a scheme, or the first failure; TrainingError if all failed."""
    ran: dict[str, list[Came] | str] = {}
    seeds = len(came) // len(schemes)
    for i, scheme in enumerate(schemes):
        some = came[i * seeds : (i + 1) * seeds]
        failed = [run for run in some if isinstance(run, str)]
        ran[scheme] = (
            failed[0] if failed else [r for r in some if not isinstance(r, str)]
        )
    if all(isinstance(some, str) for some in ran.values()):
        raise TrainingError("; ".join(f"{name}: {why}" for name, why in ran.items()))
    return ran
