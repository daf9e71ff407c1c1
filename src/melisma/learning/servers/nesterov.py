"""Server SGD with Nesterov's momentum, DiLoCo's outer step.

    v ← β·v + Δ,   θ ← θ + η·(Δ + β·v)

Paper: A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
Models", arXiv:2311.08105 (η = 0.7, β = 0.9).
"""

from torch import Tensor

from melisma.learning.servers.moments import Moments


class Nesterov(Moments):
    """A step ahead along the velocity."""

    def __init__(self, rate: float, momentum: float) -> None:
        super().__init__(velocity=0.0)
        self._rate, self._momentum = rate, momentum

    def move(self, name: str, change: Tensor) -> Tensor:
        """Move by the change and the velocity that it leads to."""
        velocity = self.renewed("velocity", name, change)
        velocity.mul_(self._momentum).add_(change)
        return self._rate * (change + self._momentum * velocity)
