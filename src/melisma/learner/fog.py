"""A learner that is a device of a fog: it collects data and sends some to others."""

from collections.abc import Callable
from typing import Any

from melisma.errors import ConfigError
from melisma.fleets.messages import (
    Ready,
    SlotDone,
    SlotRequest,
    TaskSpec,
    Unprepared,
    Update,
)
from melisma.learner import orders
from melisma.learner.delivery import Inbox, Routes
from melisma.learner.device import WarmTask
from melisma.learner.learner import Learner
from melisma.learner.slots import Slots
from melisma.learner.source import Caller, Relay
from melisma.learning import models
from melisma.learning.files import check_labels
from melisma.learning.losses import target_of
from melisma.learning.shards import Shard, check_like


class FogLearner(Learner):
    """A learner that also works in slots, on its own samples and on others'.

    Only with ``share_data`` do its own samples leave the device, whatever is ordered.
    """

    def __init__(self, *, share_data: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._share_data = share_data
        self.inbox = Inbox()
        self._routes, self._cycles = Routes(self.name), dict[str, Slots]()

    def prepare(self, spec: TaskSpec) -> Ready:
        """Build a task's model, and a check of the samples that others send for it."""
        orders.check_spec(spec)
        if spec.moving and not self._share_data:
            raise ConfigError(
                f"{self.name} does not share its own data, and in task {spec.task!r} "
                "devices send samples to each other: join with --share-data"
            )
        before = self._tasks.get(spec.task)
        ready = super().prepare(spec)
        task = self._tasks[spec.task]
        if spec.moving and task is not before:
            self.inbox.open(spec.task, self._check_of(task))
        return ready

    def start(self, name: str, cycle: int, slot: int, caller: Caller) -> None:
        """Fetch the model: a cycle of slots begins with this one."""
        task = self._prepared(name)
        orders.check_start(cycle, slot)
        if not task.spec.moving:
            raise ConfigError(f"task {name!r} has no slots: no samples move in it")
        task.idle = False
        with self._alone(task, caller):
            self._routes.retry()
            self.inbox.start(name, slot)
            self._cycles[name] = Slots(
                *(self._device, task, cycle, slot),
                *(self.inbox, self._routes, caller.source),
            )

    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        """Collect, send and train until the slot ends."""
        task = self._prepared(orders.task_of(request, SlotRequest))
        slots = self._slots(request.task, request.cycle)
        own = len(self._device.data().train)
        orders.check_slot(request, task.spec, own, slots.due)
        slots.due += 1
        with self._alone(task, caller) as cancelled:
            return slots.slot(request, caller, relay, cancelled)

    def finish(self, name: str, cycle: int, caller: Caller) -> Update:
        """Return the model of all the cycle's slots."""
        orders.check_cycle(cycle)
        task, slots = self._prepared(name), self._slots(name, cycle)
        with self._alone(task, caller):
            return slots.update(caller.source)

    def deliver(self, name: str, slot: int, sender: str, shard: Shard) -> None:
        """Take samples of another device; DataError if they do not fit."""
        self.inbox.put(name, slot, sender, shard)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._cycles.pop(name, None)
        self.inbox.close(name)

    def _slots(self, name: str, cycle: int) -> Slots:
        slots = self._cycles.get(name)
        if slots is None or slots.cycle != cycle:
            raise Unprepared(f"{self.name} has not started cycle {cycle}")
        return slots

    def _check_of(self, task: WarmTask) -> Callable[[Shard], None]:
        """Return what raises DataError for samples unlike this device's own."""
        own = self._device.data()
        fields, few = own.fields, task.transform(own.train[:2])
        classes = models.classes_of(task.model, few, task.training)

        def check(shard: Shard) -> None:
            check_like(shard, fields)
            if classes is not None:
                check_labels(target_of(shard), classes, "samples of another device")

        return check

    def close(self) -> None:
        """Close the connections to other devices."""
        self._routes.close()
