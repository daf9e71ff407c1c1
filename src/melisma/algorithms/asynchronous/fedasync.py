"""FedAsync: every update is mixed into the model at once, the less the older it is.

    θ ← (1 − α·s)·θ + α·s·θₖ,    s = (1 + age)^−a

Paper: C. Xie, S. Koyejo, I. Gupta, "Asynchronous Federated Optimization",
arXiv:1903.03934 (polynomial weights; α = 0.6, a = 0.5).
"""

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.parameters import Parameters


class FedAsync(AtOnce):
    """Mixes updates in."""

    def __init__(self, mixing: float, exponent: float) -> None:
        self._mixing, self._exponent = mixing, exponent

    def weight(self, age: int) -> float:
        """Return α·s."""
        return float(self._mixing * (1 + age) ** -self._exponent)

    def arrive(self, model: Parameters, update: Arrived) -> Parameters:
        """Return the mixture."""
        share = self.weight(update.age)
        return {
            n: (1 - share) * value + share * update.parameters[n]
            for n, value in model.items()
        }
