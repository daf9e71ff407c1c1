"""FedBuff: changes are gathered in a buffer, and the model moves when it is full.

    Δ = 1/K · Σ s(ageₖ)·(θₖ − θ⁰ₖ),   s(age) = 1/√(1 + age)
    θ ← θ + the server's step along Δ

Paper: J. Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation",
arXiv:2106.06639.
"""

from collections.abc import Collection

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.aggregation import of_age
from melisma.learning.parameters import Parameters, zeros_like
from melisma.learning.servers import Server


class FedBuff(AtOnce):
    """The buffer of a cycle."""

    def __init__(self, server: Server, moving: Collection[str]) -> None:
        self._server, self._moving = server, moving
        self._sum: Parameters = {}
        self._number = 0

    def weight(self, age: int) -> float:
        """Return s."""
        return of_age(age)

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Add a change to the buffer."""
        self._sum = self._sum or zeros_like(model)
        scale, self._number = self.weight(update.age), self._number + 1
        for n, total in self._sum.items():
            total.add_(update.parameters[n] - update.start[n], alpha=scale)
        return None

    def end(self, model: Parameters) -> Parameters | None:
        """Move along the mean, and empty the buffer."""
        if not self._number:
            return None
        mean = {n: t + self._sum[n] / self._number for n, t in model.items()}
        self._sum, self._number = {}, 0
        return self._server.step(model, mean, self._moving)

    def state(self) -> Parameters:
        """Return the server's moments; between cycles the buffer is empty."""
        return self._server.state()

    def restore(self, saved: Parameters) -> None:
        """Restore them."""
        self._server.restore(saved)
