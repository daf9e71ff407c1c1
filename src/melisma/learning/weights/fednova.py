"""FedNova: changes averaged by direction, then as long as they are on average.

Where learners take unequal numbers of steps τₖ, the mean of their changes leads to the
optimum of another objective, in which learner k counts τₖ times as much. So

    θ ← θ + (Σ pₖ·‖aₖ‖) · Σ pₖ·Δₖ/‖aₖ‖,    pₖ = nₖ/n

‖aₖ‖ being how far τₖ steps lead along a gradient that stays the same, over the rate: τₖ
under plain SGD, more with momentum, less with a proximal term.

Paper: J. Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", arXiv:2007.07481.

Differences from the paper:
1. ‖aₖ‖ is counted out step by step, for any momentum (Nesterov's, dampened) and a
   proximal term at once; the paper has closed forms for one of them at a time.
2. Of optimisers but SGD it is τₖ.
"""

from melisma.learning.settings import Training
from melisma.learning.training import Trained


class FedNova:
    """wₖ = nₖ, of changes per step."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._lengths, self._velocity = [0.0], 0.0

    def weight(self, report: Trained, own: int) -> float:
        """Return the samples that the learner has."""
        return float(own) if report.samples else 0.0

    def length(self, report: Trained) -> float:
        """Return ‖a‖ of as many steps as the learner took."""
        while len(self._lengths) <= report.batches:
            self._lengths.append(self._lengths[-1] + self._step())
        return self._lengths[report.batches] or 1.0

    def _step(self) -> float:
        """Return the length of the next step along a gradient of 1, over the rate."""
        training, arguments = self._training, self._training.arguments
        if training.optimiser.lower() != "sgd":
            return 1.0
        momentum, dampening = (
            float(arguments.get(key, 0.0))  # type: ignore[arg-type]
            for key in ("momentum", "dampening")
        )
        # The pull back to the start: μ·(w − w⁰) = −μ·rate·‖a‖
        gradient = 1.0 - training.proximal * training.rate * self._lengths[-1]
        if not momentum:
            return gradient
        first = len(self._lengths) == 1
        share = 1.0 if first else 1.0 - dampening
        self._velocity = momentum * self._velocity + share * gradient
        if arguments.get("nesterov"):
            return gradient + momentum * self._velocity
        return self._velocity
