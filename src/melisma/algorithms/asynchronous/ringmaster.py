"""Ringmaster ASGD: every change is applied at once, unless it is too old.

    θ ← θ + η·(θₖ − θ⁰ₖ)    if age < R

Where all learners draw from the same data, and R is about σ²/ε or one, no asynchronous
method takes less time; an update that is older would lead back. So the bound is the
run's ``staleness_at_most``, R − 1.

Paper: A. Maranjyan, A. Tyurin, P. Richtárik, "Ringmaster ASGD: The First Asynchronous
SGD with Optimal Time Complexity", arXiv:2501.16168.

Differences from the paper:
1. A change of several local steps in place of one gradient.
2. Who works on a model that has become too old is not stopped, and its update does not
   count (the paper's Algorithm 4; its Algorithm 5 stops it).
"""

from melisma.algorithms.asynchronous.arrived import Arrived, AtOnce
from melisma.learning.parameters import Parameters


class Ringmaster(AtOnce):
    """Adds changes."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def weight(self, age: int) -> float:
        """Return the rate, whatever the age."""
        return self._rate

    def arrive(self, model: Parameters, update: Arrived) -> Parameters:
        """Return the model with the change."""
        return {
            n: value + self._rate * (update.parameters[n] - update.start[n])
            for n, value in model.items()
        }
