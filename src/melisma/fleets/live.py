"""A fleet of learners that are called: devices, processes here, nodes of a cluster.

A learner that is slow, frozen, gone or wrong costs its share of the cycle and nothing
else: at the deadline the cycle goes on without it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from melisma import rpc
from melisma.errors import (
    CallTimeout,
    ConfigError,
    DataError,
    ProtocolError,
    RemoteError,
    RpcError,
    TrainingError,
)
from melisma.fleets.audit import Audit
from melisma.fleets.messages import Speeds, TrainRequest, Unprepared, Update
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Probed, Report, Updates
from melisma.fleets.roster import HURRY_S, Roster
from melisma.learning.parameters import Parameters, stacked
from melisma.learning.settings import Late
from melisma.learning.shards import Shard, ShardStore
from melisma.maths.arrays import Bytes, Ints
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.orchestrator")


@dataclass(slots=True)
class ServedTask:
    """What learners fetch for one task: the model of its cycle, and shards."""

    task: str
    parameters: Parameters
    shelf: ShardStore
    cycle: int = 0

    def renew(self, cycle: int, parameters: Parameters) -> None:
        """Have the model of a new cycle ready."""
        self.cycle, self.parameters = cycle, parameters


class ModelServer:
    """What learners fetch from the orchestrator, for each of its tasks."""

    def __init__(self, served: Iterable[ServedTask]) -> None:
        self._served = {one.task: one for one in served}

    @rpc.expose(idempotent=True)
    def parameters(self, task: str, cycle: int) -> Parameters:
        """Return the model as it stands; TrainingError for a cycle that is over."""
        served = self._of(task)
        if cycle != served.cycle:
            raise TrainingError(f"cycle {cycle} is over: this is cycle {served.cycle}")
        return served.parameters

    @rpc.expose(idempotent=True)
    def shards(self, task: str, keys: list[str]) -> list[Shard]:
        """Return shards by the hash of their content."""
        return self._of(task).shelf.take(keys)

    @rpc.expose(idempotent=True)
    def filler(self, task: str, size: int) -> Bytes:
        """Return so many bytes that mean nothing, up to the model's size."""
        most = sum(tensor.nbytes for tensor in self._of(task).parameters.values())
        if not 0 <= size <= most:
            raise ConfigError(f"{size} bytes of nothing: ask for up to {most}")
        return np.zeros(size, dtype=np.uint8)

    def _of(self, task: str) -> ServedTask:
        if task not in self._served:
            raise DataError(f"there is no task {task!r}")
        return self._served[task]


class LiveLearners:
    """One task's learners, of a roster that several tasks may share."""

    def __init__(
        self,
        roster: Roster,
        served: ServedTask,
        *,
        late: Late = Late.HALT,
        audit: Audit | None = None,
        began_s: float = 0.0,
    ) -> None:
        #: Says before each cycle who takes part; everybody, if there is none.
        self.gather: Callable[[], Awaitable[Ints]] | None = None
        self.members: Ints = np.zeros(0, dtype=np.int64)  #: places in the roster
        self.learners: list[str] = []
        self.own_samples: list[int] | None = None
        self._roster, self._served = roster, served
        self._late, self._audit = late, audit
        self._began = time.monotonic() - began_s
        self._cycle_began: float | None = None  # where a probe began it

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def cycle(self) -> int:
        """The cycle whose model can be fetched."""
        return self._served.cycle

    def wait_until(self, time_s: float) -> None:
        """Real time passes by itself."""

    def expel(self, name: str, reason: str) -> None:
        """Send a learner away, and let it in no more."""
        log.warning("%s is sent away: %s", name, reason)
        self._roster.server.expel(name, reason)

    async def ready(self) -> None:
        """Everybody who is ready, or those whom ``gather`` names."""
        roster = self._roster
        if self.gather:
            self.members = await self.gather()
            self.learners = [roster.known[j] for j in self.members]
            return
        self.learners = await roster.ready(self._served.task)
        own = [roster.present[name].samples for name in self.learners]
        self.own_samples = [n for n in own if n is not None] or None

    async def law(self) -> DelayLaw:
        """The learners' delay laws, as each of them measured itself."""
        task = self._served.task
        return law_of([self._roster.speeds(task, name) for name in self.learners])

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Ask each learner how many shards it will take; 0 of one that does not say."""

        async def bid(name: str) -> int:
            try:
                ask = self._roster.server.peers[name].bid.within(HURRY_S)
                return max(0, int(await ask(self._served.task, deadline_s, steps)))
            except (RpcError, TypeError, ValueError, OverflowError) as error:
                self._roster.complain(name, f"does not bid: {error}")
                return 0

        bids = await asyncio.gather(*map(bid, self.learners))
        return np.array([min(bid, _MOST) for bid in bids], dtype=np.int64)

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Send everybody on a request; yield what comes back until the deadline."""
        began, self._cycle_began = self._cycle_began, None
        if began is None:
            began = self.begin(parameters)
        waiting = [
            asyncio.ensure_future(self._trained(order, parameters, deadline_s, began))
            for order in orders
            if order.samples
        ]
        try:
            for arrived in asyncio.as_completed(waiting):
                yield await arrived
        finally:
            for task in waiting:
                task.cancel()

    async def probe(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> Probed:
        """Have everybody begin, and tell how fast it goes.

        Who has not told when half of the time is over is at best as fast as that.
        """
        began = self._cycle_began = self.begin(parameters)
        began_s, after_s = self.now_s(), deadline_s / 2
        asked = {
            order.learner: asyncio.create_task(self._probe(order, deadline_s, began))
            for order in orders
        }
        await asyncio.wait(asked.values(), timeout=after_s)
        told = {k: ask.result() if ask.done() else None for k, ask in asked.items()}
        for order in orders:
            if not asked[order.learner].done():
                slow = after_s / (order.samples * order.steps)
                told[order.learner] = Speeds(step_s=slow, sample_s=0.0, fixed_s=after_s)
        there = [k for k, speeds in told.items() if speeds is not None]
        return Probed(
            there=np.array(there, dtype=np.int64),
            law=law_of([speeds for speeds in told.values() if speeds is not None]),
            began_s=began_s,
        )

    async def _probe(
        self, order: Order, deadline_s: float, began: float
    ) -> Speeds | None:
        """Have one learner begin; None, and a word in the log, if it does not."""
        name = self.learners[order.learner]
        try:
            ask = self._roster.server.peers[name].probe.within(deadline_s)
            speeds: Speeds = await ask(self._request_of(order, deadline_s, began))
        except RpcError as error:
            self._roster.complain(name, f"was not probed: {error}")
            return None
        return speeds

    def begin(self, parameters: Parameters) -> float:
        """Have the next cycle's model ready; return when that is."""
        self._served.renew(self._served.cycle + 1, parameters)
        return time.monotonic()

    def _request_of(
        self, order: Order, deadline_s: float, began: float
    ) -> TrainRequest:
        rows = order.rows
        return TrainRequest(
            task=self._served.task,
            cycle=self._served.cycle,
            keys=[] if rows is None else self._served.shelf.keys(rows),
            samples=order.samples,
            steps=order.steps,
            deadline_s=max(0.001, deadline_s - (time.monotonic() - began)),
            late=self._late.value,
            first=order.begun,
        )

    async def _trained(
        self, order: Order, sent: Parameters, deadline_s: float, began: float
    ) -> Updates | Lost:
        name = self.learners[order.learner]
        request = self._request_of(order, deadline_s, began)
        try:
            update = await self._ask(name, request)
        except CallTimeout:
            return Lost(learner=order.learner, reason=NOT_THERE, after_s=deadline_s)
        except RpcError as error:
            wrong = is_wrong(error)
            return Lost(
                learner=order.learner,
                reason=f"{'failed' if wrong else 'lost'}: {error}",
                after_s=time.monotonic() - began,
                offence=wrong,
            )
        after_s = time.monotonic() - began
        reason, distance = wrong_with(update, request, sent), None
        if not reason and self._audit:
            reason, distance = await self._audit(name, request, update, sent)
        if reason:
            return Lost(
                learner=order.learner,
                reason=reason,
                after_s=after_s,
                offence=True,
                distance=distance,
            )
        report = Report(
            learner=order.learner,
            downloaded_s=not_after(update.downloaded_s, after_s),
            trained_s=not_after(update.trained_s, after_s),
            uploaded_s=after_s,
            samples=update.samples,
            batches=update.batches,
            loss=update.loss,
            halted=update.halted,
            distance=distance,
        )
        return Updates([report], stacked([update.parameters]))

    async def _ask(self, name: str, request: TrainRequest) -> Update:
        function = self._roster.server.peers[name].train
        if request.late != Late.WAIT:
            function = function.within(request.deadline_s)
        update: Update = await function(request)
        return update


def law_of(speeds: Sequence[Speeds]) -> DelayLaw:
    """Return the delay law of learners that told their speeds."""
    return DelayLaw(
        step_s=np.array([told.step_s for told in speeds]),
        sample_s=np.array([told.sample_s for told in speeds]),
        fixed_s=np.array([told.fixed_s for told in speeds]),
    )


def is_wrong(error: RpcError) -> bool:
    """Whether who failed so was there, and should have done better."""
    if isinstance(error, RemoteError):
        return error.type != Unprepared.__name__
    return isinstance(error, ProtocolError)


def wrong_with(update: object, request: TrainRequest, sent: Parameters) -> str:
    """Return why an update cannot be what was asked for, or nothing."""
    if not isinstance(update, Update):
        return "not an update"
    if update.cycle != request.cycle:
        return f"an update of cycle {update.cycle}"
    if not same_model(update.parameters, sent):
        return "parameters of another model"
    if not 0 <= update.samples <= request.samples:
        return f"{update.samples} samples claimed of {request.samples} given"
    if not (update.samples > 0) <= update.batches <= request.samples * request.steps:
        return f"{update.batches} batches claimed for {request.samples} samples"
    return ""


def same_model(one: Parameters, other: Parameters) -> bool:
    """Whether parameters have the same names, shapes and types."""
    shapes, others = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in some.items()}
        for some in (one, other)
    )
    return shapes == others


def not_after(told_s: float | None, after_s: float) -> float:
    """Return when something happened: as told, if that can be, or at the latest."""
    return after_s if told_s is None or not 0 <= told_s <= after_s else told_s


#: More shards than anybody has: what a bid without measure is taken for.
_MOST = 1 << 40
