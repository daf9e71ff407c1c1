"""What a SuperNode does with one message: a learner that comes, works and goes.

Each message has a process of its own, so nothing is warm: model and shards come with
the message, and what a learner knows of its own speed is kept by Flower in the run's
context, on the node. Training, halting and benchmark are the live learner's.

A message's way takes seconds and is not on the node's clock. The server says how long
the message before took in all; less what its work took, that is Flower's part, and the
learner counts it as the time of its link.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig

from melisma import rpc
from melisma.errors import ConfigError
from melisma.fleets.messages import Speeds, TaskSpec, TrainRequest, Update
from melisma.flower import messages
from melisma.flower.job import asked_of
from melisma.flower.messages import NodeStatus, Word
from melisma.jobs.building import own_rows
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.speed import Speed
from melisma.learner.training import Device, LocalTraining, WarmTask, safely
from melisma.learning import data, models
from melisma.learning.benchmark import Line, time_training
from melisma.learning.data import Dataset
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Optimiser, Training
from melisma.learning.shards import Shard, unpacked
from melisma.rpc.request import current_request
from melisma.schemes.dab import most_before
from melisma.units import SamplesPerSecond

#: Where the context has what a learner remembers.
MEMORY = "melisma"
#: Shards that a benchmark trains on.
BENCHMARKED = 8
#: Flower's part is never nothing, whatever two clocks say.
LEAST_S = 1e-3


@dataclass(slots=True)
class Memory:
    """What a learner knows of itself from one message to the next."""

    speed: Speed
    idle: bool = False  #: since it was last asked what it can do
    answered: str = ""  #: the message that it answered last
    busy_s: float = 0.0  #: with the work of that, by its own clock

    @property
    def way_s(self) -> float:
        """What Flower takes for a message and its answer; 0 if that is not known."""
        if self.speed.link is None:
            return 0.0
        both_s = 2 * self.speed.link.seconds(self.speed.model_bytes)
        return both_s * self.speed.link_drift.mean

    def hear(self, word: Word) -> None:
        """Learn how long the last message's way was, if the word is of that one."""
        if not word.previous or word.previous != self.answered:
            return
        way_s = max(LEAST_S, word.previous_s - self.busy_s)
        size_bytes = self.speed.model_bytes
        if self.speed.link is None:
            self.speed.link = Line(latency_s=0.0, rate=2 * size_bytes / way_s)
        else:
            self.speed.transferred([size_bytes, size_bytes], way_s)


@dataclass(frozen=True, slots=True)
class Parcel:
    """The message, to be fetched from as a learner fetches from its orchestrator."""

    parameters: Parameters
    shards: Mapping[str, Shard]

    def __getitem__(self, name: str) -> "Part":
        return Part(getattr(self, f"_{name}"))

    def _parameters(self, cycle: int) -> Parameters:
        return self.parameters

    def _shards(self, keys: list[str]) -> list[Shard]:
        return [self.shards[key] for key in keys]


@dataclass(frozen=True, slots=True)
class Part:
    """Something that can be fetched, and is here already."""

    take: Callable[[Any], Any]

    def within(self, seconds: float) -> "Part":
        """Return the same: it takes no time."""
        return self

    def __call__(self, task: str, argument: Any) -> Any:
        """Return it."""
        return self.take(argument)


class Visit:
    """One message on a node, from its beginning to the answer."""

    def __init__(self, message: Message, context: Context) -> None:
        self._message, self._context = message, context
        self._content, node = message.content, context.node_config
        self._spec = messages.struct_of(self._content, messages.SPEC, TaskSpec)
        self._word = messages.struct_of(self._content, messages.WORD, Word)
        self.parameters = messages.tensors_of(self._content, messages.PARAMETERS)
        self._device = Device(
            name=str(node.get("name", f"node-{context.node_id:016x}")),
            own=_own_data(node, context.run_config) if self._spec.federated else None,
            owner=BackgroundLoad([State(samples_per_s=_rate(node))]),
            clock=time.monotonic,
        )
        model = models.build(self._spec.model, self._spec.seed)
        if self._spec.federated:
            models.check_fits(model, self._device.data())
        training = Training(
            optimiser=Optimiser(self._spec.optimiser),
            rate=self._spec.rate,
            batch=self._spec.batch,
        )
        self.memory = _remembered(context) or Memory(Speed(models.model_bytes(model)))
        self.memory.hear(self._word)
        self._kept = WarmTask(self._spec, model, training, self.memory.speed)
        # Loading and building come with every message, as its way does.
        self._began = time.monotonic()

    def measure(self) -> None:
        """Benchmark training, on what the message brings or on the node's own data.

        Not before the way of a message is known: then another message comes.
        """
        speed, size = self.memory.speed, self._spec.shard
        if speed.link is None or speed.measured:
            return
        if self._spec.federated:
            x, y = self._device.data().train_x, self._device.data().train_y
        else:
            x, y = unpacked(messages.shards_of(self._content, size))
        most = min(BENCHMARKED * size, len(y))
        speed.compute = time_training(
            self._kept.model,
            x,
            y,
            self._kept.training,
            sizes=sorted({max(1, most // 2), most}),
            clock=self._device.clock,
            before_batch=self._device.owner.pace(self._spec.task).batch,
        )

    def train(self) -> Update:
        """Carry out the request that the message brings."""
        request = messages.struct_of(self._content, messages.REQUEST, TrainRequest)
        # The routine leaves time for its answer's way; here that of the message is
        # over already, by how long both are mostly.
        left_s = max(request.deadline_s - self.memory.way_s, 0.0)
        deadline_s = left_s + self.memory.speed.upload_s()
        request = msgspec.structs.replace(request, deadline_s=deadline_s)
        shards = messages.shards_of(self._content, self._spec.shard)
        by_key = dict(zip(request.keys, shards, strict=True))
        parcel: Any = Parcel(self.parameters, by_key)
        token = current_request.set(rpc.Request("train", "server", parcel))
        try:
            routine = LocalTraining(self._device, self._kept, request, lambda: False)
            routine.fetch_model()
            routine.train(routine.examples(request.keys, request.samples))
        finally:
            current_request.reset(token)
        self.memory.idle = False
        return routine.update()

    def asked(self) -> None:
        """Forget some of the drift if no work came of being asked before."""
        if self.memory.speed.measured:
            if self.memory.idle:
                self.memory.speed.forget()
            self.memory.idle = True

    def answer(self, parameters: Parameters, update: Update | None = None) -> Message:
        """Answer, say what this node can do next, and remember."""
        told = self._told()
        content = RecordDict({messages.STATUS: messages.config_of(told)})
        content[messages.PARAMETERS] = messages.arrays_of(parameters)
        if told.speeds:
            content[messages.SPEEDS] = messages.config_of(told.speeds)
        if update:
            content[messages.UPDATE] = messages.config_of(update)
        self.memory.answered = self._message.metadata.message_id
        self.memory.busy_s = time.monotonic() - self._began
        kept = ConfigRecord({MEMORY: msgspec.json.encode(self.memory)})
        self._context.state[MEMORY] = kept
        return Message(content, reply_to=self._message)

    def _told(self) -> NodeStatus:
        spec, speed, speeds, bid = self._spec, self.memory.speed, None, None
        if speed.measured and spec.private:
            law = speed.law(careful=True).per_shard(spec.shard)
            bid = int(most_before(law, safely(self._word.deadline_s), spec.steps)[0])
        elif speed.measured:
            law = speed.law(careful=False)
            speeds = Speeds(
                step_s=float(law.step_s[0]),
                sample_s=float(law.sample_s[0]),
                fixed_s=float(law.fixed_s[0]),
            )
        own = len(self._device.data().train_y) if spec.federated else None
        return NodeStatus(name=self._device.name, samples=own, bid=bid, speeds=speeds)


def query(message: Message, context: Context) -> Message:
    """Tell what this node can do, and measure that first if it can be."""
    visit = Visit(message, context)
    visit.measure()
    visit.asked()
    return visit.answer(visit.parameters)


def train(message: Message, context: Context) -> Message:
    """Train until the work is done or the deadline nears; tell what can come next."""
    visit = Visit(message, context)
    update = visit.train()
    return visit.answer(update.parameters, update)


def _remembered(context: Context) -> Memory | None:
    if MEMORY not in context.state.config_records:
        return None
    kept: Any = context.state.config_records[MEMORY][MEMORY]
    return msgspec.json.decode(kept, type=Memory)


def _rate(node: UserConfig) -> float:
    """Samples a second that a node trains at most, to play a slower one."""
    return float(SamplesPerSecond.of(node.get("rate", math.inf)))


def _own_data(node: UserConfig, run_config: UserConfig) -> Dataset:
    """What lies on this node: a folder of its own, or its part of the job's data set.

    Raises ConfigError if its configuration names neither.
    """
    if "data" in node:
        return data.load_own(Path(str(node["data"])))
    if "partition-id" not in node or "num-partitions" not in node:
        raise ConfigError(
            "this node has no data of its own, which federated mode needs: start it "
            "with --node-config 'data=\"FOLDER\"', or 'partition-id=0 "
            "num-partitions=2' for a part of the job's data set"
        )
    part, parts = int(node["partition-id"]), int(node["num-partitions"])
    if not 0 <= part < parts:
        raise ConfigError(
            f"partition-id={part} of num-partitions={parts}: count from 0"
        )
    job = asked_of(run_config).job
    folder = Path(job.data.folder) if job.data.folder else None
    whole = data.load(job.data.name, folder)
    rows = (own_rows(job, whole, parts) or [])[part]
    x, y = whole.train_x, whole.train_y
    return Dataset(whole.name, x[rows], y[rows], x[:0], y[:0])
