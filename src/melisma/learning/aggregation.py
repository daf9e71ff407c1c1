"""Merging updates as they arrive."""

from collections.abc import Sequence

import torch
from torch import Tensor

from melisma.learning.parameters import Parameters


class WeightedMean:
    """Σ wₖ·θₖ / Σ wₖ over stacks of updates, in any order.

    Holds one sum in double precision, the memory of two models, however many learners
    there are (CSA, Eq. 15, with the samples really trained for dₖ).
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._sum: Parameters = {}

    def add(self, stack: Parameters, weights: Sequence[float]) -> list[int]:
        """Add one update per row of ``stack``; return the rows that are not finite.

        Those are left out: one learner's infinity must not become everybody's.
        """
        parts, rows = _weighted_sum(stack, weights)
        refused: list[int] = []
        if not all(bool(part.isfinite().all()) for part in parts.values()):
            finite = _finite_rows(stack)
            refused = (~finite).nonzero().flatten().tolist()
            stack = {name: values[finite] for name, values in stack.items()}
            parts, rows = _weighted_sum(stack, torch.tensor(weights)[finite].tolist())
        self.weight += float(rows.sum())
        for name, part in parts.items():
            self._sum[name] = self._sum[name].add_(part) if name in self._sum else part
        return refused

    def result(self) -> Parameters:
        """Return the mean; ValueError if nothing of any weight was added."""
        if not self.weight > 0:
            raise ValueError("no update with any weight was added")
        return {name: (s / self.weight).float() for name, s in self._sum.items()}


def _weighted_sum(
    stack: Parameters, weights: Sequence[float]
) -> tuple[Parameters, Tensor]:
    rows = torch.tensor(weights, dtype=torch.float32)
    parts = {
        name: (rows @ values.flatten(1)).view(values.shape[1:]).double()
        for name, values in stack.items()
    }
    return parts, rows


def _finite_rows(stack: Parameters) -> Tensor:
    rows = [values.flatten(1).isfinite().all(dim=1) for values in stack.values()]
    return torch.stack(rows).all(dim=0)
