"""What a rule of asynchronous training is given."""

from typing import NamedTuple

from melisma.fleets.protocols import Report
from melisma.learning.parameters import Parameters


class Arrived(NamedTuple):
    """An update, and what it started from."""

    parameters: Parameters
    start: Parameters
    age: int  #: versions of the model since its order
    report: Report


class Stateless:
    """A rule that takes each update by itself, and keeps nothing."""

    def end(self, model: Parameters) -> Parameters | None:
        """No model but those that were made as updates came."""
        return None

    def state(self) -> Parameters:
        """No state."""
        return {}

    def restore(self, saved: Parameters) -> None:
        """No state."""
