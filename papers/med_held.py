"""How claims about one metric of MED and its rivals are judged.

Intervals of all points hold together (Bonferroni), so that the one that shows most or
least may be picked.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from melisma.maths import Floats, mean_interval

from .claims import Claim, Kind, Measured, Rule, above, at_most, by
from .kit import Data
from .med_stored import Axis

NAMES = {"mmtt-ideal": "MMTT-Ideal", "med": "MED", "mmtt": "MMTT-Uncertain"}
#: Times what is printed: a gap to MMTT-Ideal up to that still holds weaker.
WIDER = 1.5
ABOVE_ZERO = above(0.0)


def measured(values: Floats, level: float = 0.95) -> Measured:
    """The mean over trials and its interval."""
    mean, half = mean_interval(values, level)
    return Measured(float(mean), float(half))


def percent_less(ours: Floats, theirs: Floats, level: float = 0.95) -> Measured:
    """By how many per cent one mean is below another; NaN if the other is 0.

    The interval is that of a ratio of means over the same trials, to first order.

    >>> percent_less(np.array([1.0, 2.0, 3.0]), np.array([4.0, 4.0, 4.0])).value
    50.0
    """
    if not theirs.mean():
        return Measured(np.nan, np.nan)
    ratio = float(ours.mean() / theirs.mean())
    rest = measured(100.0 * (ours - ratio * theirs) / theirs.mean(), level)
    return Measured(100.0 * (1.0 - ratio), rest.half)


def judged(
    what: str, printed: str, ours: Measured, rule: Rule, unit: str, why: str
) -> Claim:
    """A claim with one digit, as all of these figures have."""
    return Claim(
        what=what, printed=printed, ours=ours, rule=rule, unit=unit, digits=1, why=why
    )


class Apart(NamedTuple):
    """How far two schemes are apart at each point: ours, and as the author stored."""

    found: list[Measured]
    stored: Floats
    unit: str


class Held:
    """One metric of all schemes; its claims."""

    def __init__(self, axis: Axis, metric: str, data: Data) -> None:
        self._axis, self._points = axis, data[axis.name].astype(int).tolist()
        self._of = {scheme: data[f"{scheme}/{metric}"] for scheme in NAMES}
        self._stored = {scheme: axis.stored(metric, scheme) for scheme in NAMES}
        self._level = 1 - 0.05 / len(self._points)
        self._apart_unit, self._unit = (
            ("s", "s") if metric == "time" else ("points", "%")
        )

    def less(self, ours: str, theirs: str) -> Apart:
        """By how many per cent one scheme is below another."""
        pairs = zip(self._of[ours], self._of[theirs], strict=True)
        return Apart(
            [percent_less(a, b, self._level) for a, b in pairs],
            100.0 * (1.0 - self._stored[ours] / self._stored[theirs]),
            "%",
        )

    def above(self, ours: str, theirs: str) -> Apart:
        """By how much one scheme is above another."""
        return Apart(
            [measured(gap, self._level) for gap in self._of[ours] - self._of[theirs]],
            self._stored[ours] - self._stored[theirs],
            self._apart_unit,
        )

    def up_to(self, what: str, bar: float, apart: Apart, why: str) -> Claim:
        """By as much as printed where that shows best; weaker: apart somewhere.

        A point at which nothing varies shows nothing: there, one scheme has none of it.
        """
        k = int(np.nanargmax([one.low if one.half else np.nan for one in apart.found]))
        return self._at(k, f"{what}, at best", bar, apart, by(bar), why)

    def as_stored(self, what: str, apart: Apart, why: str) -> Claim:
        """By as much as was stored, at the point where that is most."""
        k = int(apart.stored.argmax())
        bar = math.floor(10 * apart.stored[k] + 1e-9) / 10
        what = f"{what}, by the stored results {self._where(k)}"
        return replace(self._at(k, what, bar, apart, by(bar), why), kind=Kind.OWN)

    def within(self, what: str, bar: float, apart: Apart, why: str) -> Claim:
        """No farther apart than printed at any point."""
        k = int(np.nanargmax([one.value for one in apart.found]))
        rule = at_most(bar, weaker=WIDER * bar)
        return self._at(k, f"{what}, at most", bar, apart, rule, why)

    def always(self, what: str, apart: Apart, rule: Rule, why: str) -> Claim:
        """Apart at every point."""
        k = int(np.nanargmin([one.low for one in apart.found]))
        return self._at(k, f"{what}, at least", "always", apart, rule, why)

    def changes(
        self, what: str, sign: int, why: str, ideal: str | None = None
    ) -> list[Claim]:
        """Rises (1) or falls (−1) from the first point to the last.

        ``ideal`` is why MMTT-Ideal does not, where that is another reason.
        """
        way = "rises" if sign > 0 else "falls"
        span = f"from {self._points[0]} to {self._points[-1]} {self._axis.name}"
        return [
            judged(
                what=f"{NAMES[scheme]}: {what} {way} {span}",
                printed=way,
                ours=measured(sign * (values[-1] - values[0])),
                rule=ABOVE_ZERO,
                unit=self._apart_unit,
                why=ideal if ideal and scheme == "mmtt-ideal" else why,
            )
            for scheme, values in self._of.items()
        ]

    def nears(self, what: str, ours: str, theirs: str, why: str) -> Claim:
        """One is less far above the other at the last point than at the first."""
        gap = self._of[ours] - self._of[theirs]
        return judged(
            what=f"{what} from {self._points[0]} to {self._points[-1]} learners",
            printed="approaches",
            ours=measured(gap[0] - gap[-1]),
            rule=ABOVE_ZERO,
            unit=self._apart_unit,
            why=why,
        )

    def largest(self, what: str, point: int, ours: str, theirs: str, why: str) -> Claim:
        """One is farther above the other at a point than at any other."""
        gap, k = self._of[ours] - self._of[theirs], self._points.index(point)
        level = 1 - 0.05 / (len(gap) - 1)
        more = [measured(gap[k] - other, level) for other in np.delete(gap, k, axis=0)]
        return judged(
            what=f"{what} {self._where(k)} less the largest elsewhere",
            printed="largest",
            ours=min(more, key=lambda one: one.low),
            rule=ABOVE_ZERO,
            unit=self._apart_unit,
            why=why,
        )

    def value(
        self, scheme: str, point: int, printed: str, rule: Rule, why: str
    ) -> Claim:
        """A scheme's own value at a point."""
        k = self._points.index(point)
        return judged(
            what=f"{NAMES[scheme]} {self._where(k)}",
            printed=printed,
            ours=measured(self._of[scheme][k]),
            rule=rule,
            unit=self._unit,
            why=why,
        )

    def everywhere(
        self, what: str, scheme: str, printed: str, rule: Rule, why: str
    ) -> Claim:
        """A scheme's own value at the point where it fits the rule least."""
        found = [measured(values, self._level) for values in self._of[scheme]]
        floor = np.isfinite(rule.holds.low)
        badness = [-one.low if floor else one.high for one in found]
        k = int(np.argmax(badness))
        return judged(
            what=f"{what}, {'at least' if floor else 'at most'}",
            printed=printed,
            ours=found[k],
            rule=rule,
            unit=f"{self._unit} {self._where(k)}",
            why=why,
        )

    def _where(self, k: int) -> str:
        number, name = self._points[k], self._axis.name
        return f"at {number} {name.removesuffix('s') if number == 1 else name}"

    def _at(
        self, k: int, what: str, bar: float | str, apart: Apart, rule: Rule, why: str
    ) -> Claim:
        return judged(
            what=what,
            printed=bar if isinstance(bar, str) else f"{bar:g} {apart.unit}",
            ours=apart.found[k],
            rule=rule,
            unit=f"{apart.unit} {self._where(k)}",
            why=why,
        )
