"""A run's figures cycle by cycle, over all learners."""

import math
from collections.abc import Sequence

import msgspec

from melisma.runs.records import (
    ACCURACY,
    Aggregated,
    Evaluated,
    Metric,
    Moved,
    Record,
    evaluations,
    metrics_by_task,
)
from melisma.views.fog import by_cycle


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lists with one value for each cycle of a run."""

    time_s: list[float]  #: at the end of each cycle
    kinds: tuple[Metric, ...]  #: what the metrics are; the first is *the* metric
    metrics: dict[str, list[float]]  #: on the test set, by name; NaN: not finite
    loss: list[float]
    cycle_s: list[float]
    samples: list[int]
    max_staleness: list[int]
    mean_staleness: list[float]
    utilisation: list[float]
    truancy: list[float]
    #: Only for a fog: samples and costs of all devices.
    collected: list[int] = []
    trained: list[int] = []
    sent: list[int] = []
    discarded: list[int] = []
    process_cost: list[float] = []
    transfer_cost: list[float] = []
    error_cost: list[float] = []
    cost: list[float] = []

    @property
    def metric(self) -> list[float]:
        """Return the values of *the* metric, the first of the task."""
        return self.metrics[self.kinds[0].name]


_MOVES = (
    *("collected", "trained", "sent", "discarded"),
    *("process_cost", "transfer_cost", "error_cost", "cost"),
)


def history(records: Sequence[Record]) -> History:
    """Pick the cycle-wide figures from a run's records."""
    merged = [record for record in records if isinstance(record, Aggregated)]
    tested = evaluations(records)
    moved = by_cycle(record for record in records if isinstance(record, Moved))
    ended = [moved[r.cycle] for r in tested if r.cycle in moved]
    kinds = next(iter(metrics_by_task(records).values()), (ACCURACY,))
    return History(
        time_s=[record.time_s for record in tested],
        kinds=kinds,
        metrics={kind.name: _values(kind, tested) for kind in kinds},
        loss=[_number(record.loss) for record in tested],
        cycle_s=[record.cycle_s for record in merged],
        samples=[record.samples for record in merged],
        max_staleness=[record.max_staleness for record in merged],
        mean_staleness=[record.mean_staleness for record in merged],
        utilisation=[record.utilisation for record in merged],
        truancy=[record.truancy for record in merged],
        **{name: [getattr(totals, name) for totals in ended] for name in _MOVES},
    )


def _values(kind: Metric, tested: Sequence[Evaluated]) -> list[float]:
    return [_number(record.metrics.get(kind.name)) for record in tested]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
