"""Simulated learners whose late work is not lost (``late = "carry"``)."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from melisma.fleets.protocols import NOT_THERE, Lost, Order, Report, Updates
from melisma.fleets.simulated import SimulatedLearners
from melisma.fleets.underway import NOT_BEGUN, TOO_OLD, UnderWay, expected_s, rests_s
from melisma.learning.parameters import Parameters, from_arrays, packed, unpacked
from melisma.maths.arrays import Bools, Floats, Ints

#: Before the name of a learner in a checkpoint.
PREFIX = "carried:"
#: In place of a parameter: the loss that the learner reported.
LOSS = ""

#: Seconds of download, training and upload, of learners, their samples and passes.
Phases = Callable[[Ints, Ints, Ints], Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Carried(UnderWay):
    """An update on its way."""

    learner: int  #: its place among all, present or not
    samples: int  #: that it has to download
    passes: int  #: samples that it trains on, each as often as it does
    left: Floats  #: shares of download, training and upload that are to be done
    arrives_s: float  #: on the crew's clock, if it goes on as in this cycle
    report: Report
    change: Parameters  #: of the model that it was trained from

    def of(self, phases_s: Phases) -> Floats:
        """Seconds of its three phases, from beginning to end."""
        who = np.array([self.learner])
        return phases_s(who, np.array([self.samples]), np.array([self.passes]))[:, 0]

    def after(self, worked_s: float, phases_s: Phases) -> "Carried":
        """Return it with what is left after so many seconds of this cycle's speed."""
        lasts_s = self.of(phases_s) * self.left
        begun_s = lasts_s.cumsum() - lasts_s
        done_s = np.clip(worked_s - begun_s, 0.0, lasts_s)
        shares = np.divide(done_s, lasts_s, out=np.zeros(3), where=lasts_s > 0)
        return replace(self, left=self.left * (1 - shares))


class CarryingLearners(SimulatedLearners):
    """Learners that go on after the deadline where they would have nothing to send.

    They halt at the first deadline by which they have something, so that it arrives in
    a later cycle, as what it changes. An order for a learner that is at work begins
    when its earlier one is done, if that is before the deadline; else it is taken back.
    Updates are computed when they are ordered, and kept until they arrive; what is left
    of an order in a later cycle takes as long as the learner is slow then.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._under_way: dict[str, Carried] = {}

    @property
    def staleness_at_most(self) -> int:
        """Cycles that an update is waited for."""
        return self._conditions.staleness_at_most

    def rest_s(self) -> Floats:
        """Return how long each learner will be at work, as far as can be known."""
        return rests_s(self.learners, self._under_way, self._now_s)

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Train for real; yield what arrives by the deadline, of earlier orders too."""
        expect_s = expected_s(await self.law(), orders, self.rest_s())
        self._cycle += 1
        phases_s = self._next().phases_s
        self._go_on(phases_s)
        ordered = [self._queued(order) for order in orders if order.samples]
        begun = [order for order in ordered if order.waits_s < deadline_s]
        prices = self._price(begun, deadline_s)
        if self._careful:
            await self._observe(self._careful, begun, prices)
        late = prices.uploaded_s > deadline_s * (1 + 1e-9)
        all_done = begun and len(begun) == len(ordered) and not late.any()
        lasts_s = float(prices.uploaded_s.max()) if all_done else deadline_s
        for name, carried in self._arriving(self._now_s + lasts_s):
            if name in self.learners:
                yield self._delivered(name, carried, parameters)
        for order in ordered:
            if order.waits_s >= deadline_s:
                yield Lost(learner=order.learner, reason=NOT_BEGUN, after_s=deadline_s)
        arrival = np.argsort(prices.uploaded_s, kind="stable")
        plans = []
        if not self._conditions.timing:
            plans = [self._plan(begun[i])[: prices.batches[i]] for i in arrival]
        places = {order.learner: i for i, order in enumerate(begun)}
        async for updates in self._trained(begun, prices, arrival, plans, parameters):
            rows = [places[report.learner] for report in updates.reports]
            for n in np.flatnonzero(late[rows]).tolist():
                k, report = begun[rows[n]].learner, updates.reports[n]
                self._under_way[self.learners[k]] = Carried(
                    cycle=self._cycle,
                    began_s=self._now_s,
                    expected_s=float(expect_s[k]),
                    learner=int(self.members[k]),
                    samples=begun[rows[n]].samples,
                    passes=int(prices.passes[rows[n]]),
                    left=np.ones(3),
                    arrives_s=self._now_s + report.uploaded_s,
                    report=report,
                    change=_change(updates.parameters, n, parameters),
                )
                yield Lost(
                    learner=k, reason=NOT_THERE, after_s=deadline_s, goes_on=True
                )
            if not late[rows].all():
                waits_s = [begun[i].waits_s for i in rows]
                yield _in_time(updates, ~late[rows], waits_s)
        waited_s = {self.learners[o.learner]: o.waits_s for o in begun}
        for name, carried in list(self._under_way.items()):
            worked_s = lasts_s - (waited_s[name] if carried.cycle == self._cycle else 0)
            self._under_way[name] = carried.after(worked_s, phases_s)
            if self._cycle - carried.cycle >= self.staleness_at_most:
                del self._under_way[name]
                if name in self.learners:
                    k = self.learners.index(name)
                    yield Lost(learner=k, reason=TOO_OLD, after_s=lasts_s)
        self._now_s += lasts_s

    def _go_on(self, phases_s: Phases) -> None:
        """Let orders under way go on, as fast as their learners are in this cycle."""
        for name, carried in self._under_way.items():
            rest_s = float(carried.left @ carried.of(phases_s))
            self._under_way[name] = replace(carried, arrives_s=self._now_s + rest_s)

    def _queued(self, order: Order) -> Order:
        """Return an order that waits until its learner has done an earlier one."""
        earlier = self._under_way.get(self.learners[order.learner])
        wait_s = max(0.0, earlier.arrives_s - self._now_s) if earlier else 0.0
        return replace(order, waits_s=order.waits_s + wait_s)

    def _arriving(self, until_s: float) -> list[tuple[str, Carried]]:
        """Take what arrives by then, in order of arrival."""
        there = [
            item for item in self._under_way.items() if item[1].arrives_s <= until_s
        ]
        for name, _ in there:
            del self._under_way[name]
        return sorted(there, key=lambda item: item[1].arrives_s)

    def _delivered(self, name: str, carried: Carried, onto: Parameters) -> Updates:
        """Return an update of an earlier cycle, as a change of this cycle's model."""
        after_s = carried.arrives_s - self._now_s
        report = msgspec.structs.replace(
            carried.report,
            learner=self.learners.index(name),
            age=self._cycle - carried.cycle,
            **dict.fromkeys(("downloaded_s", "trained_s", "uploaded_s"), after_s),
        )
        stack = {n: (onto[n] + t)[None] for n, t in carried.change.items()}
        return Updates([report], stack)

    def state(self) -> Parameters:
        """Return what learners keep to themselves, and updates on their way."""
        owned = {}
        for name, update in self._under_way.items():
            loss = from_arrays({LOSS: np.array([update.report.loss])})
            owned[name] = loss | update.change
        return super().state() | packed(PREFIX, owned)

    def restore(self, saved: Parameters) -> None:
        """Restore them. What else there is of updates on their way, a replay knows."""
        super().restore(saved)
        owned = unpacked(PREFIX, saved)
        for name, update in self._under_way.items():
            change = owned[name]
            loss = float(change.pop(LOSS))
            report = msgspec.structs.replace(update.report, loss=loss)
            self._under_way[name] = replace(update, report=report, change=change)


def _change(stack: Parameters, row: int, start: Parameters) -> Parameters:
    return {name: values[row] - start[name] for name, values in stack.items()}


def _in_time(updates: Updates, rows: Bools, waits_s: Sequence[float]) -> Updates:
    """Return some of the updates, with how long each had waited to begin."""
    some = np.flatnonzero(rows).tolist()
    return Updates(
        [
            msgspec.structs.replace(updates.reports[n], waited_s=waits_s[n])
            for n in some
        ],
        {name: values[some] for name, values in updates.parameters.items()},
    )
