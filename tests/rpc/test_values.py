import contextlib
import dataclasses
import math
from collections import OrderedDict
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from melisma.errors import ConfigError
from melisma.learning import tensors
from melisma.rpc import values
from melisma.rpc.values import Malformed, Unsendable, pack, pack_call, register, unpack

SHAPES = [(), (0,), (3, 0, 2), (3, 4), (40, 50, 3)]

atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
keys = st.text() | st.integers(-(2**63), 2**64 - 1)
trees = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.sets(st.integers(0, 9))
        | st.frozensets(st.text())
    ),
)


@register
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    weights: NDArray[np.float64]
    tail: "Point | None" = None


@register(name="reading")
class Reading(msgspec.Struct):
    label: str
    values: torch.Tensor


class Colour(StrEnum):
    RED = "red"


@register
class Paint(msgspec.Struct):
    colour: Colour


def carried(value: Any) -> Any:
    """Return the unpacked value, from copies of its buffers."""
    body, buffers = pack(value)
    return unpack(body, [buffer.copy() for buffer in buffers])


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@given(trees)
def test_plain_values_arrive_as_they_were_sent(value: Any) -> None:
    assert same(carried(value), value)


@pytest.mark.parametrize("dtype", values.DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_arrive_equal_and_writable(
    dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    array = np.asarray(np.arange(math.prod(shape)).reshape(shape) % 100).astype(dtype)
    arrived = carried(array)
    assert arrived.dtype == dtype
    assert arrived.shape == shape
    assert arrived.flags.writeable
    np.testing.assert_array_equal(arrived, array)


@pytest.mark.parametrize("name", tensors.DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensors_arrive_equal(name: str, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).remainder(100)
    tensor = tensor.to(tensors.DTYPES[name])
    arrived = carried(tensor)
    assert arrived.dtype == tensor.dtype
    assert arrived.shape == tensor.shape
    assert torch.equal(arrived.to(torch.complex128), tensor.to(torch.complex128))


def test_arrays_that_are_not_in_one_piece_arrive_equal() -> None:
    matrix = np.arange(60_000.0).reshape(200, 300)
    for piece in (matrix.T, matrix[::2, ::-3], np.broadcast_to(matrix[0], (50, 300))):
        np.testing.assert_array_equal(carried(piece), piece)
    tensor = torch.arange(60_000).reshape(200, 300).t()
    assert torch.equal(carried(tensor), tensor)
    assert torch.equal(carried(torch.tensor([1 + 2j]).conj()), torch.tensor([1 - 2j]))


def test_large_arrays_are_sent_from_their_own_memory() -> None:
    array, tensor = np.zeros(10_000), torch.zeros(10_000)
    _, (first, second) = pack([array, tensor])
    assert np.shares_memory(first, array)
    assert second.ctypes.data == tensor.data_ptr()


def test_large_arrays_arrive_in_the_memory_they_were_received_in() -> None:
    body, buffers = pack([np.ones(10_000), torch.ones(10_000)])
    received = [buffer.copy() for buffer in buffers]
    array, tensor = unpack(body, received)
    assert np.shares_memory(array, received[0])
    assert tensor.data_ptr() == received[1].ctypes.data


def test_a_model_arrives_whole() -> None:
    state = torch.nn.Sequential(torch.nn.Linear(300, 100), torch.nn.Linear(100, 2))
    arrived = carried(state.state_dict())
    assert list(arrived) == list(state.state_dict())
    assert all(torch.equal(arrived[key], t) for key, t in state.state_dict().items())


def test_scalars_of_numpy_keep_their_type() -> None:
    for scalar in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j)):
        assert same(carried(scalar), scalar)


def test_registered_classes_arrive_as_themselves() -> None:
    arrived = carried(Point(1, np.ones(3), Point(2, np.zeros(2))))
    assert isinstance(arrived, Point)
    assert isinstance(arrived.tail, Point)
    np.testing.assert_array_equal(arrived.tail.weights, [0, 0])
    reading = carried(Reading("a", torch.ones(5_000)))
    assert isinstance(reading, Reading)
    assert torch.equal(reading.values, torch.ones(5_000))


def test_enums_of_registered_classes_arrive_as_themselves() -> None:
    assert carried(Paint(Colour.RED)).colour is Colour.RED
    body, _ = pack(Paint("green"))  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="Invalid enum value 'green'"):
        unpack(body, [])


def test_ordered_dictionaries_arrive_as_plain_ones_in_order() -> None:
    assert list(carried(OrderedDict(b=1, a=2)).items()) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros(3, ">f4"), "the value: big-endian >f4 cannot be sent: use astype"),
        (np.array([object()]), "an array of object cannot be sent"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.ma.masked_array([1]), "MaskedArray cannot be sent"),
        ([1, {"a": (2, object())}], r"\[1\]\['a'\]\[1\]: object cannot be sent"),
        (Exception, "type cannot be sent"),
        (2**64, "more than 64 bits"),
        ("\ud800", "not valid Unicode"),
        ({(1, 2): 3}, r"key \(1, 2\) is a tuple"),
        (torch.nn.Linear(1, 1), "Linear cannot be sent; send its tensors"),
        (torch.zeros(2).to_sparse(), "sparse"),
        (dataclasses.make_dataclass("Loose", ["a"])(1), "register the class on both"),
        (range(3), "range cannot be sent"),
        (lambda: 1, "function cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_named(value: Any, says: str) -> None:
    with pytest.raises(Unsendable, match=says):
        pack(value)


def test_what_contains_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unsendable, match="nested too deeply"):
        pack(loop)


def test_arguments_are_named_by_place_or_keyword() -> None:
    with pytest.raises(Unsendable, match=r"argument 2\[0\]: object"):
        pack_call((1, [object()]), {})
    with pytest.raises(Unsendable, match="argument rate: object"):
        pack_call((), {"rate": object()})


def test_only_dataclasses_and_structs_can_be_registered() -> None:
    with pytest.raises(ConfigError, match="int is neither"):
        register(int)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigError, match="registered as 'Point'"):
        register(dataclasses.make_dataclass("Point", ["y"]))


def ext(code: int, content: Any) -> bytes:
    return msgspec.msgpack.encode(
        msgspec.msgpack.Ext(code, msgspec.msgpack.encode(content))
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (ext(values.RECORD, ["os.system", {"command": "true"}]), "not registered"),
        (ext(values.RECORD, ["Point", {"x": "no", "weights": 1}]), "int"),
        (ext(values.RECORD, ["Point", {"x": 1, "__class__": 2}]), "has no fields"),
        (ext(values.RECORD, ["Point", {"x": 1}]), "weights"),
        (ext(values.ARRAY, ["|O", [1], b"12345678"]), "cannot be decoded"),
        (ext(values.ARRAY, [">f4", [1], b"1234"]), "cannot be decoded"),
        (ext(values.ARRAY, ["<f4", [3], b"1234"]), "cannot be decoded"),
        (ext(values.ARRAY, ["<f4", [-1], b"1234"]), "not a shape"),
        (ext(values.ARRAY, ["<f4", [1], 0]), "cannot be decoded"),
        (ext(values.ARRAY, ["<f4", [1], -1]), "cannot be decoded"),
        (ext(values.ARRAY, 7), "cannot be decoded"),
        (ext(values.TENSOR, ["float32; import os", [1], b"1234"]), "cannot be decoded"),
        (ext(values.SCALAR, ["<f4", b""]), "cannot be decoded"),
        (ext(values.SET, [[1]]), "cannot be decoded"),
        (ext(99, 1), "unknown extension 99"),
        (b"\x91" * 100_000 + b"\xc0", "cannot be decoded"),
        (b"", "cannot be decoded"),
    ],
)
def test_what_no_honest_sender_writes_is_malformed(body: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        unpack(body, [])


def test_a_memory_belongs_to_one_array() -> None:
    array = msgspec.msgpack.Ext(values.ARRAY, msgspec.msgpack.encode(["|u1", [2], 0]))
    twice = msgspec.msgpack.encode([array, array])
    memory = np.zeros(2, np.uint8)
    with pytest.raises(Malformed):
        unpack(twice, [memory])
    with pytest.raises(Malformed, match="1 buffers belong to no array"):
        unpack(b"\xc0", [memory])


@given(st.binary())
def test_garbage_is_malformed_or_a_value(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        unpack(data, [])
