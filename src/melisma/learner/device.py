"""What a learner works with: its device, the tasks it keeps, its link."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from melisma.errors import CallTimeout, ConfigError, DataError
from melisma.fleets.messages import TaskSpec, TrainRequest
from melisma.learner.background import BackgroundLoad
from melisma.learner.bases import complete
from melisma.learner.battery import Battery
from melisma.learner.energy import Meter, PowerSupply
from melisma.learner.source import Corrections, Source
from melisma.learner.speed import Speed
from melisma.learner.throttle import Throttle
from melisma.learning.data import Dataset
from melisma.learning.devices import CPU, TorchDevice
from melisma.learning.parameters import (
    Model,
    Parameters,
    buffers_are_local,
    check_of,
    parameters_of,
    put,
    sendable,
    staying_of,
    trained,
)
from melisma.learning.samples import Samples, Transform
from melisma.learning.settings import Precision, Training
from melisma.learning.shards import Cache, Shard, check_fetched
from melisma.learning.submodels.making import Made
from melisma.learning.submodels.part import Part
from melisma.learning.way import Way
from melisma.learning.wire import Packed, Sender, Wire, seed_of
from melisma.maths.arrays import Bytes

T = TypeVar("T")

CACHE_BYTES = 1 << 30
#: Bytes of shards that are asked for together: the orchestrator holds as many in memory
#: for each learner, however many it trains on.
PART_BYTES = 1 << 24


@dataclass(slots=True, kw_only=True)
class Device:
    """The machine that a learner runs on."""

    name: str
    own: Dataset | None
    background: BackgroundLoad
    clock: Callable[[], float]
    trains_on: TorchDevice = CPU
    precision: Precision = Precision.FP32  #: of products there
    sensor: PowerSupply | Meter | None = None  #: of energy
    cache: Cache = field(default_factory=lambda: Cache(CACHE_BYTES))

    def data(self) -> Dataset:
        """The device's own data; ConfigError if there is none."""
        if self.own is None:
            raise ConfigError(
                f"{self.name} has no data of its own, which federated mode needs: "
                "join with --data DIR"
            )
        return self.own


@dataclass(frozen=True, slots=True)
class WarmPart:
    """A part of a task's model, which is kept between cycles."""

    part: Part
    step: float  #: operations of a sample, of the whole model's
    made: Parameters  #: buffers that stay here, as they were made


@dataclass(slots=True)
class WarmTask:
    """A task that is ready to train: its model and speed are kept between cycles."""

    spec: TaskSpec
    model: Model
    speed: Speed
    training: Training  #: as the spec says, with functions of its own, as done here
    transform: Transform  #: of samples, onto the device that trains
    idle: bool = False  #: no work came since it was last asked for its speed or bid
    complete: bool = False  #: the model has the frozen part that the spec names
    loaded: int | None = None  #: cycle whose parameters the model has, unchanged
    newest: object = None  #: the latest piece of work; older ones stop
    battery: Battery | None = None  #: of coded training, where workers have one
    fits: int | None = None  #: samples of a batch for which memory suffices, once tried
    made: Parameters = field(init=False)  #: buffers that stay here, as they were made
    wire: Wire = field(init=False)
    parts: dict[str, WarmPart] = field(init=False, default_factory=dict)
    #: Of what training changes, from cycle to cycle, by whatever codec.
    sender: Sender = field(init=False, default_factory=Sender)

    def __post_init__(self) -> None:
        self.made = staying_of(self.model)
        self.wire = Wire.of(self.spec.down, self.spec.up)

    def make_parts(self, samples: Samples) -> None:
        """Make the parts of the model that orders may name; ConfigError if none is.

        Once: of samples the shape alone matters.
        """
        written = self.spec.submodels
        if written and not self.parts:
            made = Made(written, self.model, samples, self.training)
            self.parts = {
                name: WarmPart(part, made.steps[part], staying_of(part.model))
                for name, part in made.parts.items()
            }

    def travel_of(self, request: TrainRequest) -> "Travel":
        """Return what an order trains, and how it travels.

        ConfigError for a part that was not made, before any benchmark.
        """
        if not request.up:
            size_bytes = self.speed.model_bytes
            way = None if self.wire.is_plain else Way(self.wire)
            return Travel(way, size_bytes, size_bytes)
        if request.submodel and request.submodel not in self.parts:
            raise ConfigError(f"no {request.submodel!r} was made: call measure first")
        warm = self.parts[request.submodel] if request.submodel else None
        part = None if warm is None else warm.part
        way = Way(Wire.of(request.down, request.up), part)
        sizes = way.size_bytes(parameters_of(self.model), trained(self.model))
        return Travel(way, *sizes, warm)

    def load(
        self,
        parameters: Parameters,
        cycle: int,
        warm: WarmPart | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """Put the parameters of a cycle into the model, or into a part of it.

        Buffers that stay here are kept from the cycle before where they are local.
        Otherwise, and at the beginning of a run, they are as they were made.
        """
        is_first = anew or cycle == 1
        for part in self.parts.values() if is_first else ():
            put(part.made, part.part.model)
        model, made = (
            (self.model, self.made) if warm is None else (warm.part.model, warm.made)
        )
        if is_first or not buffers_are_local(model):
            put(made, model)
        put(parameters, model)
        self.loaded = None
        if is_first:  # of a new run, to which nothing is owed
            self.sender = Sender()

    def update(
        self, cycle: int, name: str, way: Way | None, arrived: Parameters
    ) -> tuple[Parameters, Packed | None]:
        """Return what training made of what arrived, as it travels: one of the two."""
        part = None if way is None else way.part
        model = self.model if part is None else part.model
        after, moving = sendable(model), trained(model)
        if way is None:
            return after, None
        seed = seed_of(self.spec.seed, cycle, name)
        update = self.sender.update(after, arrived, moving, seed, way.wire.up, part)
        return {}, update


class Travel(NamedTuple):
    """What an order trains, and how it travels."""

    way: Way | None  #: None: the model as it is
    down_bytes: int
    up_bytes: int
    warm: WarmPart | None = None  #: where it is a part of the model


class Link:
    """Transfers of one task at the rate that the device has now.

    The background load changes with each new link, to that of a ``cycle`` or to a
    ``state`` if one is given, and lasts for ``most_s`` at most.
    """

    def __init__(
        self,
        device: Device,
        task: WarmTask,
        source: Source,
        most_s: float,
        *,
        cycle: int | None = None,
        state: int | None = None,
    ) -> None:
        self._device, self._source, self._task = device, source, task.spec.task
        self._warm, self._model, self._shard = task, task.model, task.spec.shard
        name, size_bytes = self._task, task.speed.model_bytes
        device.background.begin(
            most_s, lambda: source.filler(name, size_bytes), cycle=cycle, state=state
        )

    @property
    def throttle(self) -> Throttle:
        """How fast the device may be now."""
        return self._device.background.throttle(self._task)

    def parameters(
        self, cycle: int, within_s: float | None = None, way: Way | None = None
    ) -> Parameters:
        """Fetch the model of a cycle; CallTimeout if that takes too long."""
        self.complete(within_s)
        if way is None:
            return self._timed(
                lambda: self._source.parameters(self._task, cycle, within_s),
                lambda model: check_of(self._model, model),
            )
        like, model = parameters_of(self._model), Parameters()

        def check(sent: object) -> None:
            model.update(way.arrived(sent, like, trained(self._model)))

        self._timed(lambda: self._source.parameters(self._task, cycle, within_s), check)
        return model

    def correction(
        self, source: Corrections, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch what is added to gradients; CallTimeout if that takes too long."""
        return self._timed(
            lambda: source.correction(self._task, cycle, within_s),
            lambda correction: check_of(self._model, correction),
        )

    def complete(self, within_s: float | None = None) -> None:
        """Fetch the frozen part of the model, unless it is here."""
        base = self._warm.spec.base
        if base and not self._warm.complete:
            complete(
                self._model, base, lambda: self._source.frozen(self._task, within_s)
            )
            self._warm.complete = True

    def shards(self, keys: list[str], within_s: float | None = None) -> list[Shard]:
        """Fetch shards, part by part; CallTimeout if that takes too long."""
        began, shards = self._device.clock(), list[Shard]()
        size_bytes = self._shard * self._warm.speed.sample_bytes
        step = max(1, PART_BYTES // size_bytes if size_bytes else len(keys))
        for first in range(0, len(keys), step):
            took_s = self._device.clock() - began
            if within_s is not None and first and took_s > within_s:
                raise CallTimeout(
                    f"{first} of {len(keys)} shards came within {within_s:.3g} s"
                )
            shards += self._part(keys[first : first + step], within_s)
        return shards

    def _part(self, keys: list[str], within_s: float | None) -> list[Shard]:
        return self._timed(
            lambda: self._source.shards(self._task, keys, within_s),
            lambda shards: check_fetched(shards, len(keys), self._shard),
        )

    def filler(self, size: int) -> Bytes:
        """Fetch that many bytes."""
        return self._timed(
            lambda: self._source.filler(self._task, size),
            lambda filler: _check_filler(filler, size),
        )

    def sent(self, size_bytes: int, began: float) -> None:
        """Wait until the device would have sent what it began to send then."""
        self.throttle.transferred(size_bytes, began)

    def _timed(self, fetch: Callable[[], T], check: Callable[[T], None]) -> T:
        """Fetch at the device's rate; DataError for what was not asked for."""
        began = self._device.clock()
        value = fetch()
        check(value)
        self.throttle.transferred(bytes_of(value), began)
        return value


def _check_filler(filler: object, size: int) -> None:
    if not isinstance(filler, np.ndarray) or filler.nbytes != size:
        raise DataError(f"{size} bytes of filler were asked for, and others came")


def bytes_of(value: Any) -> int:
    """Return the memory of tensors and arrays, however they are nested."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Packed):
        return bytes_of([value.encoded.payload, value.rest])
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(bytes_of, parts))
