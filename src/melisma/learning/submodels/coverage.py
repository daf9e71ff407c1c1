"""Aggregating by coverage: an entry is the mean of those who trained it.

    θᵢ ← Σ wₖ·θₖᵢ / Σ wₖ        over the learners k whose part has entry i

Who did not train an entry does not count there, and what nobody trained stays as it is.
Where everybody trains everything, this is the weighted mean, bit for bit. Where no
update may have more than a share of the weight, none has of any entry that three or
more have trained.

Paper: E. Diao, J. Ding, V. Tarokh, "HeteroFL: Computation and Communication Efficient
Federated Learning for Heterogeneous Clients", arXiv:2010.01264, whose means are of
equal weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from melisma.learning.aggregation import Aggregate, CappedMean, WeightedMean
from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part

#: Values by the part of who has them; None: of who trains everything.
ByPart = Mapping[Part | None, float]


class CoveredMean:
    """The mean of updates, each of some part of the model ``before``.

    ``make`` returns what aggregates updates of one part; only weighted means can stand
    beside one another. Updates of a part are summed as they are, in its own size.
    """

    def __init__(self, before: Parameters, make: Callable[[], Aggregate]) -> None:
        self._before, self._make = before, make
        self._whole: Aggregate = make()
        self._parts: dict[Part, WeightedMean | CappedMean] = {}

    def add(
        self, stack: Parameters, weights: Sequence[float], part: Part | None = None
    ) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are refused."""
        if part is None:
            return self._whole.add(stack, weights)
        if part not in self._parts:
            mean = self._make()
            if not isinstance(mean, WeightedMean | CappedMean):
                raise TypeError("parts of a model can only be averaged")
            self._parts[part] = mean
        return self._parts[part].add(stack, weights)

    def result(self) -> Parameters:
        """Return the mean; ValueError if nothing of any weight was added."""
        if not self._parts:
            return self._whole.result()
        if not sum(self._weights().values()) > 0:
            return self._whole.result()  # which says so
        sums, weights = _zeros(self._before), by_entry(self._weights(), self._before)
        for mean, name, at in self._entries():
            sums[name][at] += mean.sum_of(name)
        if isinstance(self._whole, CappedMean):
            self._limit(self._whole.most_share, sums, weights)
        return {
            name: torch.where(weights[name] > 0, s / weights[name], before).float()
            for (name, s), before in zip(
                sums.items(), self._before.values(), strict=True
            )
        }

    def _entries(self) -> Iterator[tuple[WeightedMean | CappedMean, str, Any]]:
        """Yield what was added, and of each parameter the entries that it is of."""
        assert isinstance(self._whole, WeightedMean | CappedMean)
        if self._whole.weight:
            yield from ((self._whole, name, ...) for name in self._before)
        for part, mean in self._parts.items():
            if mean.weight:
                yield from ((mean, name, part.at(name)) for name in part.up)

    def _limit(
        self, most_share: float, sums: dict[str, Tensor], weights: Parameters
    ) -> None:
        """Take away what the heaviest update of an entry has above its share.

        It is the heaviest of those of some part, each of which is held apart.
        """
        most, value, updates = (_zeros(self._before) for _ in range(3))
        for mean, name, at in self._entries():
            assert isinstance(mean, CappedMean)
            updates[name][at] += mean.updates
            heavier = mean.heaviest_weight > most[name][at]
            held = torch.where(heavier, mean.heaviest_of(name), value[name][at])
            value[name][at] = held
            most[name][at] = most[name][at].clamp(min=mean.heaviest_weight)
        for name, heaviest in most.items():
            # w / (w + others) ≤ share
            limit = (weights[name] - heaviest) * most_share / (1 - most_share)
            over = (heaviest - limit).clamp(min=0) * (updates[name] > 2)
            sums[name] -= over * value[name]
            weights[name] -= over

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


def by_entry(values: ByPart, like: Parameters) -> dict[str, Tensor]:
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
