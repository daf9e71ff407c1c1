"""What travels by Flower, as records that its own tools can read; nothing is pickled.

The ServerApp sends a node, each with the model and with how long the message before
was under way:

    query    come, and go: the model there and back is what Flower takes. The next one
             brings shards to benchmark on
    train    one learner's work in a cycle, with its shards where they are sent

Each answer says what the node can do in the next cycle: its speeds, or its bid.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    RecordDict,
)

from melisma.errors import DataError
from melisma.fleets.messages import Speeds, Update
from melisma.learning.parameters import Parameters
from melisma.learning.shards import Shard, joined
from melisma.learning.tensors import from_array, to_array

Struct = TypeVar("Struct", bound=msgspec.Struct)

#: Names of the records in a message.
SPEC, WORD, REQUEST, UPDATE = "spec", "word", "request", "update"
STATUS, SPEEDS = "told", "speeds"
PARAMETERS, SHARDS = "parameters", "shards"


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What the ServerApp says with every message."""

    deadline_s: float  #: of a cycle
    previous: str = ""  #: the message that this node answered last
    previous_s: float = 0.0  #: from its sending until its answer was there


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says with every answer; neither speeds nor bid: not measured yet."""

    name: str
    samples: int | None = None  #: that lie on it (federated)
    bid: int | None = None  #: shards that it would take in the next cycle (private)
    speeds: Speeds | None = None


def config_of(struct: msgspec.Struct) -> ConfigRecord:
    """Return what a struct says in plain values; what is None or a table is left out.

    Raises DataError for a whole number that Flower cannot carry.
    """
    plain: dict[str, ConfigRecordValues] = {
        key: value
        for key, value in msgspec.structs.asdict(struct).items()
        if isinstance(value, bool | int | float | str | list)
    }
    for key, value in plain.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise DataError(f"{key} = {value}: Flower carries numbers below 2⁶³")
    return ConfigRecord(plain)


def struct_of(
    content: RecordDict, name: str, kind: type[Struct], **tables: object
) -> Struct:
    """Return what a record says; DataError if it is not there, or says something else.

    ``tables`` are the fields that travel by themselves.
    """
    if name not in content.config_records:
        raise DataError(f"a message without {name!r}")
    try:
        return msgspec.convert({**content.config_records[name], **tables}, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{name!r} of a message: {error}") from error


def arrays_of(tensors: Parameters) -> ArrayRecord:
    """Return tensors as Flower's arrays."""
    return ArrayRecord({name: _array(tensor) for name, tensor in tensors.items()})


def tensors_of(content: RecordDict, name: str) -> Parameters:
    """Return Flower's arrays as tensors; DataError if there are none or one is damaged.

    Their bytes come from others: they are read as numbers or not at all.
    """
    if name not in content.array_records:
        raise DataError(f"a message without {name!r}")
    return {key: _tensor(key, a) for key, a in content.array_records[name].items()}


def status_of(content: RecordDict) -> NodeStatus:
    """Return what a node says with an answer; DataError if it says nothing of use."""
    if SPEEDS not in content.config_records:
        return struct_of(content, STATUS, NodeStatus)
    speeds = dict(content.config_records[SPEEDS])
    return struct_of(content, STATUS, NodeStatus, speeds=speeds)


def update_of(content: RecordDict) -> Update:
    """Return what a node made of its request; DataError if that is not an update."""
    update = struct_of(content, UPDATE, Update, parameters={})
    parameters = tensors_of(content, PARAMETERS)
    return msgspec.structs.replace(update, parameters=parameters)


def shards_in(shards: Sequence[Shard]) -> ArrayRecord:
    """Return shards as two arrays: Flower fetches every array by itself."""
    x, y = joined(shards)
    return arrays_of({"x": x, "y": y})


def shards_of(content: RecordDict, size: int) -> list[Shard]:
    """Return the shards of a message, ``size`` samples in each; none if it has none."""
    if SHARDS not in content.array_records:
        return []
    tensors = tensors_of(content, SHARDS)
    if {*tensors} != {"x", "y"} or len(tensors["x"]) != len(tensors["y"]):
        raise DataError("shards of a message: expected images x, and a class y of each")
    return [
        (tensors["x"][first : first + size], tensors["y"][first : first + size])
        for first in range(0, len(tensors["y"]), size)
    ]


def _array(tensor: Any) -> Array:
    name, memory = to_array(tensor)
    array = Array(memory)
    array.dtype = name  # of the tensor: numpy has a stand-in for some
    return array


def _tensor(name: str, array: Array) -> Any:
    try:
        memory = array.numpy()
        flat = from_array(array.dtype, memory.reshape(-1).view(np.uint8))
        return flat.reshape(memory.shape)
    except _UNREADABLE as error:
        raise DataError(f"array {name!r} is damaged: {error!r}") from error


#: What numpy and torch raise for bytes that are no numbers, or are not as many.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, OSError, EOFError, MemoryError, RuntimeError),
)
