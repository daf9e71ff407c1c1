"""What orchestrator and learners say to each other, over ``melisma.rpc``.

The orchestrator calls a learner:

    prepare(spec)            have a model ready; its name must be one the learner knows
    measure(task, keys)       benchmark yourself on these shards, and keep the result
    speeds(task, drifted)     tell the result; never asked under a decentralised scheme
    bid(task, …)              how many shards do you take?
    probe(request)             begin with the first shard, and tell how fast that goes
    train(request)         fetch, train, halt in time, and answer with an Update
    gradient(request)          fetch, and answer with a coded sum of gradients

    take_up(task, cycle, …)   fetch the model: a cycle of slots begins (fog)
    slot(request)              collect, hand on and train until the slot ends
    hand_in(task, cycle)      answer with the model of all the cycle's slots
    admit(task, sender)       how another device can deliver directly, if it can
    deliver(task, …)          samples of another device, through the orchestrator

A learner calls the orchestrator:

    parameters(task, cycle)   the model as it stands in that cycle
    shards(task, keys)        data, by the hash of its content
    filler(task, size)        so many bytes, where no data would be fetched otherwise
    way(task, receiver)       how to deliver samples to another device directly
    relay(task, …)            deliver samples where that cannot be
"""

from typing import Any

import msgspec
from numpy.typing import NDArray

from melisma import rpc
from melisma.errors import ConfigError
from melisma.learning.parameters import Parameters

#: A gradient: float32, or float64 where it is wide.
Vector = NDArray[Any]


class Unprepared(ConfigError):
    """A learner was not told its task: it was started anew since it was last ready."""


@rpc.register
class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The task that a learner is to get ready for."""

    task: str
    model: str  #: a name that the learner knows
    seed: int
    optimiser: str
    rate: float
    batch: int
    shard: int  #: samples in a shard
    federated: bool  #: train on one's own data; none is sent
    private: bool  #: keep speeds and times to oneself (decentralised schemes)
    steps: int = 1  #: passes over the samples of a slot (fog)
    moving: bool = False  #: samples are sent between devices (fog)


@rpc.register
class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's answer to a spec."""

    measured: bool  #: whether it has benchmarked itself for this task
    samples: int | None = None  #: that lie on it (federated)


@rpc.register
class TrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One learner's work in a cycle."""

    task: str
    cycle: int
    keys: list[str]  #: shards to train on; none: take of one's own data
    samples: int
    steps: int  #: passes over them
    deadline_s: float  #: from now until the update must have arrived
    late: str  #: what to do if that cannot be: a value of Late
    first: int = 0  #: samples of it that a probe has begun with


@rpc.register
class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner made of a request."""

    cycle: int
    parameters: Parameters
    samples: int  #: seen at least once
    batches: int
    loss: float
    halted: bool
    downloaded_s: float | None = None  #: since the request came; None if private
    trained_s: float | None = None


@rpc.register
class GradientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a gradient."""

    task: str
    cycle: int
    parts: list[list[str]]  #: shards of each part of the data
    coefficients: list[float]  #: of each part's gradient
    wide: bool  #: answer in float64: coefficients are large and of both signs
    slower: float = 1.0  #: take so many times as long, to try out stragglers; inf: none


@rpc.register
class Gradient(msgspec.Struct, frozen=True, kw_only=True):
    """Σ coefficient · gradient of a part, summed over its samples."""

    cycle: int
    vector: Vector
    downloaded_s: float  #: since the request came
    trained_s: float


@rpc.register
class SlotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a device of a fog does with data in one slot, in samples."""

    task: str
    cycle: int
    slot: int
    ends_s: float  #: from now
    skipped: int  #: of its own data, collected in earlier slots
    collected: int  #: now
    kept: int  #: of those, to train on at once
    sent: dict[str, int]  #: of those, to whom
    arrived: dict[str, int]  #: in the slot before, from whom


@rpc.register
class SlotDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a device of a fog did in one slot, in samples."""

    slot: int
    trained: int
    delivered: dict[str, int]  #: to whom; the rest came back, for the next slot
    directly: list[str]  #: who of them could be reached without the orchestrator


@rpc.register
class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's delay law, in seconds, by its own benchmark."""

    step_s: float  #: to train on one sample once
    sample_s: float  #: to receive one sample
    fixed_s: float  #: to fetch the model, to start, and to send the update
