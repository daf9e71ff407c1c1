"""Metrics as they are shown: titles, units, and values as text."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from melisma.runs.records import Metric

#: Digits after the point of a percentage, and at least of any other number.
PERCENT_DIGITS, PLAIN_DIGITS = 2, 3


def title(metric: Metric) -> str:
    """Return a metric's name with its unit: "accuracy (%)", "mae"."""
    return f"{metric.name} (%)" if metric.percent else metric.name


def axis(metric: Metric) -> str:
    """Return the label of an axis: "test accuracy (%)", "test mae, less is better"."""
    better = "" if metric.more_is_better else ", less is better"
    return f"test {title(metric)}{better}"


def scale(metric: Metric) -> float:
    """Return by what a value is multiplied to be shown under `title`."""
    return 100.0 if metric.percent else 1.0


def digits(metric: Metric, value: float | None) -> int:
    """Return how many digits after the point a scaled value is printed with."""
    return PERCENT_DIGITS if metric.percent else plain_digits(value)


def plain_digits(value: float | None) -> int:
    """Return digits after the point: three, more where all three would be noughts.

    >>> [plain_digits(value) for value in (2.302, 0.0231, 0.0)]
    [3, 4, 3]
    """
    if not value or not math.isfinite(value):
        return PLAIN_DIGITS
    return min(12, max(PLAIN_DIGITS, 2 - math.floor(math.log10(abs(value)))))


def plain(value: float | None) -> str:
    """Return a number without unit as text; a dash where there is none."""
    known = value is not None and math.isfinite(value)
    return f"{value:,.{plain_digits(value)}f}" if known else "–"


def cell(metric: Metric, value: float | None) -> str:
    """Return a value as it stands in a column under `title`."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = scale(metric) * value
    return f"{shown:,.{digits(metric, shown)}f}"


def text(metric: Metric, value: float | None) -> str:
    """Return a value as it stands alone: "accuracy 87.5 %", "mae 0.231"."""
    known = value is not None and math.isfinite(value)
    shown = f"{value:.1%}".replace("%", " %") if known and metric.percent else ""
    return f"{metric.name} {shown or plain(value)}"


def distinct(tasks: Iterable[Sequence[Metric]]) -> list[Metric]:
    """Return the metrics of tasks, each once: first *the* metrics, then the others."""
    tasks = list(tasks)
    first = [metric for metrics in tasks for metric in metrics[:1]]
    others = [metric for metrics in tasks for metric in metrics[1:]]
    return list(dict.fromkeys([*first, *others]))


def shared(tasks: Iterable[Sequence[Metric]]) -> list[Metric]:
    """Return the metrics that all tasks have: a mean over tasks makes sense of them."""
    tasks = list(tasks)
    return [metric for metric in distinct(tasks) if all(metric in t for t in tasks)]


def means(
    metrics: Iterable[Metric], values: Sequence[Mapping[str, float | None]]
) -> dict[str, float | None]:
    """Return each metric's mean over tasks; None where one of them has no value."""
    found: dict[str, float | None] = {}
    for metric in metrics:
        known = [v for task in values if (v := task.get(metric.name)) is not None]
        whole = known and len(known) == len(values)
        found[metric.name] = fmean(known) if whole else None
    return found
