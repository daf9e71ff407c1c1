"""Schemes side by side: one job, many schemes and seeds, means with intervals."""

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from threading import Thread

import msgspec
import numpy as np

from melisma.config import Job
from melisma.errors import MelismaError, TrainingError
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval
from melisma.runtime.folder import run_folder
from melisma.runtime.records import Aggregated, Evaluated, Record, evaluations
from melisma.schemes import find
from melisma.simulation import build


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to, cycle by cycle."""

    time_s: list[float]  #: at the end of each cycle
    accuracy: list[float]
    loss: list[float]
    cycle_s: list[float]
    samples: list[int]
    max_staleness: list[int]
    mean_staleness: list[float]
    utilisation: list[float]
    truancy: list[float]


def course(records: Sequence[Record]) -> Course:
    """Pick the cycle-wide figures from a run's records."""
    merged = [record for record in records if isinstance(record, Aggregated)]
    tested = evaluations(records)
    return Course(
        time_s=[record.time_s for record in tested],
        accuracy=[record.accuracy for record in tested],
        loss=[math.nan if r.loss is None else r.loss for r in tested],
        cycle_s=[record.cycle_s for record in merged],
        samples=[record.samples for record in merged],
        max_staleness=[record.max_staleness for record in merged],
        mean_staleness=[record.mean_staleness for record in merged],
        utilisation=[record.utilisation for record in merged],
        truancy=[record.truancy for record in merged],
    )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one scheme: a course for each seed, or why there is none."""

    scheme: str
    courses: list[Course] = []
    failed: str = ""

    def over_seeds(self, figure: str) -> Floats:
        """One figure of all runs, seeds × cycles."""
        return np.array([getattr(c, figure) for c in self.courses], dtype=np.float64)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All schemes on one job."""

    job: str
    seeds: list[int]
    outcomes: list[Outcome]

    @property
    def finished(self) -> list[Outcome]:
        """The schemes that ran to the end."""
        return [outcome for outcome in self.outcomes if outcome.courses]


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of the comparison's table."""

    title: str
    figure: str  #: a field of Course
    scale: float = 1.0
    digits: int = 2
    at_end: bool = False  #: of the last cycle; else the mean over cycles

    def of(self, outcome: Outcome) -> tuple[float, float]:
        """Mean over seeds, and half of its 95 % interval (NaN for one seed)."""
        values = outcome.over_seeds(self.figure)
        per_seed = values[:, -1] if self.at_end else values.mean(axis=1)
        mean, half = mean_interval(per_seed * self.scale)
        return float(mean), float(half)


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


def compare(
    job: Job,
    schemes: Sequence[str],
    seeds: int,
    folder: Path,
    tick: Callable[[], None] = lambda: None,
    processes: int | None = None,
) -> Comparison:
    """Run ``job`` under each scheme with seeds job.seed, job.seed + 1, …

    Every run gets a folder of its own in ``folder``. Runs share the cores, one thread
    each; ``tick`` is called for every cycle that ends. A scheme that has no allocation
    or diverges is reported as failed, and the others go on; raises TrainingError if
    all fail.
    """
    for scheme in schemes:
        find(scheme)
    build(job)  # what is wrong with the job itself is said once, before any run
    numbers = list(range(job.seed, job.seed + seeds))
    todo = [
        (
            msgspec.structs.replace(job, scheme=scheme, seed=seed),
            folder / f"{scheme}-seed{seed}",
        )
        for scheme in schemes
        for seed in numbers
    ]
    done = _run_all(todo, tick, processes or min(os.cpu_count() or 1, len(todo)))
    outcomes = []
    for i, scheme in enumerate(schemes):
        runs = done[i * seeds : (i + 1) * seeds]
        failed = [run for run in runs if isinstance(run, str)]
        courses = [run for run in runs if isinstance(run, Course)]
        outcomes.append(
            Outcome(scheme=scheme, failed=failed[0])
            if failed
            else Outcome(scheme=scheme, courses=courses)
        )
    if not any(outcome.courses for outcome in outcomes):
        raise TrainingError("; ".join(f"{o.scheme}: {o.failed}" for o in outcomes))
    return Comparison(job=job.name, seeds=numbers, outcomes=outcomes)


def _run_all(
    todo: Sequence[tuple[Job, Path]], tick: Callable[[], None], processes: int
) -> list[Course | str]:
    """Courses, or why there is none, in the order of ``todo``."""
    context = multiprocessing.get_context("spawn")
    ticks: SimpleQueue[bool] = context.SimpleQueue()

    def listen() -> None:
        while ticks.get():
            tick()

    listener = Thread(target=listen)
    listener.start()
    try:
        with ProcessPoolExecutor(
            processes, mp_context=context, initializer=_keep, initargs=(ticks,)
        ) as pool:
            return list(pool.map(_run_one, todo))
    finally:
        ticks.put(False)
        listener.join()


_ticks: "SimpleQueue[bool]"


def _keep(ticks: "SimpleQueue[bool]") -> None:
    """Give a worker process its way to report."""
    global _ticks
    _ticks = ticks


def _run_one(todo: tuple[Job, Path]) -> Course | str:
    job, folder = todo

    def watch(record: Record) -> None:
        if isinstance(record, Evaluated):
            _ticks.put(True)

    try:
        with run_folder(folder.parent, folder.name) as own:
            return course(build(job).run(own, watch))
    except MelismaError as error:
        return str(error)
