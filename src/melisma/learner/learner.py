"""A learner: what a device does with the requests that it gets.

Plain methods, handed everything they need: a `Caller` has the source to fetch from and
says whether the answer is still waited for. `learner.service` exposes them. Each order
is checked before anything is done (`learner.orders`): ConfigError for a wrong one.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from melisma.errors import (
    CallTimeout,
    ConfigError,
    MelismaError,
    TrainingError,
    readable,
)
from melisma.fleets.messages import (
    Gradient,
    GradientRequest,
    Ready,
    Speeds,
    TaskSpec,
    TrainRequest,
    Unprepared,
    Untrusted,
    Update,
)
from melisma.learner import measuring, orders
from melisma.learner.background import BackgroundLoad
from melisma.learner.bundles import TrustedBundles
from melisma.learner.device import Device, WarmTask
from melisma.learner.energy import Meter, PowerSupply
from melisma.learner.gradients import Summation
from melisma.learner.kept import Benchmarks
from melisma.learner.memory import told_if_short
from melisma.learner.source import Caller
from melisma.learner.speed import Speed
from melisma.learner.throttle import sleep_unless
from melisma.learner.training import LocalTraining
from melisma.learning import models
from melisma.learning.data import Dataset
from melisma.learning.devices import onto, ready
from melisma.learning.losses import in_precision, transform_of
from melisma.learning.optimisers import check_optimiser
from melisma.learning.parameters import Model, parameters_of, trained, with_buffers
from melisma.learning.settings import Hardware, Precision, Training
from melisma.learning.task import find, merged
from melisma.learning.training import Session
from melisma.learning.wire import Wire

log = logging.getLogger("melisma.learner")

#: Tasks that are kept warm, the least recently prepared goes first; refusals logged.
TASKS = 32
#: Longest that an emulated straggler sleeps.
FOREVER_S = 86_400.0
#: Batches that a probe times.
PROBED = 5


@dataclass(frozen=True, slots=True)
class Probe:
    """Local training whose first part goes on after its speed was reported."""

    training: LocalTraining
    first: Future[None]  #: done with the first part


def made(spec: TaskSpec, package: str = "") -> tuple[Model, Training]:
    """Make the model of a task, and how it is trained; ConfigError if that fails.

    Its module is in ``package``, if that is a bundle's.
    """
    if not spec.recipe:
        model, training = models.build(package + spec.model, spec.seed), spec.training
    else:
        recipe = find(package + spec.recipe)
        model = recipe.build(spec.seed)
        training = merged(recipe.training(), spec.training)
    check_optimiser(training, model)
    return with_buffers(model, training.buffers), training


def _travelling(spec: TaskSpec, model: Model) -> int:
    """Return the bytes of a model on the wire, in the mean of both ways."""
    wire = Wire.of(spec.down, spec.up)
    if wire.is_plain:
        return models.model_bytes(model)
    return sum(wire.size_bytes(parameters_of(model), trained(model))) // 2


def warm(
    device: Device, spec: TaskSpec, model: Model, training: Training, speed: Speed
) -> WarmTask:
    """Return a task whose model lies on the device that trains it."""
    training = in_precision(training, device.precision)
    transform = onto(device.trains_on, transform_of(training))
    return WarmTask(spec, model.to(device.trains_on), speed, training, transform)


class Learner:
    """Trains on request, on shards that it fetches or on its own data."""

    def __init__(
        self,
        *,
        name: str,
        own: Dataset | None = None,
        allowed: Sequence[str] = (),
        background: BackgroundLoad | None = None,
        clock: Callable[[], float] = time.monotonic,
        device: str = "cpu",
        bundles: TrustedBundles | None = None,
        precision: Precision = Precision.FP32,
        sensor: PowerSupply | Meter | None = None,
        benchmarks: Benchmarks | None = None,
    ) -> None:
        self.name, self._kept = name, benchmarks
        self._device = Device(
            name=name,
            own=own,
            background=background or BackgroundLoad(),
            clock=clock,
            trains_on=ready(Hardware(device=device, precision=precision)),
            precision=precision,
            sensor=sensor,
        )
        self._known = {*models.MODELS, *allowed}
        self.bundles = bundles or TrustedBundles()
        self._tasks: OrderedDict[str, WarmTask] = OrderedDict()
        self._probes: dict[str, Probe] = {}
        self._working = threading.Lock()
        self._said = set[str]()  #: why work was refused, in the log

    def prepare(self, spec: TaskSpec) -> Ready:
        """Build a task's model, unless it is warm; its owner is told why if not."""
        try:
            return self._prepare(spec)
        except Untrusted:  # which `learner.bundles` has said
            raise
        except MelismaError as error:
            reason = readable(str(error), most=400)
            if reason not in self._said and len(self._said) < TASKS:
                self._said.add(reason)
                log.warning("Does not take part: %s", reason)
            raise

    def _prepare(self, spec: TaskSpec) -> Ready:
        """Build a task's model, unless it is warm.

        A model's name is looked up in a list, never imported because a caller named it.
        What is in a bundle is imported if that is trusted (`learner.bundles`).
        """
        orders.check_spec(spec)
        what, name = ("task", spec.recipe) if spec.recipe else ("model", spec.model)
        package = self.bundles.package(spec.bundle, what, name) if spec.bundle else ""
        if not package and name not in self._known:
            raise orders.not_allowed(what, name, self._known, spec.bundle)
        if spec.exact and self._device.precision != Precision.FP32:
            raise ConfigError(
                f"task {spec.task!r} needs float32, since work is compared or coded: "
                "join with --precision fp32"
            )
        task = self._tasks.get(spec.task)
        if task is None or task.spec != spec:
            model, training = made(spec, package)
            if spec.federated:
                models.check_fits(model, self._device.data(), training)
            speed = Speed(_travelling(spec, model))
            speed.promise(spec.late_at_most)
            task = warm(self._device, spec, model, training, speed)
            self._tasks[spec.task] = task
            self._probes.pop(spec.task, None)
        task.loaded = None  # another run may have had a cycle of the same number
        self._tasks.move_to_end(spec.task)
        while len(self._tasks) > TASKS:
            self._forget(self._tasks.popitem(last=False)[0])
        return Ready(
            measured=task.speed.measured,
            samples=len(self._device.data().train) if spec.federated else None,
            speeds=self._told(spec),
        )

    def measure(self, name: str, keys: list[str], caller: Caller) -> None:
        """Benchmark transfers and training on these shards, and keep the result."""
        task = self._prepared(name)
        orders.check_benchmark(keys, task.spec)
        with self._alone(task, caller):
            measuring.benchmark(self._device, task, keys, caller, self._kept)

    def _told(self, spec: TaskSpec) -> Speeds | None:
        """Return the speeds to report with the answer to ``prepare``, if any."""
        if spec.private or not self._tasks[spec.task].speed.measured:
            return None
        return self.speeds(spec.task, spec.drifted)

    def speeds(self, name: str, drifted: bool) -> Speeds:
        """Return the delay law; ConfigError if the task keeps it private.

        As it was benchmarked, or as it has ``drifted`` since.
        """
        orders.check_flag("drifted", drifted)
        if self._prepared(name).spec.private:
            raise ConfigError(f"{self.name} keeps its speed private in this task")
        return self._asked(name).speed.report(drifted=drifted)

    def bid(self, name: str, deadline_s: float, steps: int) -> int:
        """Return how many shards this learner finishes before the deadline (DAB)."""
        orders.check_bid(deadline_s, steps)
        task = self._asked(name)
        spec = task.spec
        return task.speed.bid(spec.shard, deadline_s, steps, adaptive=spec.adaptive)

    def probe(self, request: TrainRequest, caller: Caller) -> Speeds:
        """Begin to train and return how fast that goes; `train` brings the rest.

        Returns after a few batches, and goes on with the first shard in a thread.
        """
        task = self._ordered(request)
        self._check_measured(task)
        training = LocalTraining(self._device, task, request, caller)
        speeds: Future[Speeds] = Future()
        probe = self._probes[request.task] = Probe(training, Future())

        def begin() -> None:
            try:
                self._begin(task, training, caller, speeds)
                probe.first.set_result(None)
            except Exception as error:  # a thread's edge: raised in who waits for it
                probe.first.set_exception(error)

        threading.Thread(target=begin, name="probe", daemon=True).start()
        either: list[Future[Any]] = [speeds, probe.first]
        wait(either, return_when=FIRST_COMPLETED)
        if not speeds.done():
            probe.first.result()
        return speeds.result()

    def _begin(
        self,
        task: WarmTask,
        training: LocalTraining,
        caller: Caller,
        speeds: Future[Speeds],
    ) -> None:
        """Do the first part of a training, and report its speed meanwhile."""
        request, clock, batches = training.request, self._device.clock, -1
        with self._alone(task, caller, training):
            training.fetch_model()
            examples = training.examples(request.keys, request.samples)
            since = clock()

            def report(session: Session) -> None:
                nonlocal batches
                batches += 1
                if batches == PROBED:
                    sample_s = (clock() - since) / session.passes
                    speeds.set_result(training.speeds(sample_s))

            trained = training.train(examples, report)
            if not speeds.done():  # there were fewer batches than that
                sample_s = (clock() - since) / max(1, trained)
                speeds.set_result(training.speeds(sample_s))

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        """Fetch, train until done or until the deadline nears, return the update."""
        task = self._ordered(request)
        task.idle = False
        if request.first:
            training = self._probed(request)
        else:
            training = LocalTraining(self._device, task, request, caller)
        with self._alone(task, caller, training) as training.cancelled:
            try:
                if not request.first:
                    training.fetch_model()
                keys = request.keys[request.first // task.spec.shard :]
                samples = request.samples - request.first
                examples = training.examples(keys, samples) if samples else None
            except CallTimeout:
                training.observe()
                training.kept(late=True)
                raise
            finally:
                training.observe()
            if examples:
                training.train(examples)
            update = training.update()
        self._log(request, update, training.took_s)
        return update

    def _probed(self, request: TrainRequest) -> LocalTraining:
        """Return the training that a probe began, once its first part is done."""
        probe = self._probes.get(request.task)
        if probe is None or probe.training.request.cycle != request.cycle:
            raise Unprepared(f"{self.name} was not probed in cycle {request.cycle}")
        probe.first.result()
        del self._probes[request.task]
        return probe.training

    def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
        """Return the sum of the gradients of some parts, each with its coefficient."""
        task = self._prepared(orders.task_of(request, GradientRequest))
        orders.check_gradient(request, task.spec)
        task.idle = False
        with self._alone(task, caller) as cancelled:
            summation = Summation(self._device, task, request, caller.source)
            summation.fetch()
            for part in range(len(request.parts)):
                if cancelled():
                    raise TrainingError(
                        f"the gradient of cycle {request.cycle} was cancelled"
                    )
                took_s = summation.add(part, cancelled)
                if request.slower > 1:
                    extra_s = (request.slower - 1) * took_s
                    sleep_unless(cancelled, min(extra_s, FOREVER_S))
            summation.done()
            summation.wait_for_leave(caller.air, cancelled)
            return summation.gradient()

    def _asked(self, name: str) -> WarmTask:
        """Return a measured task; forget some drift if no work came since last time.

        Otherwise a learner that was cut off once would think itself too slow for ever:
        without work it measures nothing new.
        """
        task = self._measured(name)
        if task.idle:
            task.speed.forget()
        task.speed.renew()
        task.idle = True
        return task

    def _log(self, request: TrainRequest, update: Update, took_s: float) -> None:
        """Log what was done, and how long that should have taken."""
        predicted = "not benchmarked"
        if (speed := self._prepared(request.task).speed).measured:
            law = speed.law(careful=False)
            seconds = law.seconds([request.samples], [request.steps])[0]
            predicted = f"{seconds:.2f} s predicted"
        log.info(
            "%s, cycle %d: %d of %d samples%s in %.2f s (%s)",
            *(request.task, request.cycle, update.samples, request.samples),
            *(", halted," if update.halted else "", took_s, predicted),
        )

    @contextmanager
    def _alone(
        self, task: WarmTask, caller: Caller, work: object = None
    ) -> Iterator[Callable[[], bool]]:
        """Have the device alone; yields whether the work is to be given up.

        It is when nobody waits for it, or newer work waits for the model: an
        orchestrator that was killed and comes back may find its old request running.
        TrainingError if nobody waits for it from the start, since it would end newer
        work in its turn; ShortOfMemory if memory does not suffice for the work.
        """
        if caller.gave_up():
            raise TrainingError(f"{task.spec.task}: nobody waits for this work")
        mine = task.newest = work or object()
        with self._working, told_if_short(task):
            yield lambda: caller.gave_up() or task.newest is not mine

    def _measured(self, name: str) -> WarmTask:
        task = self._prepared(name)
        self._check_measured(task)
        return task

    def _check_measured(self, task: WarmTask) -> None:
        if not task.speed.measured:
            raise ConfigError(
                f"{self.name} has not measured itself: call measure first"
            )

    def _ordered(self, request: TrainRequest) -> WarmTask:
        """Return the task of an order to train, which is checked."""
        task = self._prepared(orders.task_of(request, TrainRequest))
        own = len(self._device.data().train) if task.spec.federated else None
        orders.check_train(request, task.spec, own)
        return task

    def _prepared(self, name: str) -> WarmTask:
        orders.check_task(name)
        if name not in self._tasks:
            raise Unprepared(f"{self.name} has no task {name!r}: call prepare first")
        return self._tasks[name]

    def _forget(self, name: str) -> None:
        """Drop what belongs to a task that is no longer kept."""
        self._probes.pop(name, None)
