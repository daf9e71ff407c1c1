"""Simulated learners that work each in its own time, on one queue of arrivals."""

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from melisma.fleets.classroom import Ordered
from melisma.fleets.protocols import Order, Report, Updates
from melisma.fleets.simulated import SimulatedLearners
from melisma.learning.parameters import Parameters, from_arrays, packed, unpacked
from melisma.maths.arrays import Ints

#: Before the name of a learner in a checkpoint.
PREFIX = "on its way:"
#: In place of a parameter: the loss that the learner reports.
LOSS = ""


@dataclass(slots=True, kw_only=True, eq=False)
class OnItsWay:
    """An order, and the update that comes of it."""

    report: Report  #: without its loss, until it is trained
    number: int  #: of the order, among all
    start: Parameters
    plan: Ints  #: its batches
    result: Parameters | None = None  #: once it is trained
    saved: Parameters = field(default_factory=dict)  #: it, once there was a checkpoint


class SimulatedFlow(SimulatedLearners):
    """Learners that are given orders one by one, and answer in their own time.

    What comes of an order follows from the model that it starts from, so it can be
    computed at any time: orders are trained many at once, when the first of them is
    needed.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._queue: list[tuple[float, int, str]] = []  # arrivals, in order
        self._orders = 0  # given so far: ties arrive in this order
        self._on_their_way: dict[str, OnItsWay] = {}

    def _take_in(self, members: Ints) -> None:
        super()._take_in(members)
        self._places = {name: place for place, name in enumerate(self.learners)}

    def idle(self) -> list[int]:
        """Places of the learners that have no order."""
        return [k for k, n in enumerate(self.learners) if n not in self._on_their_way]

    def order(self, order: Order, parameters: Parameters) -> None:
        """Give a learner its next order: to train this model."""
        name, k = self.learners[order.learner], int(self.members[order.learner])
        spread = self._conditions.noise * self._rng.standard_normal(2)
        compute, network = np.exp(spread).tolist()
        half_s = float(self._law.fixed_s[k]) / 2 * network
        downloaded_s = half_s + float(self._law.sample_s[k]) * order.samples * network
        passes = order.samples * order.steps
        trained_s = downloaded_s + float(self._law.step_s[k]) * passes * compute
        plan, self._orders = self._plan(order), self._orders + 1
        self._on_their_way[name] = OnItsWay(
            report=Report(
                learner=order.learner,
                downloaded_s=downloaded_s,
                trained_s=trained_s,
                uploaded_s=trained_s + half_s,
                samples=order.samples,
                batches=len(plan),
                loss=0.0,
                halted=False,
            ),
            number=self._orders,
            start=parameters,
            plan=plan,
        )
        arrives_s = self._now_s + trained_s + half_s
        heapq.heappush(self._queue, (arrives_s, self._orders, name))

    async def arrival(self, until_s: float) -> Updates | None:
        """Return the update that arrives next, None if none does by ``until_s``.

        The clock is there then.
        """
        while self._queue and self._queue[0][0] <= until_s:
            self._now_s, _, name = heapq.heappop(self._queue)
            if self._on_their_way[name].result is None:
                self._train()
            done = self._on_their_way.pop(name)
            assert done.result is not None
            if (place := self._places.get(name)) is None:
                continue  # it was expelled meanwhile
            report = msgspec.structs.replace(done.report, learner=place)
            return Updates([report], {n: t[None] for n, t in done.result.items()})
        if until_s < math.inf:
            self._now_s = max(self._now_s, until_s)
        return None

    def _train(self) -> None:
        """Train all orders that are not trained yet."""
        todo = {n: o for n, o in self._on_their_way.items() if o.result is None}
        if not self.learning or not todo:
            for one in todo.values():
                one.result = one.start
            return
        names, orders = list(todo), list(todo.values())
        together = self._classrooms.whole.train(
            orders[0].start,
            self._cycle,
            names,
            [one.plan for one in orders],
            orders=[Ordered(one.number, one.start) for one in orders],
        )
        for chunk, stack in together:
            losses = chunk.loss.tolist()
            for row, k in enumerate(chunk.learners):
                one = orders[k]
                one.result = {n: values[row].clone() for n, values in stack.items()}
                one.report = msgspec.structs.replace(one.report, loss=losses[row])

    def state(self) -> Parameters:
        """Return what learners keep to themselves, and updates that are trained.

        The others are trained when they are needed, together with the same ones as if
        there were no checkpoint: they begin from models that the algorithm keeps.
        """
        state = super().state()
        for name, one in self._on_their_way.items():
            if one.result is not None and not one.saved:
                loss = from_arrays({LOSS: np.array([one.report.loss])})
                one.saved = packed(PREFIX, {name: loss | one.result})
            state.update(one.saved)
        return state

    def restore(self, saved: Parameters) -> None:
        """Restore them; what else there is of them, a replay knows."""
        super().restore(saved)
        for name, result in unpacked(PREFIX, saved).items():
            one = self._on_their_way[name]
            loss = float(result.pop(LOSS))
            one.report = msgspec.structs.replace(one.report, loss=loss)
            one.result = result
