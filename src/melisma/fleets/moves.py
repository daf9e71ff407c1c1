"""The crew of a fog: moves of data given slot by slot, and what devices did of them.

The protocol is the same for simulated and real devices: start a cycle, carry out its
slots, collect the models.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from melisma.fleets.protocols import Crew, Lost, Updates
from melisma.learning.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What one device is to do in one slot, in samples."""

    skipped: int = 0  #: of its own data, collected in earlier slots
    collected: int = 0  #: in this slot
    kept: int = 0  #: of the collected, to train on at once
    sent: Mapping[str, int] = field(default_factory=dict)  #: of the collected, to each
    arrived: Mapping[str, int] = field(default_factory=dict)  #: in the slot before

    @property
    def discarded(self) -> int:
        """Samples that no device trains on."""
        return self.collected - self.kept - sum(self.sent.values())

    @property
    def due(self) -> int:
        """Samples to train on in this slot."""
        return self.kept + sum(self.arrived.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a device did in a slot, in samples."""

    trained: int
    delivered: Mapping[str, int]  #: to each; it trains on the rest in the next slot


class Moves(Crew, Protocol):
    """A crew that collects data slot by slot, and moves it."""

    async def start(
        self, parameters: Parameters, slot: int, deadline_s: float
    ) -> list[Lost]:
        """Have all devices begin a cycle with this model; return those that fail."""

    async def slot(
        self, number: int, moves: Mapping[str, Move], slot_s: float
    ) -> dict[str, Done | Lost]:
        """Have a slot's moves carried out; return when the slot is over."""

    def turnover(self) -> tuple[list[str], list[Lost]]:
        """Return who came since the last slot and has the model, and who left."""

    def finish(self, deadline_s: float) -> AsyncIterator[Updates | Lost]:
        """Yield the models of devices that trained in this cycle."""
