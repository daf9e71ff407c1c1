"""Real learners that work each in its own time."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from melisma.fleets.live import LiveLearners
from melisma.fleets.messages import TrainRequest
from melisma.fleets.protocols import Lost, Order, Updates
from melisma.learning.parameters import Parameters, from_arrays

#: Of the number of orders in a checkpoint.
ORDERS = "orders given"


class LiveFlow(LiveLearners):
    """Learners that are given orders one by one, and answer in their own time.

    Each order has a number of its own in place of a cycle's, under which its model is
    served: a learner may be given two from the same model, and draws other batches. It
    halts after ``order_s``, and is lost if it has not answered by then. A resumed run
    goes on after the last number of its checkpoint.
    """

    def __init__(self, *args: Any, order_s: float, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._deadline_s = order_s
        self._calls: dict[str, asyncio.Task[Updates | Lost]] = {}
        self._numbers: dict[str, int] = {}  # of each learner's last order
        self._heard: set[str] = set()  # whose updates came
        self._resumed = False
        self._served.kept = 1 << 40  # models are given up here

    async def ready(self) -> None:
        """Take who is ready, and who is at work: that one is not asked."""
        self._believed = None
        ready = await self._roster.ready(self._served.task, busy=self._calls)
        at_work = {name for name in self._calls if name in self._roster.present}
        self._take({*ready, *at_work})

    def idle(self) -> list[int]:
        """Places of the learners that have no order."""
        return [k for k, name in enumerate(self.learners) if name not in self._calls]

    def order(self, order: Order, parameters: Parameters) -> None:
        """Give a learner its next order: to train this model."""
        name, began = self.learners[order.learner], self._begin(parameters)
        self._numbers[name] = self._served.cycle
        work = self._train(order, parameters, self._deadline_s, began)
        self._calls[name] = asyncio.create_task(work)
        in_use = {self._numbers[n] for n in self._calls} | {self._served.cycle}
        for number in [n for n in self._served.models if n not in in_use]:
            del self._served.models[number]

    def _cycle_of(self, order: Order) -> int:
        return self._numbers[self.learners[order.learner]]

    async def _request(
        self, order: Order, deadline_s: float, began: float
    ) -> TrainRequest:
        """Return an order; who has done none in this run begins anew."""
        anew = not self._resumed and self.learners[order.learner] not in self._heard
        request = await super()._request(order, deadline_s, began)
        return msgspec.structs.replace(request, anew=anew)

    async def arrival(self, until_s: float) -> Updates | Lost | None:
        """Wait for who answers next; None if nobody does by then, or is at work."""
        while self._calls:
            left_s = until_s - self.now_s()
            await asyncio.wait(
                self._calls.values(),
                timeout=max(0.0, left_s) if left_s < math.inf else None,
                return_when="FIRST_COMPLETED",
            )
            done = (n for n, call in self._calls.items() if call.done())
            name = next(done, None)
            if name is None:
                return None
            result = self._calls.pop(name).result()
            if name not in self.learners:
                continue  # it left, and nobody waits for it
            place = self.learners.index(name)
            if isinstance(result, Lost):
                return replace(result, learner=place)
            self._heard.add(name)
            (report,) = result.reports
            report = msgspec.structs.replace(report, learner=place)
            return Updates([report], result.parameters)
        if until_s < math.inf:
            await asyncio.sleep(max(0.0, until_s - self.now_s()))
        return None

    def state(self) -> Parameters:
        """Return the number of the last order."""
        return from_arrays({ORDERS: np.array(self._served.cycle)})

    def restore(self, saved: Parameters) -> None:
        """Go on after it; a run of an earlier version counted its cycles instead."""
        self._resumed = True
        self._served.cycle = int(saved.get(ORDERS, self._served.cycle))

    def stop(self) -> None:
        """Stop all who are at work."""
        for call in self._calls.values():
            call.cancel()
