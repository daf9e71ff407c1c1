"""One iteration in virtual time: who answers when, and when that is enough.

A worker's seconds for its load are load / K times those for all of the data, so that
codes with unlike numbers of partitions compare.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from melisma.coding.arrivals import enough
from melisma.coding.code import Code
from melisma.coding.combine import combine
from melisma.coding.two_stage import Rest, TwoStage
from melisma.maths.arrays import Bools, Floats, numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """How an iteration went. All times are from its start; inf: never."""

    duration_s: float  #: the earliest moment at which the gradient is known
    answered_s: Floats  #: when each worker answers, in stage one if there are two
    weights: Floats  #: of each worker's answer, in stage two if there are two
    finished: Bools  #: workers whose plain sums of stage one count; none in one stage
    rest: Rest | None = None  #: stage two, if there was one
    second_s: Floats | None = None  #: when the answers of stage two come

    @property
    def used(self) -> Bools:
        """Whose answers the gradient is made of."""
        used: Bools = self.finished | (self.weights != 0)
        return used


def iterate(code: Code, whole_s: ArrayLike, upload_s: ArrayLike = 0.0) -> Outcome:
    """One iteration of a code in one stage.

    ``whole_s`` are each worker's seconds for all of the data (inf: dead), ``upload_s``
    those to send an answer.
    """
    answered_s = _answered_s(code, whole_s, upload_s)
    duration_s, weights = earliest(code, answered_s)
    return Outcome(
        duration_s=duration_s,
        answered_s=answered_s,
        weights=weights,
        finished=np.zeros(code.workers, dtype=np.bool_),
    )


def iterate_in_stages(
    scheme: TwoStage, t_comp_s: float, whole_s: ArrayLike, upload_s: ArrayLike = 0.0
) -> Outcome:
    """One iteration in two stages, the second of which begins at ``t_comp_s``."""
    answered_s = _answered_s(scheme, whole_s, upload_s)
    busy = scheme.loads > 0
    finished = answered_s <= t_comp_s
    if finished[busy].all():
        return Outcome(
            duration_s=float(answered_s[busy].max()),
            answered_s=answered_s,
            weights=np.zeros(scheme.workers),
            finished=finished,
        )
    rest = scheme.rest(finished)
    part = rest.partitions / scheme.partitions
    second_s = t_comp_s + _answered_s(
        rest.code, part * np.asarray(whole_s, dtype=np.float64), upload_s
    )
    second_s[rest.unfinished] = answered_s[rest.unfinished]
    duration_s, weights = earliest(rest.code, second_s)
    return Outcome(
        duration_s=duration_s,
        answered_s=answered_s,
        weights=weights,
        finished=finished,
        rest=rest,
        second_s=second_s,
    )


def earliest(code: Code, answered_s: Floats) -> tuple[float, Floats]:
    """The earliest decodable moment, inf if there is none, and the weights then.

    ``answered_s`` is when each worker's answer comes, inf for those that never do.
    """
    order = np.argsort(answered_s, kind="stable")
    order = order[np.isfinite(answered_s[order])]
    count = enough(code, order.tolist())
    if count > order.size:
        return np.inf, np.zeros(code.workers)
    duration_s = float(answered_s[order[count - 1]])
    return duration_s, code.decode(answered_s <= duration_s)


def first_stage_s(
    scheme: TwoStage, whole_s: ArrayLike, upload_s: ArrayLike = 0.0
) -> Floats:
    """When each worker of stage one finishes it, inf for the dead."""
    return _answered_s(scheme, whole_s, upload_s)[scheme.loads > 0]


def genie_s(whole_s: ArrayLike, upload_s: ArrayLike = 0.0) -> float:
    """Least duration of any scheme, even one that knows all speeds beforehand.

    The t with Σ (t − uploadₘ)⁺ / wholeₘ = 1: everybody works until t, on data of
    which nobody else has a copy.
    """
    whole, upload = np.broadcast_arrays(
        np.asarray(whole_s, dtype=np.float64), np.asarray(upload_s, dtype=np.float64)
    )
    order = np.argsort(upload, kind="stable")
    rate, sent = 1.0 / whole[order], upload[order]
    with np.errstate(divide="ignore"):
        t = (1.0 + np.cumsum(rate * sent)) / np.cumsum(rate)
    return float(t.min())


def recovered(code: Code, outcome: Outcome, gradients: NDArray[Any]) -> NDArray[Any]:
    """Sum of all gradients (partitions × anything) as the outcome's answers give it."""
    if not isinstance(code, TwoStage):
        return combine(outcome.weights, list(code.encode(gradients)))
    rows, weights = list(code.encode(gradients)), outcome.finished.astype(np.float64)
    if outcome.rest is not None:
        rows += list(outcome.rest.encode(gradients))
        weights = np.concatenate([weights, outcome.weights])
    return combine(weights, rows)


def _answered_s(code: Code, whole_s: ArrayLike, upload_s: ArrayLike) -> Floats:
    """When each worker that has a load answers; inf for the others."""
    shape = (code.workers,)
    whole = numbers(
        "whole_s", whole_s, shape=shape, above=0.0, endless=True, each="worker"
    )
    busy = code.loads > 0
    seconds = np.full(code.workers, np.inf)
    seconds[busy] = code.loads[busy] / code.partitions * whole[busy]
    return seconds + np.asarray(upload_s, dtype=np.float64)
