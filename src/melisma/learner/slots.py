"""A cycle of slots on a device of a fog: collect, send, train, return the model."""

import threading
import zlib
from collections.abc import Callable

import numpy as np

from melisma.fleets.batches import batch_order
from melisma.fleets.messages import SlotDone, SlotRequest, Update
from melisma.learner.delivery import Inbox, Routes
from melisma.learner.device import Device, Link, WarmTask
from melisma.learner.memory import told_if_short
from melisma.learner.source import Caller, Relay, Source
from melisma.learning.parameters import sendable
from melisma.learning.samples import Arrays, Samples, joined, transformed
from melisma.learning.shards import Shard
from melisma.learning.training import Session, batch_plan
from melisma.schemes.dab import safely
from melisma.system.streams import Stream


class Slots:
    """One cycle, from the model's arrival to its return."""

    def __init__(
        self,
        device: Device,
        task: WarmTask,
        cycle: int,
        due: int,
        inbox: Inbox,
        routes: Routes,
        source: Source,
    ) -> None:
        self._device, self._task, self.cycle = device, task, cycle
        self.due = due  #: the slot that comes next
        self._inbox, self._routes = inbox, routes
        self._began = device.clock()
        task.load(Link(device, task, source, 0.0).parameters(cycle), cycle)
        self._downloaded_s = device.clock() - self._began
        self._session = Session(task.model, task.training.at(cycle))
        seed = [task.spec.seed, Stream.SPLIT, zlib.crc32(device.name.encode())]
        #: The order in which this device collects its own data.
        self._order = np.random.default_rng(seed).permutation(len(device.data().train))

    def slot(
        self,
        request: SlotRequest,
        caller: Caller,
        relay: Relay,
        cancelled: Callable[[], bool],
    ) -> SlotDone:
        """Send samples and train on the others until the slot ends."""
        end = self._device.clock() + safely(request.ends_s)
        link = Link(self._device, self._task, caller.source, request.ends_s)
        own = self._device.data().train
        rows = self._order[request.skipped : request.skipped + request.collected]
        parts = np.split(rows, np.cumsum([request.kept, *request.sent.values()]))
        self._inbox.advance(request.task, request.slot)
        arrived = self._inbox.take(request.task, request.slot - 1, request.arrived)
        outgoing = [own[part] for part in parts[1:-1]]
        shards = dict(zip(request.sent, outgoing, strict=True))
        sending = _Sending(
            lambda to, shard, within_s: self._routes.send(
                relay, request.task, request.slot, to, shard, within_s
            ),
            link,
            shards,
            end,
            self._device.clock,
        )
        due = Arrays(joined([own[parts[0]], *arrived]))
        examples = transformed(due, self._task.transform)
        trained = self._train(examples, request.slot, link, end, cancelled)
        sending.join(max(0.0, end - self._device.clock()))
        delivered = dict(sending.delivered)
        if unsent := [shards[name] for name in request.sent if name not in delivered]:
            name = self._device.name
            self._inbox.keep(request.task, request.slot, name, joined(unsent))
        return SlotDone(
            slot=request.slot,
            trained=trained,
            delivered={name: request.sent[name] for name in delivered},
            directly=[name for name, directly in delivered.items() if directly],
        )

    def _train(
        self,
        examples: Samples,
        slot: int,
        link: Link,
        end: float,
        cancelled: Callable[[], bool],
    ) -> int:
        """Train until ``end``; return how many new samples were seen."""
        spec, clock = self._task.spec, self._device.clock
        rng = batch_order(spec.seed, slot, self._device.name)
        rows = np.arange(len(examples))
        plan = batch_plan(rows, spec.steps, self._task.training, rng)
        sizes, batch = (plan >= 0).sum(axis=1).tolist(), 0

        def halt() -> bool:
            nonlocal batch
            if cancelled() or clock() >= end:
                return True
            link.throttle.batch(sizes[batch])
            batch += 1
            return clock() >= end

        before, passes, began = self._session.trained(), self._session.passes, clock()
        with told_if_short(self._task, examples):
            self._session.train(examples, plan, halt)
        self._task.speed.trained(self._session.passes - passes, clock() - began)
        return self._session.trained().samples - before.samples

    def update(self, source: Source) -> Update:
        """Return the model of all slots, once a device of this rate had sent it."""
        clock = self._device.clock
        update = Update(
            **self._session.trained().fields(),
            cycle=self.cycle,
            parameters=sendable(self._task.model),
            downloaded_s=self._downloaded_s,
            trained_s=clock() - self._began,
        )
        link = Link(self._device, self._task, source, 0.0)
        link.sent(self._task.speed.model_bytes, clock())
        return update


#: Delivers a shard within some seconds: directly, by the orchestrator, or not (None).
Send = Callable[[str, Shard, float], bool | None]


class _Sending(threading.Thread):
    """Sends samples to one device after the other while this one trains."""

    def __init__(
        self,
        send: Send,
        link: Link,
        shards: dict[str, Shard],
        end: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name="sending", daemon=True)
        self.delivered: dict[str, bool] = {}  #: by receiver: whether directly
        self._send, self._link, self._shards = send, link, shards
        self._clock, self._within_s = clock, max(0.01, end - clock())
        self.start()

    def run(self) -> None:
        """Send all shards."""
        for to, shard in self._shards.items():
            began = self._clock()
            directly = self._send(to, shard, self._within_s)
            self._link.sent(sum(part.nbytes for part in shard.values()), began)
            if directly is not None:
                self.delivered[to] = directly
