"""The crew of coded training: work given to a session, answers taken from it.

The protocol is the same for workers on a virtual clock and for real ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from melisma.fleets.protocols import Crew, Lost
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """One worker's part: Σ coefficient · gradient over parts of the data."""

    worker: int  #: its place in the crew
    parts: list[Ints]  #: rows of each part
    coefficients: Floats

    @property
    def samples(self) -> int:
        """Samples to go through."""
        return sum(len(rows) for rows in self.parts)

    @property
    def plain(self) -> bool:
        """Whether all coefficients are 1: float32 is then precise enough to send."""
        return bool((self.coefficients == 1.0).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """When a worker had answered, in seconds since the cycle began."""

    work: Work
    downloaded_s: float
    trained_s: float
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What became of one worker's battery and queues in a cycle."""

    worker: int
    battery_j: float  #: at the end
    lowest_j: float
    harvested_j: float
    stored_j: float  #: of what was harvested
    computing_j: float  #: spent
    sending_j: float  #: spent
    waited_s: float  #: an answer, for a channel or for energy
    waiting: float  #: answers at most
    owed: float  #: answers at most, by the fair scheduler


class Session(Protocol):
    """One cycle of a crew of workers."""

    lost: list[Lost]  #: workers that failed so far

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if none comes until then, or none is due."""

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Return Σ weight · answer."""

    def end(self) -> None:
        """Cancel what is under way; the crew's clock stands at the last answer."""

    def energy(self) -> Sequence[Energy]:
        """Return the account of each worker that has a battery, after the end."""


class Sums(Crew, Protocol):
    """A crew that answers with coded sums of gradients."""

    def session(self, parameters: Parameters, deadline_s: float) -> Session:
        """Begin a cycle."""
