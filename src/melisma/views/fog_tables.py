"""The totals of `views.fog` as tables that are updated record by record."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from melisma.runs.records import Moved
from melisma.views.names import Names
from melisma.views.tables import COUNT, NUMBER, Table

_COSTS = ("process_cost", "transfer_cost", "error_cost")


class FogTables:
    """Data movement by slot, by link and by device, and the cost of each cycle."""

    def __init__(self, learners: Names) -> None:
        self._learners = learners
        self._totals: dict[tuple[str, Any], Counter[str]] = {}
        self._stale: dict[tuple[str, Any], None] = {}
        self._cycles: dict[int, int] = {}  # of each slot
        self.slots = Table(
            slot=COUNT,
            cycle=COUNT,
            **dict.fromkeys(("collected", "kept", "sent", "discarded"), COUNT),
            trained=COUNT,
            **dict.fromkeys(("process", "transfer", "error"), NUMBER),
        )
        self.flows = Table(source=COUNT, target=COUNT, samples=COUNT)
        self.devices = Table(
            learner=COUNT,
            **dict.fromkeys(("collected", "trained", "sent", "arrived"), COUNT),
            discarded=COUNT,
            cost=NUMBER,
        )

    def see(self, record: Moved, position: int) -> None:
        """Add what one device did in one slot to the totals."""
        learner = self._learners.place(record.learner, position)
        amounts: Counter[str] = Counter(
            collected=record.collected,
            trained=record.trained,
            arrived=record.arrived,
            discarded=record.discarded,
            sent=sum(record.sent.values()),
        )
        costs = {name: getattr(record, name) for name in _COSTS}
        self._cycles[record.slot] = record.cycle
        whole = ("slot", record.slot), ("device", learner), ("cycle", record.cycle)
        for key in whole:
            self._add(key, amounts, costs)
        for receiver, samples in record.sent.items():
            if samples:
                target = self._learners.place(receiver, position)
                self._add(("flow", (learner, target)), {"samples": samples}, {})

    def _add(
        self,
        key: tuple[str, Any],
        amounts: Mapping[str, int],
        costs: Mapping[str, float],
    ) -> None:
        total: Any = self._totals.setdefault(key, Counter())
        for name, amount in (*amounts.items(), *costs.items()):
            total[name] += amount
        self._stale[key] = None

    def cycle_cost(self, cycle: int) -> float | None:
        """Return all costs of a cycle so far; None if no data were moved in it."""
        total = self._totals.get(("cycle", cycle))
        return sum(total[name] for name in _COSTS) if total else None

    def settle(self, position: int) -> None:
        """Write the totals that changed into the tables."""
        for kind, key in self._stale:
            total = self._totals[kind, key]
            if kind == "slot":
                row = (key, self._cycles[key], *_fates(total), *_costs(total))
                self.slots.put(position, key, row)
            elif kind == "device":
                self.devices.put(position, key, (key, *_dealings(total)))
            elif kind == "flow":
                self.flows.put(position, key, (*key, total["samples"]))
        self._stale.clear()

    def since(self, position: int) -> dict[str, Any] | None:
        """Return the rows that changed, by table; None if the run is no fog."""
        if not len(self.slots):
            return None
        tables = {"slots": self.slots, "flows": self.flows, "devices": self.devices}
        return {name: rows for name, t in tables.items() if (rows := t.since(position))}


def _fates(total: Mapping[str, int]) -> tuple[int, ...]:
    kept = total["collected"] - total["sent"] - total["discarded"]
    return (
        *(total["collected"], kept, total["sent"], total["discarded"]),
        total["trained"],
    )


def _costs(total: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(total[name] for name in _COSTS)


def _dealings(total: Mapping[str, Any]) -> tuple[float, ...]:
    amounts = ("collected", "trained", "sent", "arrived", "discarded")
    cost = sum(total[name] for name in _COSTS)
    return (*(total[name] for name in amounts), cost)
