"""Server SGD with momentum (FedAvgM): v ← β·v + Δ, θ ← θ + η·v.

Paper: T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the Effects of Non-Identical Data
Distribution for Federated Visual Classification", arXiv:1909.06335.
"""

from collections.abc import Collection

from torch import Tensor

from melisma.learning.parameters import Parameters
from melisma.learning.servers.moments import Moments


class Momentum(Moments):
    """Without momentum and at a rate of 1, the mean bit for bit."""

    def __init__(self, rate: float, momentum: float) -> None:
        super().__init__(velocity=0.0)
        self._rate, self._momentum = rate, momentum

    def step(
        self, model: Parameters, mean: Parameters, moving: Collection[str]
    ) -> Parameters:
        """Return the next model."""
        if self._rate == 1 and not self._momentum:
            return mean
        return super().step(model, mean, moving)

    def move(self, name: str, change: Tensor) -> Tensor:
        """Move by the velocity."""
        if not self._momentum:
            return self._rate * change
        velocity = self.renewed("velocity", name, change)
        return self._rate * velocity.mul_(self._momentum).add_(change)
