"""Gradient codes: exact sums of gradients from some of the workers.

``CODES["cyclic"](workers=10, stragglers=2, seed=0)``; ``code`` says what all share.
"""

from collections.abc import Callable

from melisma.coding.arrivals import Arrivals
from melisma.coding.blocks import Blocks, fractional, uncoded
from melisma.coding.choice import Plan, choose, foreseen, timed
from melisma.coding.code import Code, NotDecodable
from melisma.coding.combine import combine
from melisma.coding.iteration import (
    Outcome,
    earliest,
    first_stage_s,
    genie_s,
    iterate,
    iterate_in_stages,
    recovered,
)
from melisma.coding.prediction import History
from melisma.coding.spanning import Spanning, cyclic, hetero
from melisma.coding.two_stage import Helpers, Rest, TwoStage, two_stage

#: Each takes ``workers``, ``stragglers`` and ``seed``; all but cyclic also ``speeds``,
#: which loads then follow, and ``partitions``.
CODES: dict[str, Callable[..., Code]] = {
    "uncoded": uncoded,
    "fractional": fractional,
    "cyclic": cyclic,
    "hetero": hetero,
    "two-stage": two_stage,
}

__all__ = [
    "CODES",
    "Arrivals",
    "Blocks",
    "Code",
    "Helpers",
    "History",
    "NotDecodable",
    "Outcome",
    "Plan",
    "Rest",
    "Spanning",
    "TwoStage",
    "choose",
    "combine",
    "cyclic",
    "earliest",
    "first_stage_s",
    "foreseen",
    "fractional",
    "genie_s",
    "hetero",
    "iterate",
    "iterate_in_stages",
    "recovered",
    "timed",
    "two_stage",
    "uncoded",
]
