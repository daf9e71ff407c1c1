"""What a rule of asynchronous training is given, and what most rules do alike."""

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from melisma.fleets.protocols import Report
from melisma.learning.parameters import Parameters


class Arrived(NamedTuple):
    """An update, and what it started from."""

    parameters: Parameters
    start: Parameters
    age: int  #: versions of the model since its order
    report: Report
    learner: str
    time_s: float  #: at which it came
    whole: int  #: batches of all its learner's work

    def change(self) -> Parameters:
        """Return how far it went."""
        return {n: t - self.start[n] for n, t in self.parameters.items()}


class AtOnce:
    """A rule that has everybody go on at once with all of its work.

    It takes each update by itself, and keeps nothing.
    """

    @property
    def due_s(self) -> float:
        """Never."""
        return math.inf

    def begin(self, learners: Collection[str]) -> None:
        """Take note of who is at work in a cycle."""

    def due(self, model: Parameters) -> Parameters | None:
        """Return the next model at ``due_s``, None if there is none."""
        return None

    def lost(self, learner: str, time_s: float) -> None:
        """Take note of an order of which nothing comes."""

    def holds(self, learner: str) -> bool:
        """Return whether a learner is to wait for its next order."""
        return False

    def freed(self) -> Iterable[str]:
        """Return those who have waited, and are to go on."""
        return ()

    def batches(self, learner: str, whole: int) -> int:
        """Return the batches of a learner's next order, of so many."""
        return whole

    def state(self) -> Parameters:
        """No state."""
        return {}

    def restore(self, saved: Parameters) -> None:
        """No state."""
