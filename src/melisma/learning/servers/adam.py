"""FedAdam: v ← β₂·v + (1 − β₂)·Δ² (`servers.adaptive` has the paper and the step)."""

from torch import Tensor

from melisma.learning.servers.adaptive import Adaptive


class Adam(Adaptive):
    """Squares fade."""

    def renew(self, squares: Tensor, square: Tensor) -> None:
        """Average Δ² in."""
        squares.mul_(self.beta2).add_(square, alpha=1 - self.beta2)
