"""A learner on a SuperNode: what it does with one message.

Each message has a process of its own, so nothing is warm: model and shards come with
the message, and what a learner knows of its own speed is kept by Flower in the run's
context, on the node. Training, halting and benchmark are the live learner's.

The transit of a message takes seconds and is not on the node's clock. The server says
how long the message before took in all; less what its work took, that is Flower's part,
and the learner counts it as the time of its link.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig

from melisma.errors import ConfigError
from melisma.fleets.messages import TaskSpec, TrainRequest, Update
from melisma.flower import messages
from melisma.flower.job import configured
from melisma.flower.messages import NodeStatus, Timing
from melisma.jobs.building import own_rows
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.bases import is_held
from melisma.learner.device import Device
from melisma.learner.learner import made, warm
from melisma.learner.source import Caller
from melisma.learner.speed import Speed
from melisma.learner.training import LocalTraining
from melisma.learning import data, models
from melisma.learning.benchmark import Line, sizes_of, time_training
from melisma.learning.data import Dataset
from melisma.learning.parameters import (
    Parameters,
    buffers_are_local,
    put,
    staying_of,
)
from melisma.learning.samples import Arrays, Part, joined, transformed
from melisma.learning.shards import Shard
from melisma.maths.arrays import Bytes
from melisma.units import SamplesPerSecond

#: Where the context has a learner's memory.
MEMORY = "melisma"
#: Flower's part is never nothing, whatever two clocks say.
LEAST_S = 1e-3


@dataclass(slots=True)
class Memory:
    """What a learner knows of itself from one message to the next."""

    speed: Speed
    idle: bool = False  #: no work came since it last reported
    answered: str = ""  #: the message that it replied to last
    busy_s: float = 0.0  #: with that one, by its own clock

    @property
    def transit_s(self) -> float:
        """What Flower takes for a message and its reply; 0 if that is not known."""
        if self.speed.link is None:
            return 0.0
        both_s = 2 * self.speed.link.seconds(self.speed.model_bytes)
        return both_s * self.speed.link_drift.mean

    def observe(self, timing: Timing) -> None:
        """Learn the transit of the last message, if the timing is of that one."""
        if not timing.previous or timing.previous != self.answered:
            return
        transit_s = max(LEAST_S, timing.previous_s - self.busy_s)
        size_bytes = self.speed.model_bytes
        if self.speed.link is None:
            self.speed.link = Line(latency_s=0.0, rate=2 * size_bytes / transit_s)
        else:
            self.speed.transferred([size_bytes, size_bytes], transit_s)


@dataclass(frozen=True, slots=True)
class MessageSource:
    """The model and shards that came with a message: all there is to fetch."""

    model: Parameters
    by_key: Mapping[str, Shard]
    base: Parameters  #: the frozen part, if it came

    def parameters(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Return the model of the message's cycle."""
        return self.model

    def frozen(self, task: str, within_s: float | None = None) -> Parameters:
        """Return the parameters that no cycle changes; none if they did not come."""
        return self.base

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        """Return shards by key."""
        return [self.by_key[key] for key in keys]

    def filler(self, task: str, size: int) -> Bytes:
        """Return that many zeros."""
        return np.zeros(size, dtype=np.uint8)


class Exchange:
    """One message on a node, until its reply."""

    def __init__(self, message: Message, context: Context) -> None:
        self._message, self._context = message, context
        self._content, node = message.content, context.node_config
        self._spec = messages.struct_of(self._content, messages.SPEC, TaskSpec)
        self._timing = messages.struct_of(self._content, messages.TIMING, Timing)
        self.parameters = messages.tensors_of(self._content, messages.PARAMETERS)
        self._device = Device(
            name=str(node.get("name", f"node-{context.node_id:016x}")),
            own=_own_data(node, context.run_config) if self._spec.federated else None,
            background=BackgroundLoad([State(samples_per_s=_rate(node))]),
            clock=time.monotonic,
        )
        model, training = made(self._spec)
        if self._spec.federated:
            models.check_fits(model, self._device.data(), training)
        self.memory = _remembered(context) or Memory(Speed(models.model_bytes(model)))
        self.memory.observe(self._timing)
        self._task = warm(self._device, self._spec, model, training, self.memory.speed)
        if messages.BUFFERS in context.state.array_records:
            put(messages.tensors_of(context.state, messages.BUFFERS), model)
        # Loading and building come with every message, as its transit does.
        self._began = time.monotonic()

    def measure(self) -> None:
        """Benchmark training, on the message's shards or on the node's own data.

        Not before the transit of a message is known: then another message comes.
        """
        spec, speed = self._spec, self.memory.speed
        if speed.link is None or speed.measured:
            return
        if self._spec.federated:
            samples = self._device.data().train
        else:
            samples = Arrays(joined(messages.shards_of(self._content, spec.shard)))
        most = min(spec.benchmarked * spec.shard, len(samples))
        speed.compute = time_training(
            self._task.model,
            transformed(samples, self._task.transform),
            self._task.training,
            sizes=sizes_of(most, spec.sizes),
            repeats=spec.repeats,
            clock=self._device.clock,
            before_batch=self._device.background.throttle(self._spec.task).batch,
        )

    def train(self) -> Update:
        """Train as the message's request says."""
        request = messages.struct_of(self._content, messages.REQUEST, TrainRequest)
        # Local training leaves time to send its update; here the message's transit is
        # over already, which takes as long as both mostly do.
        left_s = max(request.deadline_s - self.memory.transit_s, 0.0)
        deadline_s = left_s + self.memory.speed.upload_s()
        request = msgspec.structs.replace(request, deadline_s=deadline_s)
        shards = messages.shards_of(self._content, self._spec.shard)
        by_key = dict(zip(request.keys, shards, strict=True))
        base: Parameters = {}
        if messages.FROZEN in self._content.array_records:
            base = messages.tensors_of(self._content, messages.FROZEN)
        caller = Caller(MessageSource(self.parameters, by_key, base))
        training = LocalTraining(self._device, self._task, request, caller)
        training.fetch_model()
        training.train(training.examples(request.keys, request.samples))
        self.memory.idle = False
        return training.update()

    def asked(self) -> None:
        """Forget some of the drift if no work came since the last query."""
        if self.memory.speed.measured:
            if self.memory.idle:
                self.memory.speed.forget()
            self.memory.idle = True

    def reply(self, parameters: Parameters, update: Update | None = None) -> Message:
        """Reply, report what this node can do next, and remember."""
        content = RecordDict({messages.STATUS: messages.config_of(self._status())})
        content[messages.PARAMETERS] = messages.arrays_of(parameters)
        if update:
            content[messages.UPDATE] = messages.config_of(update)
        self.memory.answered = self._message.metadata.message_id
        self.memory.busy_s = time.monotonic() - self._began
        kept = ConfigRecord({MEMORY: msgspec.json.encode(self.memory)})
        self._context.state[MEMORY] = kept
        if buffers_are_local(self._task.model):
            buffers = messages.arrays_of(staying_of(self._task.model))
            self._context.state[messages.BUFFERS] = buffers
        return Message(content, reply_to=self._message)

    def _status(self) -> NodeStatus:
        spec, speed, speeds, bid = self._spec, self.memory.speed, None, None
        if speed.measured and spec.private:
            bid = speed.bid(
                spec.shard,
                self._timing.deadline_s,
                spec.steps,
                adaptive=spec.adaptive,
            )
        elif speed.measured:
            speeds = speed.report()
        own = len(self._device.data().train) if spec.federated else None
        return NodeStatus(
            name=self._device.name,
            samples=own,
            bid=bid,
            speeds=speeds,
            complete=not spec.base or is_held(self._task.model, spec.base),
        )


def query(message: Message, context: Context) -> Message:
    """Report what this node can do, and measure that first if it can be."""
    exchange = Exchange(message, context)
    exchange.measure()
    exchange.asked()
    return exchange.reply(exchange.parameters)


def train(message: Message, context: Context) -> Message:
    """Train until the work is done or the deadline nears; report what can come next."""
    exchange = Exchange(message, context)
    update = exchange.train()
    return exchange.reply(update.parameters, update)


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
    job = configured(run_config).job
    folder = Path(job.data.folder) if job.data.folder else None
    whole = data.load(job.data.name, folder)
    rows = (own_rows(job, whole, parts) or [])[part]
    return Dataset(whole.name, Part(whole.train, rows), Part(whole.train, rows[:0]))
