"""Real learners whose late work is not lost (``late = "carry"``)."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from melisma.fleets.live import LiveLearners
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Updates
from melisma.fleets.underway import (
    NOT_BEGUN,
    TOO_OLD,
    UnderWay,
    expected_s,
    rebased,
    rests_s,
)
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Called(UnderWay):
    """A call that was not answered by the deadline."""

    name: str  #: of its learner
    answer: asyncio.Task[Updates | Lost]
    begun: asyncio.Event  #: the learner has its order
    start: Parameters  #: the model that it trains


class CarryingCrew(LiveLearners):
    """Learners that go on after the deadline where they would have nothing to send.

    What did not arrive by the deadline counts in the cycle in which it comes, as what
    it changes. An order for a learner that is at work is held back until its earlier
    one is done; if that is not by the deadline, it is taken back.
    """

    def __init__(self, *args: Any, staleness_at_most: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.staleness_at_most = staleness_at_most
        self._patience = self._served.kept = staleness_at_most + 1
        self._under_way: list[Called] = []
        self._began_s = 0.0  # of the cycle

    def rest_s(self) -> Floats:
        """Return how long each learner will be at work, as far as can be known."""
        return rests_s(self.learners, self._at_work(), self.now_s())

    def _at_work(self) -> dict[str, Called]:
        return {c.name: c for c in self._under_way if not c.answer.done()}

    async def ready(self) -> None:
        """Take who is ready, and who is at work: that one is not asked."""
        self._believed, busy = None, self._at_work()
        ready = await self._roster.ready(self._served.task, busy=busy)
        self._take({*ready, *(name for name in busy if name in self._roster.present)})

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Give learners their orders; yield what arrives by the deadline."""
        self._deadline_s = deadline_s
        expect_s = self.rest_s()
        if self._roster.spec(self._served.task).private:
            expect_s += deadline_s  # all that is known of who keeps its speed to itself
        else:
            expect_s = expected_s(await self.law(), orders, expect_s)
        until, self._began_s = self._begin(parameters) + deadline_s, self.now_s()
        ordered = [
            self._call_for(
                order, parameters, deadline_s, float(expect_s[order.learner])
            )
            for order in orders
            if order.samples
        ]
        calls, self._under_way = [*self._under_way, *ordered], []
        try:
            async for call in _answered(calls, ordered, until):
                if call.name in self.learners:
                    yield self._delivered(call, parameters)
        except BaseException:
            for call in calls:
                call.answer.cancel()
            raise
        for call in calls:
            if not call.answer.done() and (lost := self._not_done(call, deadline_s)):
                yield lost

    def _call_for(
        self, order: Order, sent: Parameters, deadline_s: float, expected_s: float
    ) -> Called:
        """Give an order, after the one that its learner is at work on."""
        name, begun = self.learners[order.learner], asyncio.Event()
        earlier = next((c.answer for c in self._under_way if c.name == name), None)
        work = self._after(earlier, begun, order, sent, deadline_s)
        return Called(
            name=name,
            cycle=self._served.cycle,
            began_s=self.now_s(),
            expected_s=expected_s,
            answer=asyncio.create_task(work),
            begun=begun,
            start=sent,
        )

    def _delivered(self, call: Called, onto: Parameters) -> Updates | Lost:
        """Return an answer; of an earlier cycle's, what it changes in this model."""
        result, age = call.answer.result(), self._served.cycle - call.cycle
        if not age:
            return result
        k, after_s = self.learners.index(call.name), self.now_s() - self._began_s
        if isinstance(result, Lost):
            return replace(result, learner=k, after_s=after_s)
        (report,) = result.reports
        times = dict.fromkeys(("downloaded_s", "trained_s", "uploaded_s"), after_s)
        report = msgspec.structs.replace(report, learner=k, age=age, **times)
        return Updates([report], rebased(result.parameters, call.start, onto))

    def _not_done(self, call: Called, deadline_s: float) -> Lost | None:
        """Settle what becomes of an order that is not done by the deadline."""
        age, reason = self._served.cycle - call.cycle, NOT_THERE
        if not call.begun.is_set():
            reason = NOT_BEGUN
        elif age >= self.staleness_at_most:
            reason = TOO_OLD
        if reason == NOT_THERE:
            self._under_way.append(call)
            if age:
                return None  # which the cycle of its order has said
        else:
            call.answer.cancel()
        if call.name not in self.learners:
            return None
        k = self.learners.index(call.name)
        goes_on = reason == NOT_THERE
        return Lost(learner=k, reason=reason, after_s=deadline_s, goes_on=goes_on)

    async def _after(
        self,
        before: asyncio.Task[Updates | Lost] | None,
        begun: asyncio.Event,
        order: Order,
        sent: Parameters,
        deadline_s: float,
    ) -> Updates | Lost:
        """Give an order once its learner has done an earlier one."""
        ordered = time.monotonic()
        if before is not None:
            await asyncio.wait([before])
        begun.set()
        began = time.monotonic()
        waited_s = began - ordered
        result = await self._train(order, sent, deadline_s - waited_s, began)
        if before is None:
            return result
        if isinstance(result, Lost):
            return replace(result, after_s=result.after_s + waited_s)
        (report,) = result.reports
        report = msgspec.structs.replace(
            report,
            downloaded_s=report.downloaded_s + waited_s,
            trained_s=report.trained_s + waited_s,
            uploaded_s=report.uploaded_s + waited_s,
            waited_s=waited_s,
        )
        return Updates([report], result.parameters)


async def _answered(
    calls: Sequence[Called], ordered: Sequence[Called], until: float
) -> AsyncIterator[Called]:
    """Yield calls as they are answered, until all that were ordered are, or until then.

    With nothing ordered there is nothing to be done sooner.
    """
    left = list(calls)
    while left:
        timeout = max(0.0, until - time.monotonic())
        answers = [call.answer for call in left]
        await asyncio.wait(answers, timeout=timeout, return_when="FIRST_COMPLETED")
        for call in left:
            if call.answer.done():
                yield call
        left = [call for call in left if not call.answer.done()]
        all_done = ordered and all(call.answer.done() for call in ordered)
        if all_done or time.monotonic() >= until:
            return
