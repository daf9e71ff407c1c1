"""Serialisation of values: a msgpack body, and the buffers of large arrays, uncopied.

Supported are None, bool, int, float, str, bytes, list, tuple, set, frozenset, dict,
numpy arrays and scalars, torch tensors, and dataclasses and msgspec structs that both
sides registered, whose fields may be enums. Types are preserved. Anything else is a
TypeError with the path to it in the value. Received bytes can name registered classes
and nothing else: no pickle.
"""

import dataclasses
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError

Buffer = NDArray[np.uint8]
C = TypeVar("C", bound=type[Any])

#: Arrays up to this size are part of the body.
INLINE_BYTES = 4096

TUPLE, SET, FROZENSET, ARRAY, SCALAR, TENSOR, RECORD = range(1, 8)
SEQUENCES: dict[type[Any], int] = {tuple: TUPLE, set: SET, frozenset: FROZENSET}
SEQUENCE_TYPES = {code: kind for kind, code in SEQUENCES.items()}
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
DICTS = frozenset({dict, OrderedDict, defaultdict})
DTYPES = {
    np.dtype(name).str: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}

_encode = msgspec.msgpack.Encoder().encode
_records: dict[str, type[Any]] = {}
_record_names: dict[type[Any], str] = {}


class Unsendable(TypeError):
    """A part of a value cannot be sent; ``path`` leads to that part."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem, self.path = problem, path

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.problem}"

    def below(self, step: str) -> "Unsendable":
        """Return the error with ``step`` put before its path."""
        return Unsendable(self.problem, step + self.path)


class Malformed(ValueError):
    """Received bytes that break the protocol."""


@overload
def register(cls: C, *, name: str | None = None) -> C: ...
@overload
def register(*, name: str | None = None) -> Callable[[C], C]: ...
def register(cls: Any = None, *, name: str | None = None) -> Any:
    """Register a dataclass or msgspec struct as a value, by its own name or ``name``.

    Both sides register the class, since only its name is sent. Fields are checked
    against their annotations on receipt.
    """
    if cls is None:
        return partial(register, name=name)
    if not (dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct)):
        raise ConfigError(f"{cls.__name__} is neither a dataclass nor a msgspec struct")
    name = name or cls.__name__
    if _records.get(name, cls) is not cls:
        raise ConfigError(
            f"another class is registered as '{name}': give this one a name"
        )
    _records[name] = cls
    _record_names[cls] = name
    return cls


def pack(value: Any) -> tuple[bytes, list[Buffer]]:
    """Return the body of a value, and the buffers of its large arrays, uncopied."""
    if type(value) in ATOMS:  # the common case, made fast
        return _pack_plain(value), []
    buffers: list[Buffer] = []
    return _pack_plain(_at("", value, buffers)), buffers


def pack_call(
    args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[bytes, list[Buffer]]:
    """Return body and buffers of a call's arguments, which unpack to a pair."""
    buffers: list[Buffer] = []
    plain_args = [
        arg if type(arg) in ATOMS else _at(f"argument {i}", arg, buffers)
        for i, arg in enumerate(args, 1)
    ]
    plain_kwargs = {
        key: arg if type(arg) in ATOMS else _at(f"argument {key}", arg, buffers)
        for key, arg in kwargs.items()
    }
    return _pack_plain([plain_args, plain_kwargs]), buffers


def unpack(body: bytes | memoryview | msgspec.Raw, buffers: Sequence[Buffer]) -> Any:
    """Return the value of ``pack``; Malformed if the bytes are not of one."""
    unused = dict(enumerate(buffers))
    try:
        value = _decoder(unused).decode(body) if buffers else _plain_decode(body)
    except Exception as error:  # the edge: hostile bytes, or a class's own checks
        raise Malformed(f"a value cannot be decoded: {error}") from error
    if unused:
        raise Malformed(f"{len(unused)} buffers belong to no array of the value")
    return value


def _pack_plain(value: Any) -> bytes:
    try:
        return _encode(value)
    except OverflowError:
        raise Unsendable("holds an integer of more than 64 bits") from None
    except RecursionError:
        raise Unsendable("is nested too deeply") from None
    except UnicodeEncodeError:
        raise Unsendable("holds text that is not valid Unicode") from None


def _at(step: str, value: Any, buffers: list[Buffer]) -> Any:
    try:
        return _plain(value, buffers)
    except Unsendable as error:
        raise error.below(step) from None
    except RecursionError:
        raise Unsendable("is nested too deeply", step) from None


def _plain(value: Any, buffers: list[Buffer]) -> Any:
    """Return a value in msgpack's types; its large arrays are added to ``buffers``."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list:
        return _items(value, buffers)
    if kind in DICTS:
        return _entries(value, buffers)
    if kind in SEQUENCES:
        return _ext(SEQUENCES[kind], _items(list(value), buffers))
    if kind is np.ndarray or kind is np.memmap:
        return _array(ARRAY, value.dtype.str, value, buffers)
    if isinstance(value, np.generic):
        dtype = _known(value.dtype)
        return _ext(SCALAR, [dtype.str, value.tobytes()])
    if kind in _record_names:
        return _ext(RECORD, [_record_names[kind], _entries(_fields(value), buffers)])
    if "torch" in sys.modules and kind.__module__.partition(".")[0] == "torch":
        return _tensor(value, buffers)
    raise Unsendable(f"{kind.__name__} cannot be sent; {_advice(kind)}")


def _advice(kind: type[Any]) -> str:
    if dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct):
        return "register the class on both sides: melisma.rpc.register"
    return "send plain values, arrays, tensors or a registered dataclass"


def _items(items: list[Any], buffers: list[Buffer]) -> list[Any]:
    if ATOMS.issuperset(map(type, items)):
        return items
    plain = []
    for i, item in enumerate(items):
        try:
            plain.append(_plain(item, buffers))
        except Unsendable as error:
            raise error.below(f"[{i}]") from None
    return plain


def _entries(entries: dict[Any, Any], buffers: list[Buffer]) -> dict[Any, Any]:
    plain = {}
    for key, item in entries.items():
        if type(key) not in ATOMS:
            raise Unsendable(f"key {key!r} is a {type(key).__name__}: use str or int")
        try:
            plain[key] = _plain(item, buffers)
        except Unsendable as error:
            raise error.below(f"[{key!r}]") from None
    return plain


def _fields(record: Any) -> dict[str, Any]:
    """Return a record's fields, enums as their values: annotations restore them."""
    fields = {name: getattr(record, name) for name in _field_names(type(record))}
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in fields.items()
    }


def _field_names(cls: type[Any]) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)
    return tuple(cls.__struct_fields__)


def _ext(code: int, content: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _pack_plain(content))


def _known(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.str in DTYPES:
        return dtype
    if dtype.str[0] == ">":
        little = dtype.newbyteorder("<").name
        raise Unsendable(f"big-endian {dtype} cannot be sent: use astype('{little}')")
    raise Unsendable(f"an array of {dtype} cannot be sent: use a plain number type")


def _array(
    code: int, type_name: str, array: NDArray[Any], buffers: list[Buffer]
) -> msgspec.msgpack.Ext:
    _known(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if flat.size <= INLINE_BYTES:
        return _ext(code, [type_name, array.shape, flat.tobytes()])
    buffers.append(flat)
    return _ext(code, [type_name, array.shape, len(buffers) - 1])


def _tensor(tensor: Any, buffers: list[Buffer]) -> msgspec.msgpack.Ext:
    from melisma.learning import tensors  # torch is loaded already

    if not hasattr(tensor, "layout"):
        raise Unsendable(f"{type(tensor).__name__} cannot be sent; send its tensors")
    try:
        name, array = tensors.to_array(tensor)
    except TypeError as error:
        raise Unsendable(str(error)) from None
    return _array(TENSOR, name, array.reshape(tuple(tensor.shape)), buffers)


def _decoder(unused: dict[int, Buffer]) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder that takes the buffers of arrays out of ``unused``."""

    def extension(code: int, data: memoryview) -> Any:
        content = decoder.decode(data)
        if code in SEQUENCE_TYPES:
            return SEQUENCE_TYPES[code](content)
        if code == SCALAR:
            name, number = content
            return np.frombuffer(number, DTYPES[name])[0]
        if code == RECORD:
            return _record(*content)
        if code not in (ARRAY, TENSOR):
            raise ValueError(f"unknown extension {code}")
        name, shape, source = content
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"{shape} is not a shape")
        buffer = unused.pop(source) if type(source) is int else _copy(source)
        if code == ARRAY:
            return buffer.view(DTYPES[name]).reshape(shape)
        from melisma.learning import tensors  # torch is slow to load

        return tensors.from_array(name, buffer).reshape(shape)

    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=extension)
    return decoder


def _copy(data: bytes) -> Buffer:
    if type(data) is not bytes:  # bytearray(number) would allocate that much
        raise TypeError(f"{type(data).__name__} is not a buffer")
    return np.frombuffer(bytearray(data), np.uint8)


_plain_decode = _decoder({}).decode


def _record(name: str, fields: dict[str, Any]) -> Any:
    cls = _records.get(name)
    if cls is None:
        raise ValueError(f"'{name}' is not registered here: melisma.rpc.register")
    if not fields.keys() <= set(_field_names(cls)):
        raise ValueError(f"{name} has no fields {sorted(fields)}")
    return msgspec.convert(fields, cls, dec_hook=_instance)


def _instance(expected: Any, value: Any) -> Any:
    if isinstance(value, getattr(expected, "__origin__", expected)):
        return value
    raise ValueError(f"expected {expected}, got {type(value).__name__}")
