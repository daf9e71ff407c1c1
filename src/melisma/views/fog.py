"""Totals of a fog's data movement and its costs: by slot, by device, by link.

Pure functions from rows to figures; nothing here draws or writes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from melisma.runs.records import Moved

Key = TypeVar("Key", int, str)

#: Samples from one device to another.
Sent = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Samples by what was done with them, and the costs."""

    collected: int
    trained: int  #: own ones, and others that had arrived
    sent: int
    arrived: int
    discarded: int
    process_cost: float
    transfer_cost: float
    error_cost: float

    @property
    def kept(self) -> int:
        """Samples that stay where they were collected."""
        return self.collected - self.sent - self.discarded

    @property
    def cost(self) -> float:
        """All costs together."""
        return self.process_cost + self.transfer_cost + self.error_cost

    def per_sample(self, amount: float) -> float | None:
        """Return ``amount`` per sample collected; None if none was collected."""
        return amount / self.collected if self.collected else None


def total(moved: Sequence[Moved]) -> Totals:
    """Return the totals over all rows."""
    return Totals(
        collected=sum(row.collected for row in moved),
        trained=sum(row.trained for row in moved),
        sent=sum(sum(row.sent.values()) for row in moved),
        arrived=sum(row.arrived for row in moved),
        discarded=sum(row.discarded for row in moved),
        process_cost=sum(row.process_cost for row in moved),
        transfer_cost=sum(row.transfer_cost for row in moved),
        error_cost=sum(row.error_cost for row in moved),
    )


def by_slot(moved: Iterable[Moved]) -> dict[int, Totals]:
    """Return the totals of each slot."""
    return _grouped(moved, lambda row: row.slot)


def by_cycle(moved: Iterable[Moved]) -> dict[int, Totals]:
    """Return the totals of each cycle; what its last slot sends is trained later."""
    return _grouped(moved, lambda row: row.cycle)


def by_device(moved: Iterable[Moved]) -> dict[str, Totals]:
    """Return the totals of each device, in the order of their first rows."""
    return _grouped(moved, lambda row: row.learner)


def _grouped(moved: Iterable[Moved], key: Callable[[Moved], Key]) -> dict[Key, Totals]:
    groups: dict[Key, list[Moved]] = {}
    for row in moved:
        groups.setdefault(key(row), []).append(row)
    return {name: total(group) for name, group in groups.items()}


def flows(moved: Iterable[Moved]) -> Sent:
    """Return how many samples went over each link, as (sender, receiver)."""
    sent: Sent = Counter()
    for row in moved:
        for receiver, samples in row.sent.items():
            if samples:
                sent[row.learner, receiver] += samples
    return sent
