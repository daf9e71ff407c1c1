"""Messages by Flower, as records that its own tools can read; nothing is pickled.

The ServerApp sends a node, each with the model and with the duration of the message
before:

    query    measures what Flower takes: the model goes there and back. The next one
             brings shards to benchmark on
    train    one learner's work in a cycle, with its shards where they are sent

Each reply reports what the node can do in the next cycle: its speeds, or its bid.
"""

from collections.abc import Mapping, Sequence
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
from flwr.common.config import unflatten_dict

from melisma.errors import DataError
from melisma.fleets.messages import Speeds, Update
from melisma.learning.parameters import Parameters
from melisma.learning.samples import joined, length
from melisma.learning.shards import Shard, check_shard
from melisma.learning.tensors import from_array, to_array

Struct = TypeVar("Struct", bound=msgspec.Struct)

#: Names of the records in a message.
SPEC, TIMING, REQUEST = "spec", "timing", "request"
UPDATE, STATUS = "update", "status"
PARAMETERS, SHARDS, FROZEN = "parameters", "shards", "frozen"
#: Where a node's context has the buffers that stay there.
BUFFERS = "buffers"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Times that come with every message to a node."""

    deadline_s: float  #: of a cycle
    previous: str = ""  #: the message that this node replied to last
    previous_s: float = 0.0  #: from its sending until its reply arrived


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What comes with every reply; neither speeds nor bid: not measured yet."""

    name: str
    samples: int | None = None  #: of its own data (federated)
    bid: int | None = None  #: shards that it would take in the next cycle (private)
    speeds: Speeds | None = None
    complete: bool = True  #: has the frozen parameters of the task's model


def config_of(struct: msgspec.Struct) -> ConfigRecord:
    """Return a struct's plain values, those of nested ones under dotted names.

    None is left out, and so are ``parameters``, which travel by themselves. Raises
    DataError for a whole number that Flower cannot carry.
    """
    fields = msgspec.structs.asdict(struct)
    fields.pop(PARAMETERS, None)
    plain = _flat(msgspec.to_builtins(fields))
    for key, value in plain.items():
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise DataError(f"{key} = {value}: Flower carries numbers below 2⁶³")
    return ConfigRecord(plain)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, ConfigRecordValues]:
    flat: dict[str, ConfigRecordValues] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def struct_of(
    content: RecordDict, name: str, kind: type[Struct], **more: object
) -> Struct:
    """Return a record as a struct; DataError if it is missing or of another kind.

    ``more`` are fields that travel by themselves.
    """
    if name not in content.config_records:
        raise DataError(f"a message without {name!r}")
    try:
        fields = unflatten_dict(dict(content.config_records[name]))
        return msgspec.convert({**fields, **more}, kind)
    except (msgspec.ValidationError, TypeError) as error:
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


def update_of(content: RecordDict) -> Update:
    """Return the update of a reply; DataError if there is none."""
    parameters = tensors_of(content, PARAMETERS)
    update = struct_of(content, UPDATE, Update, parameters={})
    return msgspec.structs.replace(update, parameters=parameters)


def shards_in(shards: Sequence[Shard]) -> ArrayRecord:
    """Return shards as one: Flower fetches every array by itself."""
    return arrays_of(joined(shards))


def shards_of(content: RecordDict, size: int) -> list[Shard]:
    """Return the shards of a message, ``size`` samples in each; none if it has none."""
    if SHARDS not in content.array_records:
        return []
    tensors = tensors_of(content, SHARDS)
    check_shard(tensors)
    return [
        {name: tensor[first : first + size] for name, tensor in tensors.items()}
        for first in range(0, length(tensors), size)
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
