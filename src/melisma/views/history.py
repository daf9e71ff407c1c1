"""A run's figures cycle by cycle, over all learners."""

import math
from collections.abc import Sequence

import msgspec

from melisma.runs.records import Aggregated, Moved, Record, evaluations
from melisma.views.fog import by_cycle


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lists with one value for each cycle of a run."""

    time_s: list[float]  #: at the end of each cycle
    accuracy: list[float]
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
    return History(
        time_s=[record.time_s for record in tested],
        accuracy=[record.accuracy for record in tested],
        loss=[math.nan if r.loss is None else r.loss for r in tested],
        cycle_s=[record.cycle_s for record in merged],
        samples=[record.samples for record in merged],
        max_staleness=[record.max_staleness for record in merged],
        mean_staleness=[record.mean_staleness for record in merged],
        utilisation=[record.utilisation for record in merged],
        truancy=[record.truancy for record in merged],
        **{name: [getattr(totals, name) for totals in ended] for name in _MOVES},
    )
