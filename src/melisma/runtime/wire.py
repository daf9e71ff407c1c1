"""What orchestrator and learners say to each other, over ``melisma.rpc``.

The orchestrator calls a learner:

    prepare(brief)            have a model ready; its name must be one the learner knows
    measure(task, keys)       benchmark yourself on these shards, and keep the result
    speeds(task, drifted)     tell the result; never asked under a decentralised scheme
    bid(task, …)              how many shards do you take?
    probe(errand)             begin with the first shard, and tell how fast that goes
    carry_out(errand)         fetch, train, halt in time, and answer with an Update

A learner calls the orchestrator:

    parameters(task, cycle)   the model as it stands in that cycle
    shards(task, keys)        data, by the hash of its content
    filler(task, size)        so many bytes, where no data would be fetched otherwise
"""

import msgspec

from melisma import rpc
from melisma.errors import ConfigError
from melisma.learning.parameters import Parameters


class Unprepared(ConfigError):
    """A learner was not told its task: it was started anew since the muster."""


@rpc.register
class Brief(msgspec.Struct, frozen=True, kw_only=True):
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


@rpc.register
class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's answer to a brief."""

    measured: bool  #: whether it has benchmarked itself for this task
    samples: int | None = None  #: that lie on it (federated)


@rpc.register
class Errand(msgspec.Struct, frozen=True, kw_only=True):
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
    """What a learner made of an errand."""

    cycle: int
    parameters: Parameters
    samples: int  #: seen at least once
    batches: int
    loss: float
    halted: bool
    downloaded_s: float | None = None  #: since the errand came; None if private
    trained_s: float | None = None


@rpc.register
class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's delay law, in seconds, by its own benchmark."""

    step_s: float  #: to train on one sample once
    sample_s: float  #: to receive one sample
    fixed_s: float  #: to fetch the model, to start, and to send the update
