"""A fleet of whoever dialled in: real devices, or processes on this machine.

A cycle starts with a muster: who is connected gets ready, benchmarks itself if it has
not yet, and takes part. A learner that is slow, frozen, gone or wrong costs its share
of the cycle and nothing else: at the deadline the cycle goes on without it.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import numpy as np

from melisma import rpc
from melisma.errors import CallTimeout, RpcError, TrainingError
from melisma.learning.parameters import Parameters, stacked
from melisma.learning.shards import Shard, Shelf
from melisma.maths.arrays import Ints
from melisma.runtime.fleet import Lost, Order, Report, Updates
from melisma.runtime.wire import Brief, Errand, Ready, Speeds, Update
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.runtime")

#: Longest that a learner may take to get ready, and to benchmark itself.
PREPARE_S, MEASURE_S = 60.0, 300.0
#: Refused updates after which a learner is sent away.
OFFENCES = 3


class Stock:
    """What learners fetch from the orchestrator: the model, and shards."""

    def __init__(self, parameters: Parameters, shelf: Shelf) -> None:
        self._cycle, self._parameters, self._shelf = 0, parameters, shelf

    def renew(self, cycle: int, parameters: Parameters) -> None:
        """Have the model of a new cycle ready."""
        self._cycle, self._parameters = cycle, parameters

    @rpc.expose(idempotent=True)
    def parameters(self, cycle: int) -> Parameters:
        """Return the model as it stands; TrainingError for a cycle that is over."""
        if cycle not in (0, self._cycle):
            raise TrainingError(f"cycle {cycle} is over: this is cycle {self._cycle}")
        return self._parameters

    @rpc.expose(idempotent=True)
    def shards(self, keys: list[str]) -> list[Shard]:
        """Return shards by the hash of their content."""
        return self._shelf.take(keys)


class LiveFleet:
    """The learners that dialled ``server``."""

    def __init__(
        self,
        server: rpc.Server,
        stock: Stock,
        shelf: Shelf,
        *,
        brief: Brief,
        least: int,
        sample_keys: Sequence[str],
        halt: bool = True,
        at_once: int = 64,
        began_s: float = 0.0,
        done: int = 0,
    ) -> None:
        self.learners: list[str] = []
        self._server, self._stock, self._shelf, self._brief = (
            server,
            stock,
            shelf,
            brief,
        )
        self._least, self._sample_keys, self._halt = least, list(sample_keys), halt
        self._speeds: dict[str, Speeds] = {}
        self._offences: Counter[str] = Counter()
        self._measuring = asyncio.Semaphore(at_once)
        self._cycle = done
        self._began = time.monotonic() - began_s

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    async def muster(self) -> None:
        """Take in all who are connected and ready; wait until enough are."""
        while True:
            peers: rpc.Group = await self._server.wait_until(self._least)
            there = [name for name in peers if "carry_out" in peers[name].functions]
            ready = await asyncio.gather(*(self._get_ready(peers[n]) for n in there))
            self.learners = [n for n, yes in zip(there, ready, strict=True) if yes]
            if len(self.learners) >= self._least:
                return
            await asyncio.sleep(1.0)  # they may be on their way

    async def _get_ready(self, peer: rpc.Peer) -> bool:
        try:
            ready: Ready = await peer.prepare.within(PREPARE_S)(self._brief)
            if not ready.measured:
                async with self._measuring:
                    await peer.measure.within(MEASURE_S)(self._sample_keys)
            if not self._brief.private:
                self._speeds[peer.name] = await peer.speeds.within(PREPARE_S)()
        except RpcError as error:
            log.warning("%s does not take part: %s", peer.name, error)
            return False
        return True

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
                return int(await peer.bid.within(PREPARE_S)(deadline_s, steps))
            except RpcError as error:
                log.warning("%s does not bid: %s", name, error)
                return 0

        return np.array(await asyncio.gather(*map(bid, self.learners)), dtype=np.int64)

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
            if len(order.rows)
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
        errand = Errand(
            cycle=self._cycle,
            keys=self._shelf.keys(order.rows),
            steps=order.steps,
            deadline_s=deadline_s - (time.monotonic() - began),
            halt=self._halt,
        )
        reason = ""
        try:
            peer = self._server.peers[name]
            update: Update = await peer.carry_out.within(errand.deadline_s)(errand)
            reason = wrong_with(update, errand, sent, len(order.rows))
        except CallTimeout:
            reason = "not there by the deadline"
        except RpcError as error:
            reason = f"lost: {error}"
        else:
            if reason:
                self._offend(name, reason)
        after_s = time.monotonic() - began
        if reason:
            return Lost(learner=order.learner, reason=reason, after_s=after_s)
        return Updates(
            [
                Report(
                    learner=order.learner,
                    downloaded_s=_not_after(update.downloaded_s, after_s),
                    trained_s=_not_after(update.trained_s, after_s),
                    uploaded_s=after_s,
                    samples=update.samples,
                    batches=update.batches,
                    loss=update.loss,
                    halted=update.halted,
                )
            ],
            stacked([update.parameters]),
        )

    def _offend(self, name: str, reason: str) -> None:
        self._offences[name] += 1
        log.warning("an update of %s is refused: %s", name, reason)
        if self._offences[name] >= OFFENCES:
            self._server.expel(name, f"{OFFENCES} updates were refused")


def wrong_with(update: object, errand: Errand, sent: Parameters, rows: int) -> str:
    """Return why an update cannot be what was asked for, or nothing."""
    if not isinstance(update, Update):
        return "not an update"
    if update.cycle != errand.cycle:
        return f"an update of cycle {update.cycle}"
    if {n: (t.shape, t.dtype) for n, t in update.parameters.items()} != {
        n: (t.shape, t.dtype) for n, t in sent.items()
    }:
        return "parameters of another model"
    if not 0 <= update.samples <= rows:
        return f"{update.samples} samples claimed of {rows} given"
    return ""


def _not_after(told_s: float | None, after_s: float) -> float:
    """Return when something happened: as told, if that can be, or at the latest."""
    return after_s if told_s is None or not 0 <= told_s <= after_s else told_s
