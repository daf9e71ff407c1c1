"""A fleet of whoever dialled in: real devices, or processes on this machine.

A cycle starts with a muster: who is connected gets ready, benchmarks itself if it has
not yet, and takes part. A learner that is slow, frozen, gone or wrong costs its share
of the cycle and nothing else: at the deadline the cycle goes on without it, and no
muster waits for it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence

import numpy as np

from melisma import rpc
from melisma.errors import (
    CallTimeout,
    ConfigError,
    ProtocolError,
    RemoteError,
    RpcError,
    TrainingError,
)
from melisma.learning.parameters import Parameters, stacked
from melisma.learning.settings import Late
from melisma.learning.shards import Shard, Shelf
from melisma.maths.arrays import Bytes, Ints
from melisma.runtime.audit import Audit
from melisma.runtime.fleet import NOT_THERE, Lost, Order, Report, Updates
from melisma.runtime.wire import Brief, Errand, Ready, Speeds, Unprepared, Update
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.runtime")

#: Longest that a learner may take to get ready, and to benchmark itself.
PREPARE_S, MEASURE_S = 60.0, 300.0
#: Longest that a cycle's start waits for an answer of one that answered before.
HURRY_S = 3.0
#: Between two looks at who is there.
LOOK_S = 1.0


class Stock:
    """What learners fetch from the orchestrator: the model, and shards."""

    def __init__(self, parameters: Parameters, shelf: Shelf) -> None:
        self._cycle, self._parameters, self.shelf = 0, parameters, shelf
        self._bytes = sum(tensor.nbytes for tensor in parameters.values())

    def renew(self, cycle: int, parameters: Parameters) -> None:
        """Have the model of a new cycle ready."""
        self._cycle, self._parameters = cycle, parameters

    @rpc.expose(idempotent=True)
    def parameters(self, cycle: int) -> Parameters:
        """Return the model as it stands; TrainingError for a cycle that is over."""
        if cycle != self._cycle:
            raise TrainingError(f"cycle {cycle} is over: this is cycle {self._cycle}")
        return self._parameters

    @rpc.expose(idempotent=True)
    def shards(self, keys: list[str]) -> list[Shard]:
        """Return shards by the hash of their content."""
        return self.shelf.take(keys)

    @rpc.expose(idempotent=True)
    def filler(self, size: int) -> Bytes:
        """Return so many bytes that mean nothing, up to the model's size."""
        if not 0 <= size <= self._bytes:
            raise ConfigError(f"{size} bytes of nothing: ask for up to {self._bytes}")
        return np.zeros(size, dtype=np.uint8)


class LiveFleet:
    """The learners that dialled ``server``; ``least`` of them to start with."""

    def __init__(
        self,
        server: rpc.Server,
        stock: Stock,
        *,
        brief: Brief,
        least: int,
        benchmark: Sequence[str],
        late: Late = Late.HALT,
        audit: Audit | None = None,
        at_once: int = 64,
        began_s: float = 0.0,
        done: int = 0,
    ) -> None:
        self.learners: list[str] = []
        self.own_samples: list[int] | None = None
        self._server, self._stock, self._brief = server, stock, brief
        self._least, self._benchmark = least, list(benchmark)
        self._late, self._audit = late, audit
        self._preparing: dict[str, asyncio.Task[Ready | None]] = {}
        self._complaints: dict[str, str] = {}
        self._speeds: dict[str, Speeds] = {}
        self._measuring = asyncio.Semaphore(at_once)
        self._cycle = done
        self._began = time.monotonic() - began_s

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def expel(self, name: str, reason: str) -> None:
        """Send a learner away, and let it in no more."""
        log.warning("%s is sent away: %s", name, reason)
        self._server.expel(name, reason)

    async def muster(self) -> None:
        """Take in all who are ready; wait for enough at the start, then for anybody.

        Who was there before has HURRY_S to answer. Newcomers benchmark themselves
        meanwhile, and take part as soon as they are done.
        """
        ready: dict[str, Ready] = {}
        while True:
            self._prepare_all(await self._server.wait_until(1), ready)
            before = [self._preparing[n] for n in self.learners if n in self._preparing]
            if before:
                await asyncio.wait(before, timeout=HURRY_S)
                self.learners = []  # who has not answered by now keeps nobody waiting
            ready |= self._ready()
            if len(ready) >= self._least:
                break
            pause = asyncio.create_task(asyncio.sleep(LOOK_S))
            await asyncio.wait(
                [pause, *self._preparing.values()], return_when="FIRST_COMPLETED"
            )
        self._least = 1
        self.learners = sorted(ready)
        if self._brief.federated:
            self.own_samples = [ready[name].samples or 0 for name in self.learners]

    def _prepare_all(self, peers: rpc.Group, ready: dict[str, Ready]) -> None:
        for name in peers:
            known = name in ready or name in self._preparing
            if not known and "carry_out" in peers[name].functions:
                self._preparing[name] = asyncio.create_task(self._prepare(peers[name]))

    def _ready(self) -> dict[str, Ready]:
        """Take those who have answered off the list, and return who can take part."""
        done = {name: task for name, task in self._preparing.items() if task.done()}
        for name in done:
            del self._preparing[name]
        answers = {name: task.result() for name, task in done.items()}
        return {name: answer for name, answer in answers.items() if answer}

    async def _prepare(self, peer: rpc.Peer) -> Ready | None:
        """Get one learner ready; None, and a word in the log, if it cannot be."""
        name: str = peer.name
        try:
            ready: Ready = await peer.prepare.within(PREPARE_S)(self._brief)
            if not ready.measured:
                async with self._measuring:
                    await peer.measure.within(MEASURE_S)(self._benchmark)
            if not self._brief.private:
                self._speeds[name] = await peer.speeds.within(PREPARE_S)()
        except RpcError as error:
            self._complain(name, f"does not take part: {error}")
            return None
        self._complaints.pop(name, None)
        return ready

    def _complain(self, name: str, what: str) -> None:
        """Say it once."""
        if self._complaints.get(name) != what:
            log.warning("%s %s", name, what)
        self._complaints[name] = what

    async def law(self) -> DelayLaw:
        """The learners' delay laws, as each of them measured itself."""
        speeds = [self._speeds[name] for name in self.learners]
        return DelayLaw(
            step_s=np.array([s.step_s for s in speeds]),
            sample_s=np.array([s.sample_s for s in speeds]),
            fixed_s=np.array([s.fixed_s for s in speeds]),
        )

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Ask each learner how many shards it will take; 0 of one that does not say."""

        async def bid(name: str) -> int:
            try:
                peer = self._server.peers[name]
                return max(0, int(await peer.bid.within(HURRY_S)(deadline_s, steps)))
            except (RpcError, TypeError, ValueError, OverflowError) as error:
                self._complain(name, f"does not bid: {error}")
                return 0

        bids = await asyncio.gather(*map(bid, self.learners))
        return np.array([min(bid, _MOST) for bid in bids], dtype=np.int64)

    async def carry_out(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Send everybody on an errand; yield what comes back until the deadline."""
        self._cycle += 1
        self._stock.renew(self._cycle, parameters)
        began = time.monotonic()
        waiting = [
            asyncio.ensure_future(self._errand(order, parameters, deadline_s, began))
            for order in orders
            if order.samples
        ]
        try:
            for arrived in asyncio.as_completed(waiting):
                yield await arrived
        finally:
            for task in waiting:
                task.cancel()

    async def _errand(
        self, order: Order, sent: Parameters, deadline_s: float, began: float
    ) -> Updates | Lost:
        name = self.learners[order.learner]
        rows = order.rows
        errand = Errand(
            cycle=self._cycle,
            keys=[] if rows is None else self._stock.shelf.keys(rows),
            samples=order.samples,
            steps=order.steps,
            deadline_s=max(0.001, deadline_s - (time.monotonic() - began)),
            late=self._late.value,
        )
        try:
            update = await self._ask(name, errand)
        except CallTimeout:
            return Lost(learner=order.learner, reason=NOT_THERE, after_s=deadline_s)
        except RpcError as error:
            wrong = _is_wrong(error)
            return Lost(
                learner=order.learner,
                reason=f"{'failed' if wrong else 'lost'}: {error}",
                after_s=time.monotonic() - began,
                offence=wrong,
            )
        after_s = time.monotonic() - began
        reason, distance = wrong_with(update, errand, sent), None
        if not reason and self._audit:
            reason, distance = await self._audit(name, errand, update, sent)
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
            downloaded_s=_not_after(update.downloaded_s, after_s),
            trained_s=_not_after(update.trained_s, after_s),
            uploaded_s=after_s,
            samples=update.samples,
            batches=update.batches,
            loss=update.loss,
            halted=update.halted,
            distance=distance,
        )
        return Updates([report], stacked([update.parameters]))

    async def _ask(self, name: str, errand: Errand) -> Update:
        function = self._server.peers[name].carry_out
        if errand.late != Late.WAIT:
            function = function.within(errand.deadline_s)
        update: Update = await function(errand)
        return update


def _is_wrong(error: RpcError) -> bool:
    """Whether who failed so was there, and should have done better."""
    if isinstance(error, RemoteError):
        return error.type != Unprepared.__name__
    return isinstance(error, ProtocolError)


def wrong_with(update: object, errand: Errand, sent: Parameters) -> str:
    """Return why an update cannot be what was asked for, or nothing."""
    if not isinstance(update, Update):
        return "not an update"
    if update.cycle != errand.cycle:
        return f"an update of cycle {update.cycle}"
    if {n: (t.shape, t.dtype) for n, t in update.parameters.items()} != {
        n: (t.shape, t.dtype) for n, t in sent.items()
    }:
        return "parameters of another model"
    if not 0 <= update.samples <= errand.samples:
        return f"{update.samples} samples claimed of {errand.samples} given"
    if not (update.samples > 0) <= update.batches <= errand.samples * errand.steps:
        return f"{update.batches} batches claimed for {errand.samples} samples"
    return ""


def _not_after(told_s: float | None, after_s: float) -> float:
    """Return when something happened: as told, if that can be, or at the latest."""
    return after_s if told_s is None or not 0 <= told_s <= after_s else told_s


#: More shards than anybody has: what a bid without measure is taken for.
_MOST = 1 << 40
