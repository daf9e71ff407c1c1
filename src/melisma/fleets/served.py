"""What learners fetch from the orchestrator: models and shards, by task."""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from melisma import rpc
from melisma.bundles.bundle import Bundle
from melisma.errors import ConfigError, DataError, TrainingError
from melisma.fleets.messages import Outline, TrainRequest, Update
from melisma.fleets.protocols import Order
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Late
from melisma.learning.shards import Shard, ShardStore
from melisma.learning.way import Downwards, Way
from melisma.learning.wire import Packed, seed_of
from melisma.maths.arrays import Bytes


@dataclass(slots=True)
class ServedTask:
    """One task's shards, and the model of its current cycle."""

    task: str
    parameters: Parameters
    store: ShardStore
    cycle: int = 0
    kept: int = 1  #: cycles whose models are served
    frozen: Parameters = field(default_factory=dict)  #: that no cycle changes
    #: By cycle, as they travel.
    models: dict[int, Parameters | Packed] = field(default_factory=dict)
    #: Of this cycle's gradients, by learner.
    corrections: dict[str, Parameters] = field(default_factory=dict)
    ways: Sequence[Way] = (Way(),)  #: that orders may name, by place
    #: By learner, in this cycle, where there are several.
    options: dict[str, int] = field(default_factory=dict)
    #: This cycle's, where there are several ways down.
    sent: dict[Downwards, Packed] = field(default_factory=dict)
    moving: Collection[str] = ()  #: what is trained, where codecs are used
    seed: int = 0
    #: Returns what learners without PyTorch make it of; ConfigError if they cannot.
    outline: Callable[[], Outline] | None = None

    def __post_init__(self) -> None:
        self._serve()

    @property
    def model_bytes(self) -> int:
        """Memory of the model."""
        return sum(tensor.nbytes for tensor in self.parameters.values())

    def renew(self, cycle: int, parameters: Parameters) -> None:
        """Serve the model of a new cycle, and of as many before it as are kept."""
        self.cycle, self.parameters = cycle, parameters
        self._serve()
        self.corrections, self.options = {}, {}
        for old in [n for n in self.models if n <= cycle - self.kept]:
            del self.models[old]

    def _serve(self) -> None:
        self.models[self.cycle] = self.parameters
        if self._is_plain:
            return
        seed, ways = seed_of(self.seed, self.cycle), {w.downwards: w for w in self.ways}
        self.sent = {
            down: way.sent(self.parameters, self.moving, seed)
            for down, way in ways.items()
        }
        if not self._differ:
            self.models[self.cycle] = self.sent[self.ways[0].downwards]

    @property
    def _differ(self) -> bool:
        """Whether learners take part in unlike ways."""
        return len(self.ways) > 1

    @property
    def _is_plain(self) -> bool:
        return not self._differ and self.ways[0].is_plain

    def model_for(self, cycle: int, caller: Callable[[], str]) -> Parameters | Packed:
        """Return the model of a cycle as it travels to a learner.

        TrainingError for a cycle that is over, and for who has no order in it.
        """
        if cycle not in self.models:
            raise TrainingError(f"cycle {cycle} is over: this is cycle {self.cycle}")
        if not self._differ:
            return self.models[cycle]
        if (name := caller()) not in self.options:
            raise TrainingError(f"{name} has no order in cycle {cycle}")
        return self.sent[self.ways[self.options[name]].downwards]

    def opened(
        self, update: object, name: str, sent: Parameters, cycle: int, option: int = 0
    ) -> object:
        """Return a learner's update of the model ``sent``, parameters as they are.

        Draws are by the cycle of its order, which may be an earlier one. DataError if
        it has none that the way of its order could have made.
        """
        if self._is_plain or not isinstance(update, Update):
            return update
        seed = seed_of(self.seed, cycle, name)
        learnt = self.ways[option].learnt(update.packed, sent, self.moving, seed)
        return msgspec.structs.replace(update, parameters=learnt, packed=None)

    def request(
        self, order: Order, deadline_s: float, late: Late, cycle: int | None = None
    ) -> TrainRequest:
        """Return an order of a cycle, or of the current, as its learner gets it."""
        way = self.ways[order.option]
        return TrainRequest(
            task=self.task,
            cycle=self.cycle if cycle is None else cycle,
            keys=[] if order.rows is None else self.store.keys(order.rows),
            samples=order.samples,
            steps=order.steps,
            deadline_s=deadline_s,
            late=late,
            first=order.begun,
            corrected=order.correction is not None,
            down=str(way.wire.down) if self._differ else "",
            up=str(way.wire.up) if self._differ else "",
            submodel=way.submodel,
        )


class ModelServer:
    """Serves models and shards of all tasks to learners, and their code if any."""

    def __init__(
        self, served: Iterable[ServedTask], bundle: Bundle | None = None
    ) -> None:
        self._bundle = bundle
        self._served = {task.task: task for task in served}
        self._tracing = threading.Lock()
        sizes = [task.model_bytes for task in self._served.values()]
        self._zeros = np.zeros(max(sizes, default=0), dtype=np.uint8)

    @rpc.expose(idempotent=True)
    def parameters(self, task: str, cycle: int) -> Parameters | Packed:
        """Return the model of a cycle, as the caller is to have it.

        TrainingError for a cycle that is over.
        """
        return self._of(task).model_for(cycle, lambda: rpc.current().caller)

    @rpc.expose(idempotent=True)
    def correction(self, task: str, cycle: int) -> Parameters:
        """Return what the caller adds to its gradients; TrainingError if nothing."""
        served, name = self._of(task), rpc.current().caller
        if cycle != served.cycle or name not in served.corrections:
            raise TrainingError(f"{name} has no correction in cycle {cycle}")
        return served.corrections[name]

    @rpc.expose(idempotent=True)
    def frozen(self, task: str) -> Parameters:
        """Return the parameters that no cycle changes."""
        return self._of(task).frozen

    @rpc.expose(idempotent=True)
    def outline(self, task: str) -> Outline:
        """Return a task's layers; ConfigError naming what no such learner can do."""
        make = self._of(task).outline
        if make is None:
            raise ConfigError(f"task {task!r} has no outline: use a Python learner")
        with self._tracing:
            return make()

    @rpc.expose(idempotent=True)
    def bundle(self, hash: str) -> dict[str, bytes]:
        """Return source files of the job's own modules; DataError for another hash."""
        if self._bundle is None or self._bundle.hash != hash:
            raise DataError("there is no such bundle")
        return dict(self._bundle.files)

    @rpc.expose(idempotent=True)
    def shards(self, task: str, keys: list[str]) -> list[Shard]:
        """Return shards by the hash of their content.

        DataError if one is unknown, or asked for twice: nobody needs more than all.
        """
        if len(set(keys)) < len(keys):
            raise DataError("a shard is asked for twice in one call")
        return self._of(task).store.take(keys)

    @rpc.expose(idempotent=True)
    def filler(self, task: str, size: int) -> Bytes:
        """Return that many zeros, up to the model's size; ConfigError beyond."""
        most = self._of(task).model_bytes
        if not 0 <= size <= most:
            raise ConfigError(f"{size} bytes of filler: ask for up to {most}")
        return self._zeros[:size]

    def _of(self, task: str) -> ServedTask:
        if task not in self._served:
            raise DataError(f"there is no task {task!r}")
        return self._served[task]
