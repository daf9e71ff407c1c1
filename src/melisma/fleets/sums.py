"""What workers of coded training are given, and what they answer.

The coded cycle cannot tell workers on a virtual clock from real ones: a session is
given work and asked for the next answer.
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
        """Whether it is just a sum, which float32 carries without harm."""
        return bool((self.coefficients == 1.0).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What a worker sent, in seconds since the cycle began."""

    work: Work
    downloaded_s: float
    trained_s: float
    after_s: float


class Session(Protocol):
    """One cycle of a crew of workers."""

    lost: list[Lost]  #: workers who failed so far

    def give(self, works: Sequence[Work]) -> None:
        """Have work done, from now on."""

    async def next(self, until_s: float) -> Answer | None:
        """Return the next answer; None if there is none until then, or will be."""

    async def total(self, answers: Sequence[Answer], weights: Floats) -> Floats:
        """Return Σ weight · answer."""

    def end(self) -> None:
        """Need no more answers; the crew's clock stands where the last one came."""


class Sums(Crew, Protocol):
    """A crew that answers with coded sums of gradients."""

    def session(self, parameters: Parameters, deadline_s: float) -> Session:
        """Begin a cycle."""
