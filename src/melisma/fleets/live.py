"""Crews of learners that are called: devices, local processes, nodes of a cluster.

A learner that is slow, frozen, gone or wrong costs its share of the cycle and nothing
else: at the deadline the cycle goes on without it.
"""

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np

from melisma.errors import CallTimeout, DataError, RpcError
from melisma.fleets.attendance import while_anybody_works
from melisma.fleets.audit import Audit
from melisma.fleets.claims import Claims, Done
from melisma.fleets.judge import (
    believed,
    clipped_bid,
    failed,
    is_short,
    is_to_blame,
    judged,
    refused,
    wrong_bid,
    wrong_speeds,
)
from melisma.fleets.messages import Speeds, TrainRequest
from melisma.fleets.protocols import (
    NOT_NEEDED,
    Complaint,
    Lost,
    Order,
    Probed,
    Updates,
)
from melisma.fleets.roster import Roster, law_of, while_they_come
from melisma.fleets.served import ServedTask
from melisma.fleets.ways import ALIKE, Ways
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Late
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.orchestrator")

#: How many deadlines a cycle lasts at most where it waits for who is late.
LONGEST_WAIT = 10
#: Shortest time that is ordered, or asked a bid for.
LEAST_S = 0.001


class LiveCrew:
    """One task's learners of a roster, on the real clock."""

    def __init__(
        self, roster: Roster, served: ServedTask, *, began_s: float = 0.0
    ) -> None:
        self.learners: list[str] = []
        self.own_samples: list[int] | None = None
        self._roster, self._served = roster, served
        self._began = time.monotonic() - began_s
        self._short: dict[str, str] = {}  # what the log has of those without memory

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    async def ready(self) -> None:
        """Take all learners of the roster that are ready."""
        self._take(await self._roster.ready(self._served.task))

    def _take(self, names: Iterable[str]) -> None:
        """Take learners of the roster for a cycle."""
        self.learners = sorted(names)
        own = [self._roster.present[name].samples for name in self.learners]
        self.own_samples = [n for n in own if n is not None] or None

    async def law(self) -> DelayLaw:
        """The learners' delay laws, as each of them measured itself."""
        return self._roster.law(self._served.task, self.learners)

    def take_complaints(self) -> list[Complaint]:
        """Return who gave no answer that counts apart from any work, and why."""
        return self._roster.take_complaints()

    def failed(
        self, learner: int, error: RpcError, after_s: float, name: str | None = None
    ) -> Lost:
        """Return the loss of a learner whose call brought no answer.

        The log has it if the learner lacks memory: that can be helped.
        """
        lost, name = failed(learner, error, after_s), name or self.learners[learner]
        if is_short(error) and self._short.get(name) != lost.reason:
            log.warning("%s %s", name, lost.reason)
            self._short[name] = lost.reason
        return lost

    def expel(self, name: str, reason: str) -> None:
        """Disconnect a learner, and accept none of that name again."""
        log.warning("%s is expelled: %s", name, reason)
        self._roster.expel(name, reason)

    def _begin(self, parameters: Parameters) -> float:
        """Serve the next cycle's model; return when that was."""
        self._served.renew(self._served.cycle + 1, parameters)
        return time.monotonic()

    async def _call(
        self, name: str, function: str, *args: Any, within_s: float | None = None
    ) -> Any:
        remotes = self._roster.remotes
        return await remotes.call(name, function, *args, within_s=within_s)

    def _complain(self, name: str, what: str, why: RpcError | str) -> None:
        """Log why a learner gave no answer that counts; accuse it if it is to blame."""
        self._roster.complain(name, f"{what}: {why}")
        if isinstance(why, str) or is_to_blame(why):
            self._roster.accuse(name, f"{what}: {why}")


class LiveLearners(LiveCrew):
    """Learners that train; several tasks may share them."""

    def __init__(
        self,
        roster: Roster,
        served: ServedTask,
        *,
        late: Late = Late.HALT,
        audit: Audit | None = None,
        began_s: float = 0.0,
        transfers: float = 1.0,
        ways: Ways = ALIKE,
    ) -> None:
        super().__init__(roster, served, began_s=began_s)
        self._transfers = transfers  # of models, over those of a benchmark
        self.enough: int | None = None  #: updates that end a cycle; None: all
        #: Returns before each cycle who takes part in it; None: all learners.
        self.gather: Callable[[], Awaitable[Ints]] | None = None
        self.members: Ints = np.zeros(0, dtype=np.int64)  #: places in the roster
        self._ways, self._claims = ways, Claims(ways.options)
        self._late, self._audit = late, audit
        self._patience = LONGEST_WAIT if late.lasts else 1  # deadlines
        self._deadline_s = 0.0  # of the last cycle
        self._believed: DelayLaw | None = None  # in this cycle
        self._probed: float | None = None  # when a probe began this cycle

    def wait_until(self, time_s: float) -> None:
        """Real time passes by itself."""

    async def ready(self) -> None:
        """Take all learners that are ready, or those that ``gather`` returns."""
        self._believed = None
        if self.gather:
            self.members = await self.gather()
            self.learners = [self._roster.known[j] for j in self.members]
        else:
            await super().ready()

    async def law(self) -> DelayLaw:
        """The learners' delay laws, as far as they are believed."""
        if self._believed is None:
            claimed = (await super().law()).slowed(network=self._transfers)
            believed = self._claims.law(self.learners, claimed, self._deadline_s)
            self._believed = self._ways.law(believed, self.learners)
        return self._believed

    def spread(self) -> Floats:
        """Spread of the benchmarks by which the learners know themselves."""
        return self._roster.spread(self._served.task, self.learners)

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Ask each learner how many shards it will take; 0 without an answer.

        A bid counts as far as it is believed.
        """
        task = self._served.task
        # A bid is for what a learner measures of itself: the overhead is not in it.
        work_s = max(deadline_s - self._roster.overhead_s, LEAST_S)

        async def bid(name: str) -> int:
            try:
                answer = await self._call(name, "bid", task, work_s, steps)
            except RpcError as error:
                self._complain(name, "does not bid", error)
                return 0
            if reason := wrong_bid(answer):
                self._complain(name, "does not bid", reason)
                return 0
            return clipped_bid(answer)

        asked = [asyncio.create_task(bid(name)) for name in self.learners]
        await while_they_come(asked)
        for name, answer in zip(self.learners, asked, strict=True):
            if not answer.done():
                answer.cancel()
                self._roster.complain(name, "does not bid: no answer")
        claimed = [a.result() if a.done() else 0 for a in asked]
        bids = np.array(claimed, dtype=np.int64)
        return self._claims.bids(self.learners, bids, shard)

    def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Give learners their orders; yield what comes back until the deadline."""
        self._deadline_s = deadline_s
        began, self._probed = self._probed, None
        if began is None:
            began = self._begin(parameters)
        given = [self._placed(order) for order in orders if order.samples]
        self._served.options = {self.learners[o.learner]: o.option for o in given}
        arriving = while_anybody_works(
            [
                (order.learner, self._train(order, parameters, deadline_s, began))
                for order in given
            ],
            lambda k: self._roster.attendance.reason(self.learners[k]),
            lambda: time.monotonic() - began,
        )
        if self.enough is None:
            return arriving
        return until_enough(arriving, [o.learner for o in given], self.enough, began)

    def _placed(self, order: Order) -> Order:
        """Return an order that names its learner's own way, where that is fixed."""
        name = self.learners[order.learner]
        return replace(order, option=self._ways.place(name, order.option))

    async def probe(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> Probed:
        """Have learners begin, and report how fast it goes.

        A learner that has not reported after half of the time is taken to be as fast
        as it would be if it reported then.
        """
        began = self._probed = self._begin(parameters)
        began_s, after_s = self.now_s(), deadline_s / 2
        probes = {
            order.learner: asyncio.create_task(self._probe(order, deadline_s, began))
            for order in orders
        }
        await asyncio.wait(probes.values(), timeout=after_s)
        speeds: dict[int, Speeds] = {}
        for order in orders:
            probe = probes[order.learner]
            if not probe.done():
                slow = after_s / (order.samples * order.steps)
                speeds[order.learner] = Speeds(
                    step_s=slow, sample_s=0.0, fixed_s=after_s
                )
            elif (reported := probe.result()) is not None:
                speeds[order.learner] = reported
        return Probed(
            there=np.array(list(speeds), dtype=np.int64),
            law=law_of(list(speeds.values())),
            began_s=began_s,
        )

    async def _probe(
        self, order: Order, deadline_s: float, began: float
    ) -> Speeds | None:
        """Have one learner begin; None, and a line in the log, if it does not."""
        name = self.learners[order.learner]
        request = await self._request(order, deadline_s, began)
        try:
            speeds = await self._call(name, "probe", request, within_s=deadline_s)
        except RpcError as error:
            self._complain(name, "was not probed", error)
            return None
        if reason := wrong_speeds(speeds):
            self._complain(name, "was not probed", reason)
            return None
        return believed(speeds, self._batch)

    @property
    def _batch(self) -> int:
        return self._roster.spec(self._served.task).training.batch

    async def _train(
        self, order: Order, sent: Parameters, deadline_s: float, began: float
    ) -> Updates | Lost:
        name, way = self.learners[order.learner], self._served.ways[order.option]
        request = await self._request(order, deadline_s, began)
        within_s = request.deadline_s + (self._patience - 1) * self._deadline_s
        try:
            update = await self._call(name, "train", request, within_s=within_s)
        except CallTimeout as error:
            after_s = deadline_s * self._patience
            if away := self._roster.attendance.reason(name):
                return Lost(learner=order.learner, reason=away, after_s=after_s)
            self._claims.miss(name)
            return self.failed(order.learner, error, after_s, name)
        except RpcError as error:
            return self.failed(order.learner, error, time.monotonic() - began, name)
        took_s = time.monotonic() - began
        try:
            update = await asyncio.to_thread(
                self._served.opened, update, name, sent, request.cycle, order.option
            )
            before = await asyncio.to_thread(way.up, sent)
        except DataError as error:
            return refused(order.learner, str(error), took_s)
        outcome = await judged(
            update,
            request,
            learner=order.learner,
            name=name,
            sent=before,
            after_s=took_s,
            audit=self._audit,
        )
        if isinstance(outcome, Updates):
            (report,) = outcome.reports
            self._claims.see(
                name,
                Done(
                    given=request.samples,
                    samples=report.samples,
                    passes=min(
                        report.batches * self._batch, request.samples * request.steps
                    ),
                    took_s=took_s,
                    option=order.option,
                ),
            )
            return replace(outcome, part=way.part)
        return outcome

    def _cycle_of(self, order: Order) -> int:
        """Return the cycle under which an order's model is served."""
        return self._served.cycle

    async def _request(
        self, order: Order, deadline_s: float, began: float
    ) -> TrainRequest:
        """Return an order as its learner gets it, with the time that is left for it.

        Gigabytes take seconds to hash, once: the loop answers pings meanwhile.
        """
        cycle = self._cycle_of(order)
        if order.correction is not None:
            name = self.learners[order.learner]
            self._served.corrections[name] = order.correction
        if order.rows is not None:
            await asyncio.to_thread(self._served.store.keys, order.rows)
        left_s = max(LEAST_S, deadline_s - (time.monotonic() - began))
        return self._served.request(order, left_s, self._late, cycle)


async def until_enough(
    arriving: AsyncGenerator[Updates | Lost],
    learners: Sequence[int],
    enough: int,
    began: float,
) -> AsyncGenerator[Updates | Lost]:
    """Yield results until so many updates are there; the rest is lost, and stopped."""
    waiting, left = set(learners), enough
    async with aclosing(arriving):
        async for result in arriving:
            found = result.reports if isinstance(result, Updates) else [result]
            waiting -= {one.learner for one in found}
            left -= isinstance(result, Updates)
            yield result
            if not left:
                break
    after_s = time.monotonic() - began
    for learner in sorted(waiting):
        yield Lost(learner=learner, reason=NOT_NEEDED, after_s=after_s)


async def as_they_arrive(
    work: Sequence[Coroutine[Any, Any, Updates | Lost]],
) -> AsyncGenerator[Updates | Lost]:
    """Yield results in the order of arrival; cancel the rest when nobody listens."""
    tasks = [asyncio.create_task(asking) for asking in work]
    try:
        for arrived in asyncio.as_completed(tasks):
            yield await arrived
    finally:
        for task in tasks:
            task.cancel()
