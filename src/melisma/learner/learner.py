"""A learner: what a device does when the orchestrator calls it."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

from melisma import rpc
from melisma.errors import ConfigError, TrainingError, unknown
from melisma.fleets.messages import (
    Brief,
    Errand,
    Gradient,
    GradientErrand,
    Ready,
    SlotDone,
    SlotErrand,
    Speeds,
    Unprepared,
    Update,
)
from melisma.learner.background import Owner
from melisma.learner.delivery import Door, Inbox, Ways
from melisma.learner.gradients import Summation
from melisma.learner.slots import Slots
from melisma.learner.speed import Speed
from melisma.learner.training import (
    Begun,
    Device,
    Kept,
    Line,
    Routine,
    bytes_of,
    safely,
)
from melisma.learning import models
from melisma.learning.benchmark import time_training, time_transfers
from melisma.learning.data import Dataset
from melisma.learning.parameters import Model
from melisma.learning.settings import Optimiser, Training
from melisma.learning.shards import Shard, check_like, unpacked
from melisma.learning.training import Session
from melisma.schemes.dab import most_before
from melisma.system.law import DelayLaw

log = logging.getLogger("melisma.learner")

#: Longest that a device's owner disturbs a benchmark.
MEASURE_S = 300.0
#: Tasks that are kept warm; who was not asked for longest goes first.
TASKS = 32
#: As long as one waits who is to play dead.
FOREVER_S = 86_400.0
#: Batches that a probe times.
PROBED = 5


class Learner:
    """Trains what it is told to, on the data that it is sent or on its own."""

    def __init__(
        self,
        *,
        name: str,
        own: Dataset | None = None,
        allowed: Sequence[str] = (),
        owner: Owner | None = None,
        listens: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._inbox, self._ways = Inbox(), Ways(name)
        self._door, self._slots_of = Door(self._inbox, listens), dict[str, Slots]()
        self._device = Device(name=name, own=own, owner=owner or Owner(), clock=clock)
        self._known = {*models.MODELS, *allowed}
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._working = threading.Lock()

    @rpc.expose(idempotent=True)
    def prepare(self, brief: Brief) -> Ready:
        """Have the model ready, as it may be from the cycle before.

        A model's name is looked up in a list, never imported because somebody said so.
        """
        if brief.model not in self._known:
            raise unknown("model", brief.model, self._known)
        kept = self._kept.get(brief.task)
        if kept is None or kept.brief != brief:
            model = models.build(brief.model, brief.seed)
            if brief.federated:
                models.check_fits(model, self._device.data())
            if brief.moving:
                self._inbox.checks[brief.task] = self._fitting(model)
            training = Training(
                optimiser=Optimiser(brief.optimiser), rate=brief.rate, batch=brief.batch
            )
            kept = Kept(brief, model, training, Speed(models.model_bytes(model)))
            self._kept[brief.task] = kept
        kept.loaded = None  # another run may have had a cycle of the same number
        self._kept.move_to_end(brief.task)
        while len(self._kept) > TASKS:
            self._kept.popitem(last=False)
        return Ready(
            measured=kept.speed.measured,
            samples=len(self._device.data().train_y) if brief.federated else None,
        )

    @rpc.expose
    def measure(self, task: str, keys: list[str]) -> None:
        """Benchmark transfers and training on these shards, and keep the result.

        In federated mode no shards are sent: the model's own size is fetched, and the
        training is on as much of the learner's own data.
        """
        kept, device = self._prepared(task), self._device
        speed, halves = kept.speed, sorted({max(1, len(keys) // 2), len(keys)})
        part_bytes = speed.model_bytes // max(halves)
        with self._alone(kept):
            line = Line(device, kept, MEASURE_S)

            def fetch(n: int) -> int:
                if kept.brief.federated:
                    return bytes_of(line.fetch("filler", n * part_bytes))
                return bytes_of(line.fetch("shards", keys[:n]))

            speed.link = time_transfers(fetch, halves, clock=device.clock)
            if kept.brief.federated:
                x, y = device.data().train_x, device.data().train_y
                speed.sample_bytes = x[0].numel() + 1 if kept.brief.moving else 0
            else:
                x, y = unpacked(
                    device.cache.get(keys, lambda keys: line.fetch("shards", keys))
                )
                speed.sample_bytes = x[0].numel() + 1
            samples = sorted({min(n * kept.brief.shard, len(y)) for n in halves})
            speed.compute = time_training(
                kept.model,
                x,
                y,
                kept.training,
                sizes=samples,
                clock=device.clock,
                before_batch=line.pace.batch,
            )
            device.owner.rest()

    @rpc.expose(idempotent=True)
    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Tell one's delay law, unless the task lets learners keep it to themselves.

        As it was benchmarked, or as it has ``drifted`` since.
        """
        if self._prepared(task).brief.private:
            raise ConfigError(f"{self._name} keeps its speed to itself in this task")
        self._asked(task)
        law = self._law(task, careful=False, drifted=drifted)
        return Speeds(
            step_s=float(law.step_s[0]),
            sample_s=float(law.sample_s[0]),
            fixed_s=float(law.fixed_s[0]),
        )

    @rpc.expose(idempotent=True)
    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        """Return how many shards this learner finishes before the deadline (DAB)."""
        self._asked(task)
        shard = self._prepared(task).brief.shard
        law = self._law(task, careful=True).per_shard(shard)
        return int(most_before(law, safely(deadline_s), steps)[0])

    @rpc.expose
    def probe(self, errand: Errand) -> Speeds:
        """Begin, and tell how fast that goes; the rest comes with `carry_out`.

        Answers once a few batches are trained, and goes on with the first shard.
        """
        kept, request = self._prepared(errand.task), rpc.current()
        if not kept.speed.measured:
            raise ConfigError(f"{self._name} has not measured itself yet")
        routine = Routine(self._device, kept, errand, lambda: request.cancelled)
        told: Future[Speeds] = Future()
        kept.begun = begun = Begun(routine, Future())

        def begin() -> None:
            try:
                self._begin(kept, routine, told)
                begun.first.set_result(None)
            except Exception as error:  # a thread's edge: who waits for it is told
                begun.first.set_exception(error)

        threading.Thread(target=begin, name="probe", daemon=True).start()
        either: list[Future[Any]] = [told, begun.first]
        wait(either, return_when=FIRST_COMPLETED)
        if not told.done():
            begun.first.result()
        return told.result()

    def _begin(self, kept: Kept, routine: Routine, told: Future[Speeds]) -> None:
        """Do the first part of a routine, and tell how fast it goes."""
        errand, clock, batches = routine.errand, self._device.clock, -1
        with self._alone(kept, routine):
            routine.fetch_model()
            examples = routine.examples(errand.keys, errand.samples)
            since = clock()

            def tell(session: Session) -> None:
                nonlocal batches
                batches += 1
                if batches == PROBED:
                    told.set_result(routine.seen((clock() - since) / session.passes))

            trained = routine.train(examples, tell)
            if not told.done():  # there were fewer batches than that
                told.set_result(routine.seen((clock() - since) / max(1, trained)))

    @rpc.expose
    def carry_out(self, errand: Errand) -> Update:
        """Fetch, train until done or until the deadline nears, answer."""
        kept, request = self._prepared(errand.task), rpc.current()
        kept.idle = False
        if errand.first:
            routine = self._probed(kept, errand)
        else:
            routine = Routine(self._device, kept, errand, lambda: False)
        with self._alone(kept, routine) as replaced:
            routine.cancelled = lambda: request.cancelled or replaced()
            try:
                if not errand.first:
                    routine.fetch_model()
                rest = errand.keys[errand.first // kept.brief.shard :]
                samples = errand.samples - errand.first
                examples = routine.examples(rest, samples) if samples else None
            finally:
                routine.observe()
            if examples:
                routine.train(examples)
            update = routine.update()
        self._tell(errand, update, routine.took_s)
        return update

    def _probed(self, kept: Kept, errand: Errand) -> Routine:
        """The routine that a probe began, once its first part is done."""
        begun = kept.begun
        if begun is None or begun.routine.errand.cycle != errand.cycle:
            raise Unprepared(f"{self._name} was not probed in cycle {errand.cycle}")
        begun.first.result()
        kept.begun = None
        return begun.routine

    @rpc.expose
    def gradient(self, errand: GradientErrand) -> Gradient:
        """Sum up the gradients of some parts of the data, each with its coefficient."""
        kept, request = self._prepared(errand.task), rpc.current()
        kept.idle = False
        with self._alone(kept) as replaced:
            summation = Summation(self._device, kept, errand)
            summation.fetch()
            for part in range(len(errand.parts)):
                if request.cancelled or replaced():
                    raise TrainingError(f"cycle {errand.cycle} needs this no more")
                took_s = summation.add(part)
                if errand.slower > 1:
                    request.sleep(min((errand.slower - 1) * took_s, FOREVER_S))
            return summation.gradient()

    @rpc.expose
    def take_up(self, task: str, cycle: int, slot: int) -> None:
        """Fetch the model: a cycle of slots begins with this one."""
        kept = self._prepared(task)
        kept.idle = False
        with self._alone(kept):
            self._ways.seek_again()
            self._inbox.forget(task, slot - 1)
            slots = Slots(self._device, kept, cycle, self._inbox, self._ways)
            self._slots_of[task] = slots

    @rpc.expose
    def slot(self, errand: SlotErrand) -> SlotDone:
        """Collect, hand on and train until the slot ends."""
        kept, request = self._prepared(errand.task), rpc.current()
        slots = self._slots(errand.task, errand.cycle)
        with self._alone(kept) as replaced:
            return slots.slot(errand, lambda: request.cancelled or replaced())

    @rpc.expose
    def hand_in(self, task: str, cycle: int) -> Update:
        """Answer with the model of all the cycle's slots."""
        kept = self._prepared(task)
        slots = self._slots(task, cycle)
        with self._alone(kept):
            return slots.update()

    def _slots(self, task: str, cycle: int) -> Slots:
        slots = self._slots_of.get(task)
        if slots is None or slots.cycle != cycle:
            raise Unprepared(f"{self._name} has not taken up cycle {cycle}")
        return slots

    @rpc.expose(idempotent=True)
    def admit(self, task: str, sender: str) -> str | None:
        """Return how another device can deliver directly, if this one listens."""
        self._prepared(task)
        return self._door.admit(sender)

    @rpc.expose(idempotent=True)
    def deliver(self, task: str, slot: int, sender: str, shard: Shard) -> None:
        """Take in samples of another device, which the orchestrator passes on."""
        self._inbox.put(task, slot, sender, shard)

    def _fitting(self, model: Model) -> Callable[[Shard], None]:
        shape = self._device.data().train_x.shape[1:]
        classes = models.outputs(model, shape)
        return lambda shard: check_like(shard, shape, classes)

    def close(self) -> None:
        """Let no other device in any more, and hang up on them."""
        self._door.close()
        self._ways.close()

    def _asked(self, task: str) -> None:
        """Forget some of the drift if no work came of being asked before.

        Or a learner that was cut off once would think itself too slow for ever: who
        takes nothing sees nothing.
        """
        kept = self._prepared(task)
        if kept.idle:
            kept.speed.forget()
        kept.idle = True

    def _tell(self, errand: Errand, update: Update, took_s: float) -> None:
        """Say on this device what was done, and how well that was foreseen."""
        foreseen = "not benchmarked"
        if self._prepared(errand.task).speed.measured:
            law = self._law(errand.task, careful=False)
            foreseen = (
                f"{law.seconds([errand.samples], [errand.steps])[0]:.2f} s foreseen"
            )
        log.info(
            "%s, cycle %d: %d of %d samples%s in %.2f s (%s)",
            *(errand.task, errand.cycle, update.samples, errand.samples),
            *(", halted," if update.halted else "", took_s, foreseen),
        )

    @contextmanager
    def _alone(self, kept: Kept, who: object = None) -> Iterator[Callable[[], bool]]:
        """Work on this device alone; yields whether somebody newer waits for the model.

        An orchestrator that was killed and comes back may find its old errand running.
        """
        mine = kept.newest = who or object()
        with self._working:
            yield lambda: kept.newest is not mine

    def _law(self, task: str, *, careful: bool, drifted: bool = True) -> DelayLaw:
        speed = self._prepared(task).speed
        if not speed.measured:
            raise ConfigError(f"{self._name} has not measured itself yet")
        return speed.law(careful=careful, drifted=drifted)

    def _prepared(self, task: str) -> Kept:
        if task not in self._kept:
            raise Unprepared(f"{self._name} was not told {task!r}: call prepare first")
        return self._kept[task]
