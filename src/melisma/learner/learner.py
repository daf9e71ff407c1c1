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
    Gradient,
    GradientRequest,
    Ready,
    SlotDone,
    SlotRequest,
    Speeds,
    TaskSpec,
    TrainRequest,
    Unprepared,
    Update,
)
from melisma.learner.background import BackgroundLoad
from melisma.learner.delivery import Inbox, Listener, Routes
from melisma.learner.gradients import Summation
from melisma.learner.slots import Slots
from melisma.learner.speed import Speed
from melisma.learner.training import (
    Begun,
    Device,
    Link,
    LocalTraining,
    WarmTask,
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
        owner: BackgroundLoad | None = None,
        listens: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._inbox, self._ways = Inbox(), Routes(name)
        self._door, self._slots_of = Listener(self._inbox, listens), dict[str, Slots]()
        self._device = Device(
            name=name, own=own, owner=owner or BackgroundLoad(), clock=clock
        )
        self._known = {*models.MODELS, *allowed}
        self._kept: OrderedDict[str, WarmTask] = OrderedDict()
        self._working = threading.Lock()

    @rpc.expose(idempotent=True)
    def prepare(self, spec: TaskSpec) -> Ready:
        """Have the model ready, as it may be from the cycle before.

        A model's name is looked up in a list, never imported because somebody said so.
        """
        if spec.model not in self._known:
            raise unknown("model", spec.model, self._known)
        kept = self._kept.get(spec.task)
        if kept is None or kept.spec != spec:
            model = models.build(spec.model, spec.seed)
            if spec.federated:
                models.check_fits(model, self._device.data())
            if spec.moving:
                self._inbox.checks[spec.task] = self._fitting(model)
            training = Training(
                optimiser=Optimiser(spec.optimiser), rate=spec.rate, batch=spec.batch
            )
            kept = WarmTask(spec, model, training, Speed(models.model_bytes(model)))
            self._kept[spec.task] = kept
        kept.loaded = None  # another run may have had a cycle of the same number
        self._kept.move_to_end(spec.task)
        while len(self._kept) > TASKS:
            self._kept.popitem(last=False)
        return Ready(
            measured=kept.speed.measured,
            samples=len(self._device.data().train_y) if spec.federated else None,
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
            line = Link(device, kept, MEASURE_S)

            def fetch(n: int) -> int:
                if kept.spec.federated:
                    return bytes_of(line.fetch("filler", n * part_bytes))
                return bytes_of(line.fetch("shards", keys[:n]))

            speed.link = time_transfers(fetch, halves, clock=device.clock)
            if kept.spec.federated:
                x, y = device.data().train_x, device.data().train_y
                speed.sample_bytes = x[0].numel() + 1 if kept.spec.moving else 0
            else:
                x, y = unpacked(
                    device.cache.get(keys, lambda keys: line.fetch("shards", keys))
                )
                speed.sample_bytes = x[0].numel() + 1
            samples = sorted({min(n * kept.spec.shard, len(y)) for n in halves})
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
        if self._prepared(task).spec.private:
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
        shard = self._prepared(task).spec.shard
        law = self._law(task, careful=True).per_shard(shard)
        return int(most_before(law, safely(deadline_s), steps)[0])

    @rpc.expose
    def probe(self, request: TrainRequest) -> Speeds:
        """Begin, and tell how fast that goes; the rest comes with `train`.

        Answers once a few batches are trained, and goes on with the first shard.
        """
        kept, call = self._prepared(request.task), rpc.current()
        if not kept.speed.measured:
            raise ConfigError(f"{self._name} has not measured itself yet")
        routine = LocalTraining(self._device, kept, request, lambda: call.cancelled)
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

    def _begin(
        self, kept: WarmTask, routine: LocalTraining, told: Future[Speeds]
    ) -> None:
        """Do the first part of a routine, and tell how fast it goes."""
        request, clock, batches = routine.request, self._device.clock, -1
        with self._alone(kept, routine):
            routine.fetch_model()
            examples = routine.examples(request.keys, request.samples)
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
    def train(self, request: TrainRequest) -> Update:
        """Fetch, train until done or until the deadline nears, answer."""
        kept, call = self._prepared(request.task), rpc.current()
        kept.idle = False
        if request.first:
            routine = self._probed(kept, request)
        else:
            routine = LocalTraining(self._device, kept, request, lambda: False)
        with self._alone(kept, routine) as replaced:
            routine.cancelled = lambda: call.cancelled or replaced()
            try:
                if not request.first:
                    routine.fetch_model()
                rest = request.keys[request.first // kept.spec.shard :]
                samples = request.samples - request.first
                examples = routine.examples(rest, samples) if samples else None
            finally:
                routine.observe()
            if examples:
                routine.train(examples)
            update = routine.update()
        self._tell(request, update, routine.took_s)
        return update

    def _probed(self, kept: WarmTask, request: TrainRequest) -> LocalTraining:
        """The routine that a probe began, once its first part is done."""
        begun = kept.begun
        if begun is None or begun.routine.request.cycle != request.cycle:
            raise Unprepared(f"{self._name} was not probed in cycle {request.cycle}")
        begun.first.result()
        kept.begun = None
        return begun.routine

    @rpc.expose
    def gradient(self, request: GradientRequest) -> Gradient:
        """Sum up the gradients of some parts of the data, each with its coefficient."""
        kept, call = self._prepared(request.task), rpc.current()
        kept.idle = False
        with self._alone(kept) as replaced:
            summation = Summation(self._device, kept, request)
            summation.fetch()
            for part in range(len(request.parts)):
                if call.cancelled or replaced():
                    raise TrainingError(f"cycle {request.cycle} needs this no more")
                took_s = summation.add(part)
                if request.slower > 1:
                    call.sleep(min((request.slower - 1) * took_s, FOREVER_S))
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
    def slot(self, request: SlotRequest) -> SlotDone:
        """Collect, hand on and train until the slot ends."""
        kept, call = self._prepared(request.task), rpc.current()
        slots = self._slots(request.task, request.cycle)
        with self._alone(kept) as replaced:
            return slots.slot(request, lambda: call.cancelled or replaced())

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

    def _tell(self, request: TrainRequest, update: Update, took_s: float) -> None:
        """Say on this device what was done, and how well that was foreseen."""
        foreseen = "not benchmarked"
        if self._prepared(request.task).speed.measured:
            law = self._law(request.task, careful=False)
            foreseen = (
                f"{law.seconds([request.samples], [request.steps])[0]:.2f} s foreseen"
            )
        log.info(
            "%s, cycle %d: %d of %d samples%s in %.2f s (%s)",
            *(request.task, request.cycle, update.samples, request.samples),
            *(", halted," if update.halted else "", took_s, foreseen),
        )

    @contextmanager
    def _alone(
        self, kept: WarmTask, who: object = None
    ) -> Iterator[Callable[[], bool]]:
        """Work on this device alone; yields whether somebody newer waits for the model.

        An orchestrator that was killed and comes back may find its old request running.
        """
        mine = kept.newest = who or object()
        with self._working:
            yield lambda: kept.newest is not mine

    def _law(self, task: str, *, careful: bool, drifted: bool = True) -> DelayLaw:
        speed = self._prepared(task).speed
        if not speed.measured:
            raise ConfigError(f"{self._name} has not measured itself yet")
        return speed.law(careful=careful, drifted=drifted)

    def _prepared(self, task: str) -> WarmTask:
        if task not in self._kept:
            raise Unprepared(f"{self._name} was not told {task!r}: call prepare first")
        return self._kept[task]
