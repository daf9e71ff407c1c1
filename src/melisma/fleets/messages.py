"""Messages between the orchestrator and its learners, over ``melisma.rpc``.

The orchestrator calls a learner:

    prepare(spec)             build the model; its name must be one the learner knows
    measure(task, keys)       benchmark training and transfers on these shards
    speeds(task, drifted)     return the result; never called under private schemes
    bid(task, …)              return how many shards fit before a deadline
    probe(request)            train on the first shard, return how fast that goes
    train(request)            fetch, train, halt in time, return an Update
    gradient(request)         fetch, return a coded sum of gradients

    start(task, cycle, slot)  fetch the model: a cycle of slots begins (fog)
    slot(request)             collect, send and train until the slot ends
    finish(task, cycle)       return the model of all the cycle's slots
    admit(task, sender)       return an address for another device, if this one listens
    deliver(task, …)          take samples of another device, sent by the orchestrator

A learner calls the orchestrator:

    parameters(task, cycle)   the model of that cycle
    correction(task, cycle)   what is added to this learner's gradients (SCAFFOLD)
    frozen(task)              the parameters that no cycle changes
    bundle(hash)              source files of the job's own modules
    shards(task, keys)        data, by the hash of its content
    filler(task, size)        that many bytes, for benchmarks and background downloads
    address(task, to)         where another device takes samples directly
    relay(task, …)            deliver samples to a device that cannot be reached
    leave(task, cycle, …)     for how long it may send its gradient (transmission)
    outline(task)             the model as a list of layers, for who has no PyTorch
    measuring(left_s)         this learner's benchmark takes so long yet
    away(reason)              this learner goes: its screen is locked, say
    back()                    it is here again
"""

from typing import Any

import msgspec
from numpy.typing import NDArray

from melisma import rpc
from melisma.errors import ConfigError, TrainingError
from melisma.learning.codecs import Encoded
from melisma.learning.outline import Layer
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Late, Training
from melisma.learning.training import Trained
from melisma.learning.wire import Packed

#: Parts of a task's model that orders may name; learners keep a model for each.
MOST_SUBMODELS = 16
#: A gradient: float32, or float64 where it is wide.
Vector = NDArray[Any]

rpc.register(Training)
rpc.register(Encoded)
rpc.register(Packed)
rpc.register(Layer)


class Unprepared(ConfigError):
    """A learner has no such task or cycle: it was restarted since it was ready."""


class Untrusted(ConfigError):
    """A learner's owner does not trust the code of a task, or has yet to read it."""


class ShortOfMemory(TrainingError):
    """A learner has not the memory for its work, which is no fault of its own."""


@rpc.register
class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as learners prepare for it."""

    task: str
    model: str  #: a name that the learner knows; of no use where a recipe is
    seed: int
    training: Training
    shard: int  #: samples in a shard
    federated: bool  #: learners train on their own data; none is sent
    private: bool  #: learners do not report speeds and times (decentralised schemes)
    steps: int = 1  #: passes over the samples of a slot (fog)
    moving: bool = False  #: samples are sent between devices (fog)
    base: str = ""  #: hash of the frozen parameters, if there are any
    recipe: str = ""  #: the task that makes model and loss, a name the learner knows
    bundle: str = ""  #: hash of the source that has model or recipe, if it is sent
    exact: bool = False  #: train in float32 alone: work is redone, or coded
    drifted: bool = False  #: report speeds as they have drifted since the benchmark
    look_every: int = 10  #: batches between two looks at the clock (late: overrun)
    states: bool = False  #: benchmark every state that the owner may have the device in
    adaptive: bool = True  #: bid with a margin, by the drift; else by the benchmark
    benchmarked: int = 8  #: shards of a benchmark
    sizes: int = 2  #: of a benchmark: all its shards, or half of them too
    repeats: int = 3  #: of each size, whose median counts
    patience_s: float = 0.0  #: no round of a benchmark begins that ends later; 0: all
    late_at_most: float = 0.0  #: share of cycles that may be late; 0: no promise
    down: str = "fp32"  #: codec of the model
    up: str = "fp32"  #: codec of what a learner changes of it
    #: Parts of the model that orders may name, besides all of it.
    submodels: list[str] = msgspec.field(default_factory=list)


@rpc.register
class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's answer to ``prepare``."""

    measured: bool  #: whether it has benchmarked itself for this task
    samples: int | None = None  #: of its own data (federated)
    speeds: "Speeds | None" = None  #: unless they are private, or not measured yet


@rpc.register
class TrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One learner's work in a cycle."""

    task: str
    cycle: int
    keys: list[str]  #: shards to train on; none: of the learner's own data
    samples: int
    steps: int  #: passes over them
    deadline_s: float  #: from now until the update must have arrived
    late: Late  #: what to do if that cannot be met
    first: int = 0  #: samples of it that a probe has trained on
    corrected: bool = False  #: there is a correction of its gradients to be fetched
    down: str = ""  #: codec of its model, where learners differ in that; "": the task's
    up: str = ""  #: codec of what it changes, likewise
    anew: bool = False  #: its run has had nothing of this learner yet
    submodel: str = ""  #: what it trains of the model, one of the task's; "": all


@rpc.register
class Update(Trained, frozen=True, kw_only=True):
    """A learner's answer to a TrainRequest: its model, and the work behind it."""

    cycle: int
    parameters: Parameters
    downloaded_s: float | None = None  #: since the request arrived; None if private
    trained_s: float | None = None
    packed: Packed | None = None  #: in place of parameters, where codecs are used
    spent_j: float | None = None  #: by the device's own sensor, if it has one


@rpc.register
class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's battery is to know, where coded workers have one."""

    battery_j: float  #: what it holds
    start_j: float  #: what is in it, where it begins now
    harvest_w: float
    steady: bool
    slot_s: float  #: for which harvest is drawn, and between two questions for leave
    sample_j: float  #: to compute the gradient of a sample
    sending_w: float
    above_j: float  #: compute with no less in it


@rpc.register
class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """The books of a worker's battery, since it began."""

    life: float  #: a number of its own: a restarted worker has another battery
    began_j: float
    battery_j: float
    lowest_j: float
    harvested_j: float
    stored_j: float
    computing_j: float
    sending_j: float


@rpc.register
class GradientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a gradient."""

    task: str
    cycle: int
    parts: list[list[str]]  #: shards of each part of the data
    coefficients: list[float]  #: of each part's gradient
    wide: bool  #: answer in float64: coefficients are large and of both signs
    slower: float = 1.0  #: take that many times as long, to emulate stragglers
    budget: Budget | None = None  #: where workers have batteries


@rpc.register
class Gradient(msgspec.Struct, frozen=True, kw_only=True):
    """Σ coefficient · gradient of a part, summed over its samples."""

    cycle: int
    vector: Vector
    downloaded_s: float  #: since the request arrived
    trained_s: float
    charge: Charge | None = None  #: where the request has a budget


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
    delivered: dict[str, int]  #: to whom; the rest stays here for the next slot
    directly: list[str]  #: receivers that were reached without the orchestrator


@rpc.register
class StateSpeeds(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's delay law, in seconds, while its owner uses the device in one way."""

    probability: float
    step_s: float
    sample_s: float
    fixed_s: float


@rpc.register
class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's delay law, in seconds, by its own benchmark."""

    step_s: float  #: to train on one sample once
    sample_s: float  #: to receive one sample
    fixed_s: float  #: to fetch the model, to start, and to send the update
    #: The same in each state of its owner, if that was asked for and there are some.
    states: list[StateSpeeds] = msgspec.field(default_factory=list)
    #: Seed of these states (`system.states.owner_state`), of an owner who is emulated.
    owner: int | None = None
    compute_spread: float = 0.0  #: σ of the logarithm of its benchmark's times
    link_spread: float = 0.0


@rpc.register
class Shaped(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a model, or a value of a sample."""

    dtype: str  #: as torch calls it
    shape: list[int]


@rpc.register
class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A task as learners without PyTorch prepare for it."""

    layers: list[Layer]
    training: Training  #: as the recipe and the job have it together
    parameters: dict[str, Shaped]  #: that travel
    fields: dict[str, Shaped]  #: of a sample, as it is stored and sent
