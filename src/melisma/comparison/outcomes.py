"""Compare schemes: one job, many schemes and seeds, means with intervals."""

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from melisma.comparison.sweeps import Engine, Tick, in_turn
from melisma.comparison.trials import (
    Result,
    TaskFigure,
    open_sweep,
    save,
    saved,
    simulated,
)
from melisma.errors import ConfigError, LostError, TrainingError
from melisma.jobs.columns import Column
from melisma.jobs.families import (
    cycles_of,
    family_of,
    family_of_scheme,
    is_priced,
)
from melisma.jobs.schema import Job
from melisma.launch.simulate import build
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval
from melisma.runs.records import Metric
from melisma.views import scores
from melisma.views.history import History

#: Called with the number of cycles to do; returns the tick to call as each ends.
Begin = Callable[[int], Tick]


class Figure(NamedTuple):
    """One figure over all seeds."""

    mean: float  #: NaN: there is none
    half: float  #: of its 95 % interval; NaN for one seed
    digits: int  #: to print


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one scheme: a history for each seed, or why it failed."""

    scheme: str
    histories: list[History] = []
    failed: str = ""

    def over_seeds(self, figure: str) -> Floats:
        """Return one figure of all runs, seeds × cycles."""
        return np.array([getattr(c, figure) for c in self.histories], dtype=np.float64)

    @property
    def kinds(self) -> tuple[Metric, ...]:
        """The task's metrics; the first is *the* metric."""
        return self.histories[0].kinds

    def metric_over_seeds(self, metric: Metric) -> Floats:
        """Return a metric of all runs as it is shown, seeds × cycles."""
        values = [history.metrics[metric.name] for history in self.histories]
        return scores.scale(metric) * np.array(values, dtype=np.float64)

    def titles(self) -> list[str]:
        """The titles of the figures: metrics and loss in the end, and the rest."""
        columns = family_of_scheme(self.scheme).columns
        return [*map(scores.title, self.kinds), *(column.title for column in columns)]

    def figures(self) -> list[Figure]:
        """The figures of the comparison's table."""
        columns = family_of_scheme(self.scheme).columns
        return [
            *(_end(self, metric) for metric in self.kinds),
            *(figure_of(self, column) for column in columns),
        ]


def _end(outcome: Outcome, metric: Metric) -> Figure:
    """Return a metric after the last cycle."""
    mean, half = map(float, mean_interval(outcome.metric_over_seeds(metric)[:, -1]))
    return Figure(mean, half, scores.digits(metric, mean))


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of several tasks under one scheme: figures for each seed."""

    scheme: str
    runs: list[list[TaskFigure]] = []  #: seeds × figures
    failed: str = ""

    def titles(self) -> list[str]:
        """The titles of the figures: metrics in the end, and how tasks were served."""
        return [figure.title for figure in self.runs[0]]

    def figures(self) -> list[Figure]:
        """The figures of the comparison's table."""
        found = []
        for over_seeds in zip(*self.runs, strict=True):
            mean, half = mean_interval(np.array([one.value for one in over_seeds]))
            most = max(one.digits for one in over_seeds)
            found.append(Figure(float(mean), float(half), most))
        return found


AnyOutcome = Outcome | TaskOutcome


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All schemes on one job."""

    job: str
    seeds: list[int]
    titles: list[str]  #: of an outcome's figures
    outcomes: Sequence[AnyOutcome]
    folder: str = ""  #: of its runs and its report

    @property
    def finished(self) -> Sequence[AnyOutcome]:
        """Outcomes of the schemes that did not fail."""
        return [outcome for outcome in self.outcomes if not outcome.failed]

    def table(self) -> str:
        """Return the figures as text: one row per figure, one column per scheme."""
        columns = [("", *self.titles)]
        columns += [(o.scheme, *cells(o)) for o in self.finished]
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                text.rjust(width) if i else text.ljust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in zip(*columns, strict=True)
        ]
        failed = [f"{o.scheme} failed: {o.failed}" for o in self.outcomes if o.failed]
        return "\n".join([*lines, *failed])

    def _repr_html_(self) -> str:
        """Return the table as a notebook shows it."""
        return f"<pre>{escape(self.table())}</pre>"


def cells(outcome: AnyOutcome) -> list[str]:
    """Return one scheme's row of the table, as text."""
    row = []
    for mean, half, digits in outcome.figures():
        text = "–" if math.isnan(mean) else f"{mean:,.{digits}f}"
        row.append(text if math.isnan(half) else f"{text} ± {half:,.{digits}f}")
    return row


def figure_of(outcome: Outcome, column: Column) -> Figure:
    """Return the mean over seeds, with half of its 95 % interval."""
    if column.figure in _COSTS and not is_priced(outcome.scheme):
        return Figure(math.nan, math.nan, 0)
    values = outcome.over_seeds(column.figure)
    per_seed = values[:, -1] if column.at_end else values.mean(axis=1)
    if column.per:
        per_seed = values.sum(axis=1) / outcome.over_seeds(column.per).sum(axis=1)
    mean, half = map(float, mean_interval(per_seed * column.scale))
    digits = scores.plain_digits(mean) if column.digits is None else column.digits
    return Figure(mean, half, digits)


#: Figures that central training, the yardstick of a fog, does not have.
_COSTS = ("cost", "process_cost", "transfer_cost", "error_cost")


def compare(
    job: Job,
    schemes: Sequence[str],
    seeds: int,
    folder: Path,
    engine: Engine = in_turn,
    begin: Begin = lambda cycles: lambda: None,
) -> Comparison:
    """Run ``job`` under each scheme with seeds job.seed, job.seed + 1, …

    Every run is saved in a folder of its own in ``folder`` as it ends; runs found there
    are not repeated. A scheme that has no allocation, diverges or loses its process is
    reported as failed while the others go on; so is one that refuses a task, since its
    figures would cover fewer tasks. TrainingError if all fail, ConfigError if
    ``folder`` belongs to another comparison.
    """
    _check(job, schemes)
    # Errors of the job itself are raised once, before any run.
    build(msgspec.structs.replace(job, scheme=schemes[0]))
    results = _run_all(job, schemes, seeds, folder, engine, begin)
    outcomes = [_outcome(job, scheme, runs) for scheme, runs in results.items()]
    return Comparison(
        job=job.name,
        seeds=_seeds(job, seeds),
        titles=next(outcome.titles() for outcome in outcomes if not outcome.failed),
        outcomes=outcomes,
    )


def _outcome(job: Job, scheme: str, runs: list[Result] | str) -> AnyOutcome:
    failed = runs if isinstance(runs, str) else ""
    if job.tasks:
        figures = [run for run in runs if isinstance(run, list)]
        return TaskOutcome(scheme=scheme, failed=failed, runs=figures)
    histories = [run for run in runs if isinstance(run, History)]
    return Outcome(scheme=scheme, failed=failed, histories=histories)


def _check(job: Job, schemes: Sequence[str]) -> None:
    """Raise ConfigError if the schemes have no figures in common."""
    families = []
    for scheme in schemes:
        given = msgspec.structs.replace(job, scheme=scheme)
        families.append(family_of(given))
        families[-1].check(given)
    first = families[0]
    for scheme, family in zip(schemes, families, strict=True):
        if family.columns != first.columns:
            raise ConfigError(
                f"{', '.join(schemes)}: the figures of {scheme} are not those of "
                f"{schemes[0]}; compare them separately"
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
) -> dict[str, list[Result] | str]:
    """Return each scheme's results, or why the first of its runs failed."""
    open_sweep(folder, job, schemes, seeds)
    jobs = {
        f"{scheme}-seed{seed}": msgspec.structs.replace(job, scheme=scheme, seed=seed)
        for scheme in schemes
        for seed in _seeds(job, seeds)
    }
    results: dict[str, Result | str] = {
        name: result for name in jobs if (result := saved(folder / name)) is not None
    }
    missing = [name for name in jobs if name not in results]
    todo = [jobs[name] for name in missing]
    tick = begin(sum(map(cycles_of, todo)))
    for place, trial in engine(simulated, todo, tick):
        name = missing[place]
        if isinstance(trial, LostError):
            results[name] = str(trial)
        else:
            save(trial, folder / name)
            results[name] = trial.failed if trial.result is None else trial.result
    return _by_scheme(schemes, [results[name] for name in jobs])


def _by_scheme(
    schemes: Sequence[str], results: Sequence[Result | str]
) -> dict[str, list[Result] | str]:
    """Group results by scheme, or its first failure; TrainingError if all failed."""
    by_scheme: dict[str, list[Result] | str] = {}
    seeds = len(results) // len(schemes)
    for i, scheme in enumerate(schemes):
        runs = results[i * seeds : (i + 1) * seeds]
        failed = [run for run in runs if isinstance(run, str)]
        by_scheme[scheme] = (
            failed[0] if failed else [run for run in runs if not isinstance(run, str)]
        )
    if all(isinstance(runs, str) for runs in by_scheme.values()):
        raise TrainingError(
            "; ".join(f"{name}: {why}" for name, why in by_scheme.items())
        )
    return by_scheme
