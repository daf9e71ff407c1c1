"""Claims: what is printed, what we find, and whether the one bears out the other.

The verdict is never typed. A rule, stated beside each claim, makes it from our number
and its 95 % interval, and from nothing else:

    holds           the interval lies in the range of the claim, or reaches into it
                    and lies in the weaker range
    holds weaker    the whole interval lies in the weaker range
    does not hold   otherwise
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from numpy.typing import ArrayLike

from melisma.maths import mean_interval


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    WEAKER = "holds weaker"
    FAILS = "does not hold"


class Measured(NamedTuple):
    """Our number."""

    value: float
    half: float | None  #: of its 95 % interval; None where chance has no part in it

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - (self.half or 0.0)

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + (self.half or 0.0)


def exact(value: float) -> Measured:
    """A number in which chance has no part."""
    return Measured(float(value), None)


def mean_of(values: ArrayLike) -> Measured:
    """The mean over trials and its interval; there must be two at least."""
    mean, half = mean_interval(values)
    return Measured(float(mean), float(half))


@dataclass(frozen=True, slots=True)
class Rule:
    """The range of a claim, and a wider one in which it holds weaker."""

    text: str
    holds: tuple[float, float]
    weaker: tuple[float, float]

    def verdict(self, ours: Measured) -> Verdict:
        """Judge our number."""
        least, most = self.holds
        if least <= ours.low and ours.high <= most:
            return Verdict.HOLDS
        if not self.weaker[0] < ours.low <= ours.high < self.weaker[1]:
            return Verdict.FAILS
        reached = least <= ours.high and ours.low <= most
        return Verdict.HOLDS if reached else Verdict.WEAKER


def at_least(bar: float, weaker: float | None = None) -> Rule:
    """As much as ``bar``; still more than ``weaker``.

    >>> at_least(40.0, weaker=0.0).verdict(Measured(25.0, 10.0))
    <Verdict.WEAKER: 'holds weaker'>
    """
    text = f"≥ {bar:g}" + ("" if weaker is None else f"; weaker: > {weaker:g}")
    least = bar if weaker is None else weaker
    return Rule(text, (bar, math.inf), (least, math.inf))


def at_most(bar: float, weaker: float | None = None) -> Rule:
    """As little as ``bar``; still less than ``weaker``."""
    text = f"≤ {bar:g}" + ("" if weaker is None else f"; weaker: < {weaker:g}")
    most = bar if weaker is None else weaker
    return Rule(text, (-math.inf, bar), (-math.inf, most))


def near(printed: float, within: float, weaker: float | None = None) -> Rule:
    """As far from ``printed`` as ``within``; still no farther than ``weaker``."""
    far = within if weaker is None else weaker
    text = f"{printed:g} ± {within:g}" if within else f"= {printed:g}"
    text += "" if weaker is None else f"; weaker: ± {weaker:g}"
    return Rule(
        text, (printed - within, printed + within), (printed - far, printed + far)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement of a paper, and ours; ValueError if there is no number."""

    what: str
    printed: str
    ours: Measured
    rule: Rule  #: in the unit in which ours is shown
    unit: str = ""
    digits: int = 2
    why: str = "unexplained"  #: where the verdict is not "holds"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ours.value) and math.isfinite(self.ours.half or 0)):
            raise ValueError(f"{self.what!r} has no number or interval: {self.ours}")

    @property
    def verdict(self) -> Verdict:
        """What becomes of it, by its rule."""
        return self.rule.verdict(self.ours)

    @property
    def reason(self) -> str:
        """Why it does not hold, or not as printed; empty if it does."""
        if self.verdict == Verdict.HOLDS:
            return ""
        alone = self.rule.verdict(exact(self.ours.value))
        doubt = f"of the mean alone: {alone}; more trials would tell. "
        return (doubt if alone != self.verdict else "") + self.why

    @property
    def shown(self) -> str:
        """Our number with its interval and unit."""
        text = f"{self.ours.value:.{self.digits}f}"
        if self.ours.half is not None:
            text += f" ± {self.ours.half:.{self.digits}f}"
        return f"{text} {self.unit}".rstrip()
