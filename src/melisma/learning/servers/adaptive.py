"""Adaptive server optimisers (FedOpt): θ ← θ + η·m/(√v + ε), m ← β·m + (1 − β)·Δ.

Paper: S. Reddi et al., "Adaptive Federated Optimization", arXiv:2003.00295, Algorithm
2; m begins at 0 and v at ε², without a correction for either, as printed.
"""

from abc import abstractmethod

from torch import Tensor

from melisma.learning.servers.moments import Moments


class Adaptive(Moments):
    """Steps that are shorter where changes have been large."""

    def __init__(
        self, rate: float, momentum: float, beta2: float, epsilon: float
    ) -> None:
        super().__init__(mean=0.0, square=epsilon**2)
        self._rate, self._momentum = rate, momentum
        self.beta2, self._epsilon = beta2, epsilon

    @abstractmethod
    def renew(self, squares: Tensor, square: Tensor) -> None:
        """Change v in place, by Δ²."""

    def move(self, name: str, change: Tensor) -> Tensor:
        """Move by the mean change over the root of the squares."""
        mean = self.renewed("mean", name, change)
        mean.mul_(self._momentum).add_(change, alpha=1 - self._momentum)
        squares = self.renewed("square", name, change)
        self.renew(squares, change.square())
        return self._rate * mean / (squares.sqrt() + self._epsilon)
