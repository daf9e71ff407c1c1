"""FedBuff: changes are gathered in a buffer, and the model moves when it is full.

    Δ = 1/K · Σ s(ageₖ)·(θₖ − θ⁰ₖ),   s(age) = 1/√(1 + age)
    θ ← θ + the server's step along Δ

Paper: J. Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation",
arXiv:2106.06639.
"""

from collections.abc import Collection

import numpy as np

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.aggregation import of_age
from melisma.learning.parameters import (
    Parameters,
    from_arrays,
    packed,
    unpacked,
    zeros_like,
)
from melisma.learning.servers import Server

#: Of the buffer in a checkpoint.
PREFIX, BUFFER, NUMBER = "buffer:", "sum", "number"


class FedBuff(AtOnce):
    """A buffer of so many changes."""

    def __init__(self, server: Server, moving: Collection[str], size: int) -> None:
        self._server, self._moving, self._size = server, moving, size
        self._sum: Parameters = {}
        self._number = 0

    def weight(self, age: int) -> float:
        """Return s."""
        return of_age(age)

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Add a change to the buffer; once it is full, move and empty it."""
        self._sum = self._sum or zeros_like(model)
        scale, self._number = self.weight(update.age), self._number + 1
        for n, total in self._sum.items():
            total.add_(update.parameters[n] - update.start[n], alpha=scale)
        if self._number < self._size:
            return None
        mean = {n: t + self._sum[n] / self._number for n, t in model.items()}
        self._sum, self._number = {}, 0
        return self._server.step(model, mean, self._moving)

    def state(self) -> Parameters:
        """Return the server's moments, and what is in the buffer."""
        number = from_arrays({NUMBER: np.array(self._number)})
        sums = {n: t.clone() for n, t in self._sum.items()}
        held = packed(PREFIX, {BUFFER: number | sums} if self._number else {})
        return self._server.state() | held

    def restore(self, saved: Parameters) -> None:
        """Restore them."""
        self._server.restore(saved)
        self._sum = unpacked(PREFIX, saved).get(BUFFER, {})
        self._number = int(self._sum.pop(NUMBER, 0))
