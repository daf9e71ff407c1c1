"""FedAdagrad: v ← v + Δ² (`servers.adaptive` has the paper and the step)."""

from torch import Tensor

from melisma.learning.servers.adaptive import Adaptive


class Adagrad(Adaptive):
    """All squares count the same."""

    def renew(self, squares: Tensor, square: Tensor) -> None:
        """Add Δ²."""
        squares.add_(square)
