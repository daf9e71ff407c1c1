"""Aggregating updates as they arrive: by weighted mean, or robustly.

    WeightedMean      streams in the memory of two models; one huge update spoils it
    CappedMean        the same, in which no update has more than a share of the weight;
                      holds one model more
    CoordinateMedian  holds all K models; fewer than half of the learners, whatever
                      they send, cannot move a coordinate out of the others' range
    TrimmedMean       holds all K models; the same against ⌊trim·K⌋ learners, and
                      uses more of the honest updates than the median

Papers: the median and the trimmed mean of each coordinate: D. Yin et al.,
"Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
arXiv:1803.01498.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from melisma.errors import ConfigError
from melisma.learning.parameters import Parameters, all_finite
from melisma.learning.settings import Rule

#: Raised by `result` where there is nothing to aggregate.
_NOTHING = "no update with any weight was added"


class Aggregate(Protocol):
    """Combines updates, added in any order and in chunks, into one model."""

    @property
    def weight(self) -> float:
        """Σ wₖ of the updates that count."""

    def add(self, stack: Parameters, weights: Sequence[float]) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are refused.

        Refused are rows that are not finite or, where they are weighted, too large to
        be weighted in float32.
        """

    def result(self) -> Parameters:
        """Return the aggregate; ValueError if nothing of any weight was added."""


def aggregate(rule: Rule, trim: float, most_share: float = 1.0) -> Aggregate:
    """Make a new, empty aggregate.

    Only the trimmed mean asks for ``trim``, and only the mean for ``most_share``.
    """
    match rule:
        case Rule.MEAN:
            return CappedMean(most_share) if most_share < 1 else WeightedMean()
        case Rule.MEDIAN:
            return CoordinateMedian()
        case Rule.TRIMMED:
            return TrimmedMean(trim)


def of_age(age: int) -> float:
    """Weight of an update whose order is that many cycles old: 1/√(1 + age).

    >>> of_age(0), of_age(3)
    (1.0, 0.5)
    """
    return float((1 + age) ** -0.5)


class WeightedMean:
    """Σ wₖ·θₖ / Σ wₖ over stacks of updates, in any order.

    Holds one sum in double precision, the memory of two models, however many learners
    there are (CSA, Eq. 15, with the samples really trained for dₖ).
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._sum: Parameters = {}

    def add(self, stack: Parameters, weights: Sequence[float]) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are refused.

        Those are left out: a single NaN or infinity would spread to the mean. An
        overflow in float32 never becomes finite again, so a sum that is finite had
        none; only one that is not is looked at by row, and weighed in double.
        """
        parts, rows = _weighted_sum(stack, weights)
        refused: list[int] = []
        if not all_finite(parts):
            counted = _representable_rows(stack, rows)
            refused = _places(~counted)
            stack = {name: values[counted] for name, values in stack.items()}
            counted_weights = torch.tensor(weights)[counted.cpu()].tolist()
            parts, rows = _weighted_sum(stack, counted_weights)
            if not all_finite(parts):
                parts, rows = _weighted_sum(stack, counted_weights, torch.float64)
        self.weight += float(rows.sum())
        for name, part in parts.items():
            self._sum[name] = self._sum[name].add_(part) if name in self._sum else part
        return refused

    def result(self) -> Parameters:
        """Return the mean; ValueError if nothing of any weight was added."""
        if not self.weight > 0:
            raise ValueError(_NOTHING)
        return {name: (s / self.weight).float() for name, s in self._sum.items()}

    def sum_of(self, name: str) -> Tensor:
        """Return Σ wₖ·θₖ of one parameter, in double precision."""
        return self._sum[name]


class CappedMean:
    """The weighted mean, with the weight of the heaviest update limited.

    Of three updates or more none counts for more than ``most_share`` of all, from 0.5
    to below 1: at 0.5 nobody outweighs all the others. The heaviest one is held apart
    from the sum of the others, since its limit is known only at the end.
    """

    def __init__(self, most_share: float) -> None:
        self.most_share, self._others = most_share, WeightedMean()
        self._heaviest: Parameters = {}  # a stack of one
        self.heaviest_weight, self.updates = 0.0, 0

    @property
    def weight(self) -> float:
        """Σ wₖ of the updates that count, before any limit."""
        return self._others.weight + self.heaviest_weight

    def add(self, stack: Parameters, weights: Sequence[float]) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are refused."""
        device = next(iter(stack.values())).device
        rows = torch.tensor(weights, dtype=torch.float32, device=device)
        counted = _representable_rows(stack, rows)
        for row in _places(counted & (rows > 0)):
            one, weight = {n: v[row : row + 1] for n, v in stack.items()}, weights[row]
            self.updates += 1
            if weight > self.heaviest_weight:
                # A copy: the row alone, not the stack that it is in.
                held = {name: values.clone() for name, values in one.items()}
                one, self._heaviest = self._heaviest, held
                weight, self.heaviest_weight = self.heaviest_weight, float(weight)
            if one:
                self._others.add(one, [weight])
        return _places(~counted)

    def result(self) -> Parameters:
        """Return the mean; ValueError if nothing of any weight was added."""
        if not self.updates:
            raise ValueError(_NOTHING)
        weight, others = self.heaviest_weight, self._others
        if self.updates > 2:
            # w / (w + others) ≤ share
            weight = min(
                weight, others.weight * self.most_share / (1 - self.most_share)
            )
        parts, _ = _weighted_sum(self._heaviest, [weight])
        if not others.weight:
            return {name: (part / weight).float() for name, part in parts.items()}
        total = weight + others.weight
        return {
            name: ((others.sum_of(name) + p) / total).float()
            for name, p in parts.items()
        }

    def heaviest_of(self, name: str) -> Tensor:
        """Return one parameter of the heaviest update, in double precision."""
        return self._heaviest[name][0].double()

    def sum_of(self, name: str) -> Tensor:
        """Return Σ wₖ·θₖ of one parameter, before any limit, in double precision."""
        held = self.heaviest_weight * self.heaviest_of(name)
        return held + self._others.sum_of(name) if self._others.weight else held


class _Sorted:
    """Mean of the middle values of each coordinate; every learner counts the same.

    Holds all updates, the memory of K models; making the result takes twice the
    largest parameter of all K in addition.
    """

    def __init__(self, share: float) -> None:
        self.weight = 0.0
        self._share = share  # of the updates, dropped at either end
        self._stacks: list[Parameters] = []

    def add(self, stack: Parameters, weights: Sequence[float]) -> list[int]:
        """Keep one update per row of ``stack``; return the rows that are not finite.

        Those are left out, and so are rows of weight 0, which are not returned: a
        learner that trained nothing has no vote. Otherwise weights do not matter.
        """
        finite = _finite_rows(stack)
        rows = torch.tensor(weights, dtype=torch.float64, device=finite.device)
        counted = finite & (rows > 0)
        if counted.any():
            self._stacks.append({n: values[counted] for n, values in stack.items()})
            self.weight += float(rows[counted].sum())
        return _places(~finite)

    def result(self) -> Parameters:
        """Return the aggregate; ValueError if nothing of any weight was added."""
        if not self._stacks:
            raise ValueError(_NOTHING)
        return {name: self._middle(name) for name in self._stacks[0]}

    def _middle(self, name: str) -> Tensor:
        together = torch.cat([stack[name] for stack in self._stacks]).float()
        values = together.cpu().numpy()
        updates = len(values)
        values = np.sort(values, axis=0)  # many times faster than torch's
        # In binary 0.29·100 is just below 29, the number that was meant. One or two in
        # the middle always stay.
        cut = min(math.floor(self._share * updates + 1e-9), (updates - 1) // 2)
        middle = values[cut : updates - cut].mean(axis=0, dtype=np.float64)
        merged = torch.from_numpy(np.asarray(middle, dtype=np.float32))
        return merged.to(together.device)


class CoordinateMedian(_Sorted):
    """Median of each coordinate over the learners, unweighted; holds K models.

    With an even number of learners, the mean of the two in the middle.
    """

    def __init__(self) -> None:
        super().__init__(share=0.5)


class TrimmedMean(_Sorted):
    """Mean of each coordinate without its extremes, unweighted; holds K models.

    Drops the ⌊trim·K⌋ smallest and as many of the largest. Raises ConfigError unless
    0 ≤ ``trim`` < 0.5.
    """

    def __init__(self, trim: float) -> None:
        if not 0 <= trim < 0.5:
            raise ConfigError(f"trim is {trim}: give a share from 0 to below 0.5")
        super().__init__(trim)


def clip(
    stack: Parameters, before: Parameters, most: float
) -> tuple[Parameters, list[int]]:
    """Shorten updates longer than ``most``; return the stack and the shortened rows.

    The distance is Euclidean, over all parameters together:

        θₖ ← before + min(1, most / ‖Δₖ‖)·Δₖ,   Δₖ = θₖ − before

    Shorter ones are returned bit for bit. Rows that are not finite are left for ``add``
    to refuse. Raises ConfigError unless ``most`` is finite and above 0.
    """
    if not 0 < most < math.inf:
        raise ConfigError(f"updates clipped to {most}: give a finite number above 0")
    squares = [_moves(v, before[name]).square().sum(1) for name, v in stack.items()]
    norms = torch.stack(squares).sum(dim=0).sqrt()
    far = (norms > most) & norms.isfinite()
    if not far.any():
        return stack, []
    scales = most / norms[far]
    clipped = {}
    for name, values in stack.items():
        start = before[name]
        moves = _moves(values[far], start) * scales[:, None]
        back = start.double() + moves.view(-1, *start.shape)
        clipped[name] = values.clone()
        clipped[name][far] = back.to(values.dtype)
    return clipped, _places(far)


def _moves(values: Tensor, before: Tensor) -> Tensor:
    """Each row's update Δₖ; in double precision, so that no square overflows."""
    return (values.double() - before.double()).flatten(1)


def _weighted_sum(
    stack: Parameters,
    weights: Sequence[float],
    precision: torch.dtype = torch.float32,
) -> tuple[Parameters, Tensor]:
    device = next(iter(stack.values())).device
    rows = torch.tensor(weights, dtype=precision, device=device)
    parts = {
        name: (rows @ values.flatten(1).to(precision)).view(values.shape[1:]).double()
        for name, values in stack.items()
    }
    return parts, rows


def _finite_rows(stack: Parameters) -> Tensor:
    rows = [values.flatten(1).isfinite().all(dim=1) for values in stack.values()]
    return torch.stack(rows).all(dim=0)


def _representable_rows(stack: Parameters, weights: Tensor) -> Tensor:
    """Return which rows are finite, and still are once weighted in float32."""
    most, scales = torch.finfo(torch.float32).max, weights.double()[:, None]
    rows = [
        ((values.flatten(1).double() * scales).abs() <= most).all(dim=1)
        for values in stack.values()
    ]
    return torch.stack(rows).all(dim=0)


def _places(rows: Tensor) -> list[int]:
    return rows.nonzero().flatten().tolist()
