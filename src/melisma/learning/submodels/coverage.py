"""Aggregating by coverage: an entry is the mean of those who trained it.

    θᵢ ← Σ wₖ·θₖᵢ / Σ wₖ        over the learners k whose part has entry i

Who did not train an entry does not count there, and what nobody trained stays as it is.
Where everybody trains everything, this is the weighted mean, bit for bit.

Paper: E. Diao, J. Ding, V. Tarokh, "HeteroFL: Computation and Communication Efficient
Federated Learning for Heterogeneous Clients", arXiv:2010.01264, whose means are of
equal weights.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from melisma.learning.aggregation import Aggregate, WeightedMean
from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part

#: Values by the part of who has them; None: of who trains everything.
ByPart = Mapping[Part | None, float]


class CoveredMean:
    """The mean of updates, each of some part of the model ``before``.

    ``make`` returns what aggregates updates of everything; only a weighted mean can
    have parts beside it. Updates of a part are summed as they are, in its own size.
    """

    def __init__(self, before: Parameters, make: Callable[[], Aggregate]) -> None:
        self._before, self._make = before, make
        self._whole: Aggregate = make()
        self._parts: dict[Part, WeightedMean] = {}

    def add(
        self, stack: Parameters, weights: Sequence[float], part: Part | None = None
    ) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are refused."""
        if part is None:
            return self._whole.add(stack, weights)
        if not isinstance(self._whole, WeightedMean):
            raise TypeError("parts of a model can only be averaged")
        return self._parts.setdefault(part, WeightedMean()).add(stack, weights)

    def result(self) -> Parameters:
        """Return the mean; ValueError if nothing of any weight was added."""
        if not self._parts:
            return self._whole.result()
        assert isinstance(self._whole, WeightedMean)
        if not sum(self._weights().values()) > 0:
            return self._whole.result()  # which says so
        sums = _zeros(self._before)
        if self._whole.weight:
            for name, values in sums.items():
                values += self._whole.sum_of(name)
        for part, mean in self._parts.items():
            part.add({name: mean.sum_of(name) for name in part.up}, sums)
        weights = by_entry(self._weights(), self._before)
        return {
            name: torch.where(weights[name] > 0, s / weights[name], before).float()
            for (name, s), before in zip(
                sums.items(), self._before.values(), strict=True
            )
        }

    def settled(self, after: Parameters) -> Parameters:
        """Return a model in which what nobody trained is as it was before.

        A server's moments would move it on.
        """
        if not self._parts:
            return after
        weights = by_entry(self._weights(), self._before)
        return {
            name: torch.where(weights[name] > 0, value, self._before[name].to(value))
            for name, value in after.items()
        }

    def _weights(self) -> ByPart:
        weights: dict[Part | None, float] = {None: self._whole.weight}
        return weights | {part: mean.weight for part, mean in self._parts.items()}


def by_entry(values: ByPart, like: Parameters) -> Parameters:
    """Return for each entry the sum of the values of all parts that have it."""
    sums = _zeros(like)
    for part, value in values.items():
        if part is None:
            for total in sums.values():
                total += value
        else:
            part.add(dict.fromkeys(part.up, value), sums)
    return sums


def mean_by_entry(
    sums: ByPart, weights: ByPart, like: Parameters
) -> Mapping[str, Tensor | float]:
    """Return for each entry the mean over all parts that have it; 1 where none has.

    Without parts it is one number.
    """
    if weights.keys() == {None}:
        return dict.fromkeys(like, sums[None] / weights[None])
    totals, shares = by_entry(sums, like), by_entry(weights, like)
    return {n: torch.where(w > 0, totals[n] / w, 1.0) for n, w in shares.items()}


def _zeros(like: Parameters) -> dict[str, Tensor]:
    return {n: torch.zeros_like(t, dtype=torch.float64) for n, t in like.items()}
