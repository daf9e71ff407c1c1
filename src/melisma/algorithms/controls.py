"""SCAFFOLD: gradients corrected by how a learner's own differ from everybody's.

On data of its own, a learner's steps lead to its own optimum. Its control cₖ is the
mean gradient of its last work, c the mean of all cₖ, and each of its steps takes

    w ← w − η·(∇Fₖ(w) + c − cₖ)

as if it knew the others' data. After K steps from x to y

    cₖ ← (x − y)/(η·K) − (c − cₖ)        the mean of the gradients themselves

Paper: S. P. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning", arXiv:1910.06378, option II.

Differences from the paper:
1. The orchestrator keeps all controls, since it can compute them from updates: a
   learner downloads c − cₖ beside the model, and uploads its model alone. A device
   that restarts has lost nothing. It takes the memory of a model for every learner.
2. With momentum, K is how far K steps lead along a constant gradient (as in FedNova).
3. In live runs a control is no longer than `MOST` times the median one: a learner that
   lies would otherwise lead all others astray.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from melisma.fleets.protocols import Order, Updates
from melisma.learning.parameters import (
    Parameters,
    norm_of,
    packed,
    unpacked,
    zeros_like,
)
from melisma.learning.settings import Training
from melisma.learning.weights.fednova import FedNova

#: Before the name of a learner in a checkpoint.
PREFIX = "control:"


#: Of real learners' controls: how many times as long as the median one, at most.
MOST = 5.0


class Controls:
    """The controls of all learners; ``most`` limits their lengths."""

    def __init__(self, most: float | None = None) -> None:
        self._most = most
        self._own: dict[str, Parameters] = {}
        self._given: dict[str, Parameters] = {}  # corrections of this cycle

    def corrected(self, orders: Sequence[Order], names: Sequence[str]) -> list[Order]:
        """Return orders with their learners' corrections; ``names`` are all learners.

        There are none before the first updates.
        """
        self._given = {}
        if not self._own:
            return list(orders)
        if self._most is not None:
            self._own = limited(self._own, self._most)
        whole = zeros_like(next(iter(self._own.values())))
        # In an order that a resumed run has too: sums round.
        for _, own in sorted(self._own.items()):
            for n, value in own.items():
                whole[n] += value / max(len(names), len(self._own))
        nothing = zeros_like(whole)
        for order in orders:
            if order.samples:
                own = self._own.get(names[order.learner], nothing)
                self._given[names[order.learner]] = {
                    n: value - own[n] for n, value in whole.items()
                }
        return [
            replace(order, correction=self._given.get(names[order.learner]))
            for order in orders
        ]

    def see(
        self,
        names: Sequence[str],
        updates: Updates,
        refused: Sequence[int],
        before: Parameters,
        training: Training,
    ) -> None:
        """Renew the controls of learners whose updates count."""
        lengths = FedNova(training)
        for row, report in enumerate(updates.reports):
            if row in refused or not report.samples:
                continue
            name, scale = names[report.learner], training.rate * lengths.length(report)
            given = self._given.get(name, {})
            # (x − y)/(η·K) − h
            self._own[name] = {
                n: (before[n] - rows[row]) / scale - given.get(n, 0.0)
                for n, rows in updates.parameters.items()
            }

    def state(self) -> Parameters:
        """Return them for a checkpoint."""
        return packed(PREFIX, self._own)

    def restore(self, saved: Parameters) -> None:
        """Go on with those of a checkpoint."""
        self._own = unpacked(PREFIX, saved)


def limited(owned: Mapping[str, Parameters], most: float) -> dict[str, Parameters]:
    """Return controls, none of them longer than so many times the median."""
    norms = {name: norm_of(own) for name, own in owned.items()}
    longest = most * median(norms.values())
    return {
        name: own
        if norms[name] <= longest
        else {n: tensor * (longest / norms[name]) for n, tensor in own.items()}
        for name, own in owned.items()
    }
