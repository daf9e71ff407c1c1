"""One request on a learner: fetch, train part by part, halt in time.

Budgets are relative and the clock monotonic, from the moment a request comes. Model and
shards are fetched after that, so their transfer is on the learner's own clock, and a
device's wrong time of day does not matter.
"""

import zlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from melisma import rpc
from melisma.errors import ConfigError
from melisma.fleets.messages import Speeds, TaskSpec, TrainRequest, Update
from melisma.learner.background import BackgroundLoad
from melisma.learner.speed import Speed
from melisma.learner.throttle import Throttle
from melisma.learning.data import Dataset
from melisma.learning.parameters import Model, Parameters, parameters_of, put
from melisma.learning.settings import Late, Training
from melisma.learning.shards import Cache, Examples, Shard, unpacked
from melisma.learning.training import Session, batch_plan
from melisma.maths.arrays import Ints
from melisma.system.streams import Stream

CACHE_BYTES = 1 << 30
#: Kept free before the deadline for what no benchmark sees: a share of it, or seconds.
MARGIN, MARGIN_S = 0.03, 0.05


@dataclass(slots=True, kw_only=True)
class Device:
    """What a learner works with."""

    name: str
    own: Dataset | None
    owner: BackgroundLoad
    clock: Callable[[], float]
    cache: Cache = field(default_factory=lambda: Cache(CACHE_BYTES))

    def data(self) -> Dataset:
        """The device's own data; ConfigError if there is none."""
        if self.own is None:
            raise ConfigError(
                f"{self.name} has no data of its own, which federated mode needs: "
                "join with --data DIR"
            )
        return self.own


@dataclass(slots=True)
class WarmTask:
    """What is kept warm for a task between its cycles."""

    spec: TaskSpec
    model: Model
    training: Training
    speed: Speed
    idle: bool = False  #: since it was last asked what it can do
    loaded: int | None = None  #: cycle whose parameters the model has as they came
    newest: object = None  #: whoever works on it last; older ones make room
    begun: "Begun | None" = None  #: a routine that was probed


class Link:
    """The orchestrator, for one task and at the pace that the device has now."""

    def __init__(self, device: Device, kept: WarmTask, most_s: float) -> None:
        peer = rpc.current().peer
        if peer is None:
            raise ConfigError("a learner is called by an orchestrator that it dialled")
        self.peer, self._task, self.clock = peer, kept.spec.task, device.clock
        self._owner, size = device.owner, kept.speed.model_bytes
        self._owner.begin(most_s, lambda: peer.filler(self._task, size))

    @property
    def pace(self) -> Throttle:
        """How fast the device may be now."""
        return self._owner.pace(self._task)

    def fetch(self, name: str, argument: object, within_s: float | None = None) -> Any:
        """Fetch, unless that takes longer than ``within_s``: CallTimeout."""
        function, began = self.peer[name], self.clock()
        value = (function.within(within_s) if within_s else function)(
            self._task, argument
        )
        self.pace.transferred(bytes_of(value), began)
        return value


@dataclass(frozen=True, slots=True)
class Begun:
    """A routine whose first part is under way."""

    routine: "LocalTraining"
    first: Future[None]  #: until then


class LocalTraining:
    """An request from its beginning to its update."""

    def __init__(
        self,
        device: Device,
        kept: WarmTask,
        request: TrainRequest,
        cancelled: Callable[[], bool],
    ) -> None:
        self._device, self._kept, self.request = device, kept, request
        self._clock, self._began = device.clock, device.clock()
        self._line = Link(device, kept, request.deadline_s)
        self._rng = batch_order(kept.spec, request.cycle, device.name)
        self.cancelled = cancelled
        self._session = Session(kept.model, kept.training)
        self._training_s, self._due = 0.0, 0
        self._fetched_bytes: list[int] = []
        self._fetching_s = 0.0

    def fetch_model(self) -> None:
        """Have the model as it stands."""
        size_bytes = self._kept.speed.model_bytes
        model: Parameters = self._fetch("parameters", self.request.cycle, size_bytes)
        put(model, self._kept.model)
        self._kept.loaded = None  # training changes it

    def examples(self, keys: list[str], samples: int) -> Examples:
        """Data to train on: these shards, or some of one's own."""
        if not self._kept.spec.federated:
            return unpacked(self._device.cache.get(keys, self._shards))
        own = self._device.data()
        rows = self._rng.permutation(len(own.train_y))[:samples]
        return own.train_x[rows], own.train_y[rows]

    def train(
        self,
        examples: Examples,
        each: Callable[[Session], object] = lambda session: None,
    ) -> int:
        """Train on one part until it is done or the deadline nears.

        ``each`` is called before each batch. Returns how many samples were trained on,
        each as often as it was.
        """
        began = self._clock()
        size, steps = len(examples[1]), self.request.steps
        plan = batch_plan(np.arange(size), steps, self._kept.training, self._rng)
        self._due += len(plan)
        halts = self._halt((plan >= 0).sum(axis=1))

        def halt() -> bool:
            each(self._session)
            return halts()

        before = self._session.passes
        self._session.train(*examples, plan, halt)
        passes, took_s = self._session.passes - before, self._clock() - began
        self._kept.speed.trained(passes, took_s)
        self._training_s += took_s
        return passes

    def observe(self) -> None:
        """Let what the transfers took correct the benchmark."""
        self._kept.speed.transferred(self._fetched_bytes, self._fetching_s)
        self._fetched_bytes, self._fetching_s = [], 0.0

    def seen(self, sample_s: float) -> Speeds:
        """The device as it is now: a sample takes so long, transfers as they did."""
        speed, took_s = self._kept.speed, self._fetching_s
        law, link = speed.law(careful=False, drifted=False), speed.link
        assert link is not None
        slower = took_s / sum(map(link.seconds, self._fetched_bytes))
        return Speeds(
            step_s=sample_s,
            sample_s=slower * float(law.sample_s[0]),
            fixed_s=slower * float(law.fixed_s[0]),
        )

    def update(self) -> Update:
        """What came of it; returns when a slow device would have sent it."""
        trained_s, trained = self._clock() - self._began, self._session.trained()
        private = self._kept.spec.private
        update = Update(
            cycle=self.request.cycle,
            parameters=parameters_of(self._kept.model),
            samples=trained.samples,
            batches=trained.batches,
            loss=trained.loss,
            halted=trained.batches < self._due,
            downloaded_s=None if private else trained_s - self._training_s,
            trained_s=None if private else trained_s,
        )
        self._line.pace.transferred(self._kept.speed.model_bytes, self._clock())
        return update

    @property
    def took_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began

    def _shards(self, keys: list[str]) -> list[Shard]:
        sample_bytes = self._kept.speed.sample_bytes
        size_bytes = len(keys) * self._kept.spec.shard * sample_bytes
        shards: list[Shard] = self._fetch("shards", keys, size_bytes)
        return shards

    def _fetch(self, name: str, argument: object, size_bytes: int) -> Any:
        """Fetch, unless that takes longer than the whole cycle may: CallTimeout.

        The limit is the request's own: what is left of it would tell what was taken.
        """
        self._fetched_bytes.append(size_bytes)
        within_s = None if self.request.late == Late.WAIT else self.request.deadline_s
        began = self._clock()
        try:
            return self._line.fetch(name, argument, within_s)
        finally:
            self._fetching_s += self._clock() - began

    def _halt(self, sizes: Ints) -> Callable[[], bool]:
        """Return what to ask before each batch: can its result still arrive in time?"""
        request, upload_s = self.request, self._kept.speed.upload_s()
        end = self._began + safely(request.deadline_s) - upload_s
        start, batches = self._clock(), 0

        def halt() -> bool:
            nonlocal batches
            if batches < len(sizes):
                self._line.pace.batch(int(sizes[batches]))
            now = self._clock()
            batch_s = (now - start) / batches if batches else 0.0
            batches += 1
            late = request.late == Late.HALT and now + batch_s > end
            return self.cancelled() or late

        return halt


def batch_order(spec: TaskSpec, cycle: int, name: str) -> np.random.Generator:
    """Return what the order of a learner's batches comes from, here and at a check."""
    return np.random.default_rng(
        [spec.seed, Stream.LEARNER, cycle, zlib.crc32(name.encode())]
    )


def batches_of(
    request: TrainRequest, training: Training, rng: np.random.Generator
) -> Ints:
    """Rows of each batch of a request, counted through its shards, for a check."""
    parts = np.split(
        np.arange(request.samples), [request.first] if request.first else []
    )
    plans = [batch_plan(part, request.steps, training, rng) for part in parts]
    return np.concatenate(plans)


def safely(deadline_s: float) -> float:
    """Return when to be done so that the deadline is met."""
    return max(deadline_s / 2, deadline_s - max(MARGIN * deadline_s, MARGIN_S))


def bytes_of(value: Any) -> int:
    """Return the memory of tensors and arrays, however they are nested."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(bytes_of, parts))
