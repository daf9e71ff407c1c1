"""Who takes part in a cycle: a function from candidates to those who are asked.

    all           everybody
    random        so many, drawn anew in each cycle (FedAvg)
    over-commit   more than that are drawn, and the first so many updates count
    first         everybody is asked, and the first so many updates count (k of n)
    tiers         so many of one tier of learners that are about as fast (TiFL)
    oort          those of most use: much loss, much data, in time (Oort)

Which samples those get, and how often they train on them, is up to the scheme.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum

from melisma.maths.arrays import Bools
from melisma.schemes.participation.candidates import Candidates, Seen
from melisma.schemes.participation.drawn import drawn, everybody
from melisma.schemes.participation.oort import oort
from melisma.schemes.participation.tiers import tiers

__all__ = ["Candidates", "Seen", "TakesPart", "asked", "choose", "enough"]


class TakesPart(StrEnum):
    """Rules by which learners take part."""

    ALL = "all"
    RANDOM = "random"
    OVER_COMMIT = "over-commit"
    FIRST = "first"
    TIERS = "tiers"
    OORT = "oort"


_RULES: Mapping[TakesPart, Callable[[Candidates], Bools]] = {
    TakesPart.ALL: everybody,
    TakesPart.RANDOM: drawn,
    TakesPart.OVER_COMMIT: drawn,
    TakesPart.FIRST: everybody,
    TakesPart.TIERS: tiers,
    TakesPart.OORT: oort,
}


def choose(rule: TakesPart, candidates: Candidates) -> Bools:
    """Return who is asked."""
    return _RULES[rule](candidates)


def asked(rule: TakesPart, learners: int, over: float) -> int:
    """Return how many are asked, where so many are to take part.

    >>> asked(TakesPart.OVER_COMMIT, 10, 1.3), asked(TakesPart.RANDOM, 10, 1.3)
    (13, 10)
    """
    if rule != TakesPart.OVER_COMMIT:
        return learners
    # In binary 1.1·10 is just above 11, the number that was meant.
    return math.ceil(over * learners - 1e-9)


def enough(rule: TakesPart, learners: int) -> int | None:
    """Return how many updates end a cycle before its deadline, if any do."""
    return learners if rule in (TakesPart.OVER_COMMIT, TakesPart.FIRST) else None
