"""What each update counts in the mean of a cycle.

    samples    by the samples that it was trained on
    data       by the samples that lie on its learner, however many it has trained on
    learners   the same for every learner
    fednova    by data, and by step: what differs in length is averaged in direction

Which is right depends on the data. Where all learners draw from the same, each sample
tells as much as any other: by samples the mean has the least noise. Where data lies on
learners and differs, the model is to fit Σ nₖ·Fₖ / Σ nₖ, and weights by samples fit the
data of fast devices instead, since those train on more: then `data` is right, or
`learners` where a learner with little data is to be served as well as one with much.
"""

from typing import Protocol

from melisma.learning.settings import Training, Weights
from melisma.learning.training import Trained
from melisma.learning.weights.data import ByData
from melisma.learning.weights.fednova import FedNova
from melisma.learning.weights.learners import ByLearners
from melisma.learning.weights.samples import BySamples


class Weighting(Protocol):
    """Says what updates count."""

    def weight(self, report: Trained, own: int) -> float:
        """Weight of an update; ``own``: samples that lie on its learner."""

    def length(self, report: Trained) -> float:
        """By which its change is divided before the mean, whose own is the mean's."""


def weighting(weights: Weights, training: Training) -> Weighting:
    """Return the weighting of a cycle; ``training`` is how its learners train."""
    match weights:
        case Weights.SAMPLES:
            return BySamples()
        case Weights.DATA:
            return ByData()
        case Weights.LEARNERS:
            return ByLearners()
        case Weights.FEDNOVA:
            return FedNova(training)
