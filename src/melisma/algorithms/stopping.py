"""When a run ends before its last cycle: what a job's ``stop`` says.

    accuracy >= 0.97          a metric of the task's, or its loss
    time >= 10 min            on the run's clock
    no progress for 5 cycles  of the task's first metric

A run ends after the first cycle of which one of them holds.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from melisma.errors import ConfigError, unknown
from melisma.learning.metrics import Metric
from melisma.runs.records import Evaluated
from melisma.units import Seconds

#: Returns why a run is to end after these evaluations, one a cycle; empty: it is not.
Rule = Callable[[Sequence[Evaluated]], str]

_COMPARED = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Stop:
    """The rules of a run, of which one is enough."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str], metrics: Sequence[Metric]) -> "Stop":
        """Read what a job says; ConfigError if that is no rule for these metrics."""
        return cls(tuple(_rule(text, metrics) for text in texts))

    def reason(self, evaluations: Sequence[Evaluated]) -> str:
        """Return why the run is to end after its last evaluation, if it is."""
        return next((why for rule in self.rules if (why := rule(evaluations))), "")


NEVER = Stop()


def _rule(text: str, metrics: Sequence[Metric]) -> Rule:
    if found := re.fullmatch(r"\s*no progress for (\d+) cycles?\s*", text):
        return _progress(int(found[1]), metrics[0])
    found = re.fullmatch(r"\s*(.+?)\s*(>=|<=)\s*(.+?)\s*", text)
    if found is None:
        raise ConfigError(
            f"stop = {text!r}: give as 'accuracy >= 0.97', 'time >= 10 min' or "
            "'no progress for 5 cycles'"
        )
    name, sign, bound = found[1], found[2], found[3]
    if name == "time":
        return _time(text, sign, bound)
    names = [*(metric.name for metric in metrics), "loss"]
    if name not in names:
        raise unknown("metric in stop", name, [*names, "time"])
    return _metric(name, sign, _number(text, bound))


def _number(text: str, written: str) -> float:
    """Read a number, or a percentage."""
    try:
        number = float(written.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"stop = {text!r}: {written!r} is not a number")
    return number / 100 if written.endswith("%") else number


def _metric(name: str, sign: str, bound: float) -> Rule:
    def rule(evaluations: Sequence[Evaluated]) -> str:
        last = evaluations[-1]
        value = last.loss if name == "loss" else last.metrics.get(name)
        if value is None or not _COMPARED[sign](value, bound):
            return ""
        return f"{name} is {value:.6g} {sign} {bound:g}"

    return rule


def _time(text: str, sign: str, bound: str) -> Rule:
    limit_s = float(Seconds.of(bound))
    if sign != ">=" or not 0 < limit_s < math.inf:
        raise ConfigError(
            f"stop = {text!r}: give a time to end at, as 'time >= 10 min'"
        )

    def rule(evaluations: Sequence[Evaluated]) -> str:
        time_s = evaluations[-1].time_s
        return f"time is {time_s:.6g} s >= {limit_s:g} s" if time_s >= limit_s else ""

    return rule


def _progress(cycles: int, metric: Metric) -> Rule:
    if cycles < 1:
        raise ConfigError("stop = 'no progress for 0 cycles': give at least 1")
    worst = -math.inf if metric.more_is_better else math.inf
    better = operator.gt if metric.more_is_better else operator.lt

    def rule(evaluations: Sequence[Evaluated]) -> str:
        best, since = worst, 0
        for evaluation in evaluations:
            value = evaluation.metrics.get(metric.name)
            since += 1
            if value is not None and better(value, best):
                best, since = value, 0
        return f"no progress for {since} cycles" if since >= cycles else ""

    return rule
