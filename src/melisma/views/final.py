"""Final figures of runs, for a table with a column for each run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from melisma.runs.records import Metric
from melisma.views import scores
from melisma.views.document import document
from melisma.views.ledger import COUNTED, GOES_ON, SITS_OUT, UNDER_WAY
from melisma.views.tasks import end_title


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """A run's last figures, and means over its cycles; of all tasks together."""

    id: str
    scheme: str
    state: str
    cycles: int  #: whole ones
    learners: int
    kinds: list[Metric]  #: that every task has
    metrics: dict[str, float | None]  #: in the end, by name; the means over tasks
    loss: float | None
    time_s: float | None  #: until the last whole cycle ended
    cycle_s: float | None
    samples: float | None  #: of a cycle
    max_staleness: float | None
    utilisation: float | None
    truancy: float | None
    counted: int  #: updates
    lost: int
    cost: float | None  #: of a cycle


def final(folder: Path) -> Final:
    """Return a run's final figures; DataError if there is no run in ``folder``."""
    contents = document(folder)
    run, cycles = contents["run"], contents["cycles"]
    outcomes = [contents["outcomes"][place] for place in contents["turns"]["outcome"]]
    kept = (COUNTED, UNDER_WAY, GOES_ON)
    lost = [o for o in outcomes if o not in kept and not o.startswith(SITS_OUT)]
    carried = sum(age is not None for age in contents["turns"]["carried"])
    tasks = msgspec.convert([t["metrics"] for t in contents["tasks"]], _KINDS)
    kinds = scores.shared(metrics for metrics in tasks if metrics)
    ends = _last_rows(cycles)
    values = [{name: v[end] for name, v in cycles["metrics"].items()} for end in ends]
    return Final(
        id=run["id"],
        scheme=run["scheme"],
        state=run["state"],
        cycles=sum(time_s is not None for time_s in cycles["time_s"]),
        learners=len(contents["learners"]),
        kinds=kinds,
        metrics=scores.means(kinds, values),
        loss=_mean([cycles["loss"][end] for end in ends]),
        time_s=max((s for s in cycles["time_s"] if s is not None), default=None),
        counted=outcomes.count(COUNTED) + carried,
        lost=len(lost),
        **{name: _mean(cycles[name]) for name in _MEANS},
    )


_MEANS = ("cycle_s", "samples", "max_staleness", "utilisation", "truancy", "cost")


#: The metrics of each task, in a document.
_KINDS = list[list[Metric]]


def _last_rows(cycles: dict[str, Any]) -> list[int]:
    """Return the row of each task's last whole cycle."""
    ended = [row for row, time_s in enumerate(cycles["time_s"]) if time_s is not None]
    return list({cycles["task"][row]: row for row in ended}.values())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: its title and how its figure is read and printed."""

    title: str
    of: Callable[[Final], float | str | None]
    digits: int = 0

    def text(self, run: Final) -> str:
        """Return the figure; a dash if it is not known."""
        value = self.of(run)
        if value is None or isinstance(value, str):
            return value or "–"
        return f"{value:,.{self.digits}f}"


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def table(runs: Sequence[Final]) -> list[list[str]]:
    """Return the rows of the table: a title, and a figure of each run."""
    metrics = [
        [end_title(kind), *(_end(run, kind) for run in runs)]
        for kind in scores.distinct(run.kinds for run in runs)
    ]
    rows = [[row.title, *map(row.text, runs)] for row in _ROWS]
    return [*rows[:2], *metrics, *rows[2:]]


def _end(run: Final, kind: Metric) -> str:
    return scores.cell(kind, run.metrics[kind.name] if kind in run.kinds else None)


#: All but the metrics, which follow the first two.
_ROWS = (
    Row("scheme", lambda run: run.scheme),
    Row("state", lambda run: run.state),
    Row("loss in the end", lambda run: scores.plain(run.loss)),
    Row("whole cycles", lambda run: run.cycles),
    Row("time (s)", lambda run: run.time_s, 1),
    Row("learners", lambda run: run.learners),
    Row("updates that count", lambda run: run.counted),
    Row("updates lost", lambda run: run.lost),
    Row("cycle, mean (s)", lambda run: run.cycle_s, 3),
    Row("samples of a cycle, mean", lambda run: run.samples),
    Row("staleness, mean of the largest", lambda run: run.max_staleness, 1),
    Row("utilisation, mean (%)", lambda run: _percent(run.utilisation), 1),
    Row("truancy, mean (%)", lambda run: _percent(run.truancy), 1),
    Row("cost of a cycle, mean", lambda run: run.cost, 2),
)
