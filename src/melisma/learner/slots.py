"""A cycle of slots on a device of a fog: collect, hand on, train, hand in."""

import threading
import zlib
from collections.abc import Callable

import numpy as np

from melisma.fleets.messages import SlotDone, SlotRequest, Update
from melisma.learner.delivery import Inbox, Routes
from melisma.learner.training import Device, Link, WarmTask, batch_order, safely
from melisma.learning.parameters import parameters_of, put
from melisma.learning.shards import Examples, Shard, joined, packed, unpacked
from melisma.learning.training import Session, batch_plan
from melisma.system.streams import Stream


class Slots:
    """One cycle, from the model's arrival to its return."""

    def __init__(
        self, device: Device, kept: WarmTask, cycle: int, inbox: Inbox, ways: Routes
    ) -> None:
        self._device, self._kept, self.cycle = device, kept, cycle
        self._inbox, self._ways = inbox, ways
        self._began = device.clock()
        put(Link(device, kept, 0.0).fetch("parameters", cycle), kept.model)
        kept.loaded = None  # training changes it
        self._downloaded_s = device.clock() - self._began
        self._session = Session(kept.model, kept.training)
        self._due = 0
        spec = kept.spec
        seed = [spec.seed, Stream.SPLIT, zlib.crc32(device.name.encode())]
        #: The order in which this device collects its own data.
        self._order = np.random.default_rng(seed).permutation(
            len(device.data().train_y)
        )

    def slot(self, request: SlotRequest, cancelled: Callable[[], bool]) -> SlotDone:
        """Hand samples on and train on the others until the slot ends."""
        end = self._device.clock() + safely(request.ends_s)
        line = Link(self._device, self._kept, request.ends_s)
        own = self._device.data()
        rows = self._order[request.skipped : request.skipped + request.collected]
        parts = np.split(rows, np.cumsum([request.kept, *request.sent.values()]))
        arrived = self._inbox.take(request.task, request.slot - 1, request.arrived)
        outgoing = [
            packed(own.train_x[part], own.train_y[part]) for part in parts[1:-1]
        ]
        shards = dict(zip(request.sent, outgoing, strict=True))
        handing = _Handing(
            self._ways, line, request, shards, end - self._device.clock()
        )
        mine = packed(own.train_x[parts[0]], own.train_y[parts[0]])
        trained = self._train(unpacked([mine, *arrived]), request, line, end, cancelled)
        handing.join(max(0.0, end - self._device.clock()))
        if back := [shards[name] for name in request.sent if name not in handing.how]:
            self._inbox.put(request.task, request.slot, self._device.name, joined(back))
        return SlotDone(
            slot=request.slot,
            trained=trained,
            delivered={name: request.sent[name] for name in handing.how},
            directly=[name for name, directly in handing.how.items() if directly],
        )

    def _train(
        self,
        examples: Examples,
        request: SlotRequest,
        line: Link,
        end: float,
        cancelled: Callable[[], bool],
    ) -> int:
        kept, clock = self._kept, self._device.clock
        rng = batch_order(kept.spec, request.slot, self._device.name)
        every = np.arange(len(examples[1]))
        plan = batch_plan(every, kept.spec.steps, kept.training, rng)
        self._due += len(plan)
        sizes, batch = (plan >= 0).sum(axis=1).tolist(), 0

        def halt() -> bool:
            nonlocal batch
            if cancelled() or clock() >= end:
                return True
            line.pace.batch(sizes[batch])
            batch += 1
            return clock() >= end

        before, passes, began = self._session.trained(), self._session.passes, clock()
        self._session.train(*examples, plan, halt)
        kept.speed.trained(self._session.passes - passes, clock() - began)
        return self._session.trained().samples - before.samples

    def update(self) -> Update:
        """The model of all slots; returns when a slow device would have sent it."""
        trained_s, trained = self._device.clock() - self._began, self._session.trained()
        update = Update(
            cycle=self.cycle,
            parameters=parameters_of(self._kept.model),
            samples=trained.samples,
            batches=trained.batches,
            loss=trained.loss,
            halted=trained.batches < self._due,
            downloaded_s=self._downloaded_s,
            trained_s=trained_s,
        )
        line = Link(self._device, self._kept, 0.0)
        line.pace.transferred(self._kept.speed.model_bytes, self._device.clock())
        return update


class _Handing(threading.Thread):
    """Hands samples on while the device trains."""

    def __init__(
        self,
        ways: Routes,
        line: Link,
        request: SlotRequest,
        shards: dict[str, Shard],
        within_s: float,
    ) -> None:
        super().__init__(name="handing on", daemon=True)
        self.how: dict[str, bool] = {}  #: who has its samples, and whether directly
        self._ways, self._line, self._request = ways, line, request
        self._shards, self._within_s = shards, max(0.01, within_s)
        self.start()

    def run(self) -> None:
        """Deliver to one after the other."""
        task, slot, clock = self._request.task, self._request.slot, self._line.clock
        for name, shard in self._shards.items():
            began = clock()
            directly = self._ways.send(
                self._line.peer, task, slot, name, shard, self._within_s
            )
            self._line.pace.transferred(sum(part.nbytes for part in shard), began)
            if directly is not None:
                self.how[name] = directly
