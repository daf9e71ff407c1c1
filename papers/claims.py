"""Claims: what is printed, what we find, and whether the one bears out the other.

The verdict is never typed. A rule, stated beside each claim, makes it from our mean and
its 95 % interval, and from nothing else. The rule names a range, and may name a wider,
weaker one: of "41 % less", that it is less at all. The mean proposes a verdict, and the
interval bears it out or withdraws it:

    verdict          the mean lies          and the interval
    holds            in the range           lies in the weaker range
    holds weaker     in the weaker range    lies in it, and misses the range
    does not hold    in neither             misses the range
    not decided      otherwise: more trials must tell

So a verdict that was made is that of the mean alone, whatever the interval: an interval
that shrinks decides what was open, and overturns nothing. Without a weaker range, the
range is its own. *Weaker* is the statement, not the effect: who saves 75 % where 46 are
printed saves, but not as printed. A gain "by 46 %" or "by up to 46 %", then at the best
point, has two sides (``by``); "over", "within", "at most" and "only" have one.

Rows have a kind, and are counted by it: a claim of the paper; a row of our own, which
is no statement of the paper (another reading of it, a prototype, theory, the league); a
row that is given, because the setting was built or calibrated to show it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from numpy.typing import ArrayLike

from melisma.maths import mean_interval


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    WEAKER = "holds weaker"
    FAILS = "does not hold"
    OPEN = "not decided"


class Kind(StrEnum):
    """Whose statement a row is."""

    PAPER = "paper"
    OWN = "ours"  #: another reading, a prototype, theory, or the league
    GIVEN = "given"  #: by construction, or by what was calibrated to it


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


class Range(NamedTuple):
    """Numbers from one to another; the ends belong to it unless it is open."""

    low: float
    high: float
    is_open: bool = False

    def has(self, value: float) -> bool:
        """Whether a number lies in it."""
        if self.is_open:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def misses(self, ours: Measured) -> bool:
        """Whether no number of an interval lies in it."""
        if self.is_open:
            return ours.high <= self.low or ours.low >= self.high
        return ours.high < self.low or ours.low > self.high


@dataclass(frozen=True, slots=True)
class Rule:
    """The range of a claim and its weaker one, as a text that says all of it.

    >>> Rule("46 ± 11.5; weaker: > 0").holds
    Range(low=34.5, high=57.5, is_open=False)
    """

    text: str  #: "≥ 41; weaker: > 0", as pages show it and results keep it

    @property
    def holds(self) -> Range:
        """Where the claim holds."""
        return _range(self._parts[0])

    @property
    def _parts(self) -> tuple[str, str]:
        own, _, weaker = self.text.partition("; weaker: ")
        return own, weaker

    def _is_weaker(self, value: float) -> bool:
        """Whether a number lies in the weaker range, or in the range itself."""
        own, weaker = self._parts
        if weaker.startswith("±"):  # around the same number
            weaker = f"{own.removeprefix('= ').split()[0]} {weaker}"
        wider = weaker and _range(weaker)._replace(is_open=True).has(value)
        return bool(wider) or self.holds.has(value)

    def verdict(self, ours: Measured) -> Verdict:
        """Judge our number."""
        inside = self._is_weaker(ours.low) and self._is_weaker(ours.high)
        misses = self.holds.misses(ours)
        if self.holds.has(ours.value):
            found, borne_out = Verdict.HOLDS, inside
        elif self._is_weaker(ours.value):
            found, borne_out = Verdict.WEAKER, inside and misses
        else:
            found, borne_out = Verdict.FAILS, misses
        return found if borne_out else Verdict.OPEN


@cache
def _range(text: str) -> Range:
    """Read "≥ 41", "< 7", "= 1" or "7 ± 2"; ValueError if it is none of them."""
    match text.split():
        case [number, "±", half]:
            return Range(float(number) - float(half), float(number) + float(half))
        case ["=", number]:
            return Range(float(number), float(number))
        case ["≥" | ">" as sign, number]:
            return Range(float(number), math.inf, sign == ">")
        case ["≤" | "<" as sign, number]:
            return Range(-math.inf, float(number), sign == "<")
    raise ValueError(f"{text!r} is no range")


def at_least(bar: float, weaker: float | None = None) -> Rule:
    """As much as ``bar``; still more than ``weaker``.

    >>> at_least(40.0, weaker=0.0).verdict(Measured(25.0, 10.0))
    <Verdict.WEAKER: 'holds weaker'>
    """
    return Rule(f"≥ {bar:g}" + ("" if weaker is None else f"; weaker: > {weaker:g}"))


def at_most(bar: float, weaker: float | None = None) -> Rule:
    """As little as ``bar``; still less than ``weaker``."""
    return Rule(f"≤ {bar:g}" + ("" if weaker is None else f"; weaker: < {weaker:g}"))


def above(bar: float) -> Rule:
    """More than ``bar``, by however little."""
    return Rule(f"> {bar:g}")


def near(printed: float, within: float, weaker: float | None = None) -> Rule:
    """As far from ``printed`` as ``within``; still no farther than ``weaker``."""
    text = f"{printed:g} ± {within:g}" if within else f"= {printed:g}"
    return Rule(text + ("" if weaker is None else f"; weaker: ± {weaker:g}"))


def by(printed: float) -> Rule:
    """By as much as ``printed``, give or take a quarter of it; still by something.

    >>> by(46.0).text
    '46 ± 11.5; weaker: > 0'
    """
    return Rule(f"{near(printed, printed / 4).text}; weaker: > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement of a paper, and ours; ValueError if there is no number."""

    what: str
    printed: str
    ours: Measured
    rule: Rule  #: in the unit in which ours is shown
    kind: Kind = Kind.PAPER
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
    def shown(self) -> str:
        """Our number with its interval and unit."""
        text = f"{self.ours.value:.{self.digits}f}"
        if self.ours.half is not None:
            text += f" ± {self.ours.half:.{self.digits}f}"
        return f"{text} {self.unit}".rstrip()


def of_kind(kind: Kind, claims: Iterable[Claim]) -> list[Claim]:
    """The same claims as rows of a kind."""
    return [replace(claim, kind=kind) for claim in claims]


def reason(rule: Rule, ours: Measured, why: str) -> str:
    """Why a claim does not hold, or not as printed; empty if it does."""
    match rule.verdict(ours), rule.verdict(exact(ours.value)):
        case Verdict.HOLDS, _:
            return ""
        case Verdict.OPEN, Verdict.HOLDS:
            return "of the mean alone: holds"
        case Verdict.OPEN, alone:
            return f"of the mean alone: {alone}; {why}"
    return why
