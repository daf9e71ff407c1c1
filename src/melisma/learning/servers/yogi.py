"""FedYogi: v ← v − (1 − β₂)·Δ²·sign(v − Δ²).

Squares fade no faster than they grow, so that a small change does not make the next
steps large (`servers.adaptive` has the paper and the step).
"""

from torch import Tensor

from melisma.learning.servers.adaptive import Adaptive


class Yogi(Adaptive):
    """Squares move by Δ² towards it."""

    def renew(self, squares: Tensor, square: Tensor) -> None:
        """Move towards Δ²."""
        squares.sub_((1 - self.beta2) * square * (squares - square).sign())
