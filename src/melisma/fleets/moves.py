"""What devices of a fog are told to do with data in a slot, and what they did.

The fog's cycle cannot tell simulated devices from real ones: it begins a cycle, gives
out moves slot by slot, and waits for the models.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from melisma.fleets.protocols import Crew, Lost, Updates
from melisma.learning.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One device in one slot, in samples."""

    skipped: int = 0  #: of its own data, collected in earlier slots
    collected: int = 0  #: now
    kept: int = 0  #: of those, to train on at once
    sent: Mapping[str, int] = field(default_factory=dict)  #: of those, to whom
    arrived: Mapping[str, int] = field(default_factory=dict)  #: since then, from whom

    @property
    def discarded(self) -> int:
        """Samples that nobody trains on."""
        return self.collected - self.kept - sum(self.sent.values())

    @property
    def due(self) -> int:
        """Samples to train on in this slot."""
        return self.kept + sum(self.arrived.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a device did in a slot, in samples."""

    trained: int
    delivered: Mapping[str, int]  #: to whom; what was not is its own in the next slot


class Moves(Crew, Protocol):
    """A crew that collects data slot by slot, and moves it."""

    async def start(
        self, parameters: Parameters, slot: int, deadline_s: float
    ) -> list[Lost]:
        """Have everybody begin a cycle with this model; return who does not."""

    async def slot(
        self, number: int, moves: Mapping[str, Move], slot_s: float
    ) -> dict[str, Done | Lost]:
        """Have a slot's moves carried out; returns when it is over."""

    def finish(self, deadline_s: float) -> AsyncIterator[Updates | Lost]:
        """Yield the models of those who trained in this cycle."""
