"""Tables from a run's records: by learner and cycle, by learner, by cycle.

Pure functions from records to rows; nothing here draws or writes. The records of an
unfinished run give the rows so far.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import msgspec

from melisma.runs.records import (
    Aggregated,
    Allocated,
    Carried,
    Checked,
    Downloaded,
    Dropped,
    Evaluated,
    GoesOn,
    Halted,
    LearnerEvent,
    Record,
    Trained,
    Uploaded,
)

COUNTED, SITS_OUT, UNDER_WAY = "counted", "sits out", "under way"
GOES_ON = "goes on"


class LearnerCycle(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One learner's allocation in one cycle, its times and its outcome.

    Times count from its order. None: not known yet, or known to the learner alone
    (DAB). A Struct, since a long run has hundreds of thousands of them.
    """

    cycle: int
    learner: str
    samples: int  #: allocated
    steps: int
    predicted_s: float | None
    downloaded_s: float | None = None
    trained_s: float | None = None
    measured_s: float | None = None  #: until its update had arrived
    trained: int | None = None  #: samples
    batches: int | None = None
    halted: bool = False
    dropped_s: float | None = None
    offence: bool = False  #: the learner is to blame for the loss
    distance: float | None = None  #: from the audit's own result, if it was audited
    began_s: float = 0.0  #: when it was ordered, on the run's clock
    cost: float | None = None  #: where learners have prices
    planned_s: float | None = None  #: predicted with care, where lateness is limited
    late: bool = False  #: halted, or not there by the deadline
    carried: int | None = None  #: age of an earlier order's update that came now
    option: str = ""  #: by which it takes part, where there are several
    saved_bytes: int = 0  #: that travel less by it
    predicted_j: float | None = None  #: where it is known what the learner draws
    spent_j: float | None = None  #: measured: that, times how long it took
    outcome: str = UNDER_WAY  #: or COUNTED, SITS_OUT, GOES_ON, or why it was dropped

    @property
    def off_percent(self) -> float | None:
        """Absolute error of the predicted time, in % of the measured time."""
        return _off_percent(self.predicted_s, self.measured_s)

    @property
    def reserve(self) -> float | None:
        """Share of its time that it was planned not to need; None without a promise."""
        if self.predicted_s is None or not self.planned_s:
            return None
        return 1.0 - self.predicted_s / self.planned_s


def _off_percent(predicted_s: float | None, measured_s: float | None) -> float | None:
    if predicted_s is None or not measured_s:
        return None
    return 100.0 * abs(predicted_s / measured_s - 1.0)


#: Columns of `LearnerCycle` by name: faster than rows when a long run is read.
Facts = dict[str, list[Any]]


def learner_cycles(records: Iterable[Record]) -> list[LearnerCycle]:
    """Return one row for each learner and cycle, in the order of the orders."""
    cycles: dict[int, list[Record]] = {}
    for record in records:
        if isinstance(record, LearnerEvent):
            cycles.setdefault(record.cycle, []).append(record)
    return [
        LearnerCycle(**dict(zip(facts, row, strict=True)))
        for happened in cycles.values()
        for facts in [facts_of(happened)]
        for row in zip(*facts.values(), strict=True)
    ]


def facts_of(happened: Iterable[Any]) -> Facts:
    """Return the columns for one cycle from its learners' records, in order of orders.

    A learner without an order has no row; of several records of one kind the first
    counts.
    """
    first: defaultdict[type, dict[str, Any]] = defaultdict(dict)
    for record in happened:
        first[type(record)].setdefault(record.learner, record)
    orders = first[Allocated].values()
    nothing = [None] * len(orders)
    kinds = (Downloaded, Trained, Halted, Uploaded, Dropped, Checked, GoesOn, Carried)
    downloaded, trained, halted, uploaded, dropped, checked, goes_on, carried = (
        list(map(first[kind].get, first[Allocated])) if first[kind] else nothing
        for kind in kinds
    )
    if first[Halted]:
        trained = [whole or part for whole, part in zip(trained, halted, strict=True)]
    began_s = [order.time_s for order in orders]
    downloaded_s, trained_s, measured_s, dropped_s = (
        [r.time_s - t if r else None for r, t in zip(records, began_s, strict=True)]
        for records in (downloaded, trained, uploaded, dropped)
    )
    for n, (early_s, late_s) in enumerate(zip(trained_s, measured_s, strict=True)):
        # A learner that reports no times (DAB) has all its records at its return.
        maybe = early_s in (None, late_s) or late_s is None
        if maybe and len({downloaded_s[n], early_s, late_s} - {None}) == 1:
            downloaded_s[n] = trained_s[n] = None
    return {
        "cycle": [order.cycle for order in orders],
        "learner": [order.learner for order in orders],
        "samples": [order.samples for order in orders],
        "steps": [order.steps for order in orders],
        "predicted_s": [order.predicted_s for order in orders],
        "downloaded_s": downloaded_s,
        "trained_s": trained_s,
        "measured_s": measured_s,
        "trained": [record and record.samples for record in trained],
        "batches": [record and record.batches for record in trained],
        "halted": [type(record) is Halted for record in trained],
        "dropped_s": dropped_s,
        "offence": [record is not None and record.offence for record in dropped],
        "distance": [record and record.distance for record in checked],
        "began_s": began_s,
        "cost": [order.cost for order in orders],
        "planned_s": [order.planned_s for order in orders],
        "late": list(map(_late, trained, uploaded, dropped, goes_on)),
        "carried": [record and record.age for record in carried],
        "option": [order.option for order in orders],
        "saved_bytes": [order.saved_bytes for order in orders],
        "predicted_j": [order.predicted_j for order in orders],
        "spent_j": [record and record.spent_j for record in uploaded],
        "outcome": list(map(_outcome, orders, uploaded, dropped, goes_on)),
    }


def _late(
    trained: Trained | Halted | None,
    uploaded: Uploaded | None,
    dropped: Dropped | None,
    goes_on: GoesOn | None,
) -> bool:
    if isinstance(trained, Halted) or goes_on is not None:
        return True
    return any(r and r.late for r in (uploaded, dropped))


def _outcome(
    order: Allocated,
    uploaded: Uploaded | None,
    dropped: Dropped | None,
    goes_on: GoesOn | None,
) -> str:
    if dropped is not None:
        return dropped.reason
    if goes_on is not None:
        return GOES_ON
    if not order.samples:
        return f"{SITS_OUT}: {order.why}" if order.why else SITS_OUT
    return COUNTED if uploaded is not None else UNDER_WAY


def off_percent(rows: Iterable[LearnerCycle]) -> float | None:
    """Return the mean absolute error of predictions in %; None without predictions."""
    return _mean(row.off_percent for row in rows)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerTotals:
    """One learner over all cycles in which it had work; means over what is known."""

    learner: str
    cycles: int
    outcome: str  #: of its last cycle
    samples: float | None  #: allocated, mean
    steps: float | None
    predicted_s: float | None
    measured_s: float | None
    off_percent: float | None  #: mean over cycles, see `LearnerCycle.off_percent`
    trained: float | None  #: samples, mean
    halted: int
    late: int  #: cycles
    reserve: float | None  #: see `LearnerCycle.reserve`
    carried: int  #: updates that came in a later cycle
    lost: int  #: updates that do not count
    offences: int
    checked: int
    distance: float | None  #: the largest
    option: str  #: of its last cycle
    saved_bytes: int  #: over all of them
    predicted_j: float | None
    spent_j: float | None


def totals(rows: Iterable[LearnerCycle]) -> list[LearnerTotals]:
    """Return one row for each learner, in the order of their first orders."""
    groups: dict[str, list[LearnerCycle]] = {}
    for row in rows:
        groups.setdefault(row.learner, []).append(row)
    return [_totals_of(name, group) for name, group in groups.items()]


def _totals_of(learner: str, group: list[LearnerCycle]) -> LearnerTotals:
    busy = [row for row in group if row.samples]
    distances = [row.distance for row in group if row.distance is not None]
    return LearnerTotals(
        learner=learner,
        cycles=len(busy),
        outcome=group[-1].outcome,
        samples=_mean(row.samples for row in busy),
        steps=_mean(row.steps for row in busy),
        predicted_s=_mean(row.predicted_s for row in busy),
        measured_s=_mean(row.measured_s for row in busy),
        off_percent=off_percent(busy),
        trained=_mean(row.trained for row in busy),
        halted=sum(row.halted for row in group),
        late=sum(row.late for row in busy),
        reserve=_mean(row.reserve for row in busy),
        carried=sum(row.carried is not None for row in group),
        lost=sum(row.dropped_s is not None for row in group),
        offences=sum(row.offence for row in group),
        checked=len(distances),
        distance=max(distances, default=None),
        option=busy[-1].option if busy else "",
        saved_bytes=sum(row.saved_bytes for row in busy),
        predicted_j=_mean(row.predicted_j for row in busy),
        spent_j=_mean(row.spent_j for row in busy),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """All learners in one cycle; None: the cycle has not got that far."""

    cycle: int
    learners: int  #: that had work
    counted: int
    carried: int  #: from earlier cycles
    halted: int
    lost: int
    off_percent: float | None
    samples: int | None = None  #: trained, of the updates that count
    cycle_s: float | None = None
    max_staleness: int | None = None
    mean_staleness: float | None = None
    truancy: float | None = None
    utilisation: float | None = None
    error: float | None = None  #: of a decoded gradient
    cost: float | None = None  #: of all learners, where they have prices
    time_s: float | None = None  #: at its end, on the run's clock
    #: On the test set, by name; None: not finite. Empty until the cycle is evaluated.
    metrics: dict[str, float | None] = field(default_factory=dict)
    loss: float | None = None  #: None, too, if it is not finite


def cycles(records: Sequence[Record], rows: Iterable[LearnerCycle]) -> list[Cycle]:
    """Return one row for each cycle in which there were orders."""
    merged = {r.cycle: r for r in records if isinstance(r, Aggregated)}
    tested = {r.cycle: r for r in records if isinstance(r, Evaluated)}
    groups: dict[int, list[LearnerCycle]] = {}
    for row in rows:
        groups.setdefault(row.cycle, []).append(row)
    return [
        cycle_of(number, _columns(group), merged.get(number), tested.get(number))
        for number, group in sorted(groups.items())
    ]


def _columns(group: Sequence[LearnerCycle]) -> Facts:
    names = LearnerCycle.__struct_fields__
    return {name: [getattr(row, name) for row in group] for name in names}


def cycle_of(
    number: int, facts: Facts, merged: Aggregated | None, tested: Evaluated | None
) -> Cycle:
    """Return the row of one cycle from its learners' columns and its two records."""
    costs = [cost for cost in facts["cost"] if cost is not None]
    row = Cycle(
        cycle=number,
        learners=sum(map(bool, facts["samples"])),
        counted=facts["outcome"].count(COUNTED),
        carried=sum(age is not None for age in facts["carried"]),
        halted=sum(facts["halted"]),
        lost=sum(after_s is not None for after_s in facts["dropped_s"]),
        off_percent=_mean(map(_off_percent, facts["predicted_s"], facts["measured_s"])),
        cost=sum(costs) if costs else None,
    )
    if merged:
        row = replace(
            row,
            samples=merged.samples,
            cycle_s=merged.cycle_s,
            max_staleness=merged.max_staleness,
            mean_staleness=merged.mean_staleness,
            truancy=merged.truancy,
            utilisation=merged.utilisation,
            error=merged.error,
        )
    if tested:
        row = replace(
            row, time_s=tested.time_s, metrics=tested.metrics, loss=tested.loss
        )
    return row
