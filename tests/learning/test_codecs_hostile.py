"""Whatever comes, a codec gives finite tensors of the model, or a DataError."""

import math
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.test_codecs import NAMES, model

from melisma.errors import DataError
from melisma.learning.codecs import Encoded, codec_of
from melisma.learning.codecs.indices import index_bytes, pack_indices, unpack_indices

LIKE = model() | {"half": torch.ones(5, dtype=torch.float16)}


def survives(written: str, encoded: object) -> bool:
    """Decode; return whether it was taken, and then all is as it should be."""
    codec = codec_of(written)
    try:
        decoded = codec.decode(encoded, LIKE)
    except DataError:
        return False
    assert list(decoded) == list(LIKE)
    for name, tensor in decoded.items():
        assert (tensor.shape, tensor.dtype) == (LIKE[name].shape, LIKE[name].dtype)
        assert bool(tensor.isfinite().all())
    return True


def sent(written: str, payload: Any = None, **changed: Any) -> Encoded:
    encoded = codec_of(written).encode(LIKE, 1)
    if payload is not None:
        changed["payload"] = payload
    return msgspec.structs.replace(encoded, **changed)


@pytest.mark.parametrize("written", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_bytes_are_taken_for_numbers_or_refused(
    written: str, data: st.DataObject
) -> None:
    size = codec_of(written).size_bytes(LIKE)
    seed = data.draw(st.integers(0, 2**32))
    drawn = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    survives(written, sent(written, drawn))


@pytest.mark.parametrize("written", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_few_changed_bytes_are_taken_for_numbers_or_refused(
    written: str, data: st.DataObject
) -> None:
    payload = sent(written).payload.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(payload) - 1))
        payload[place] = data.draw(st.integers(0, 255))
    survives(written, sent(written, payload))


@pytest.mark.parametrize("written", NAMES)
def test_every_other_size_is_refused(written: str) -> None:
    whole = sent(written).payload
    assert survives(written, sent(written))
    for payload in (whole[:-1], whole[1:], whole[:0], np.append(whole, whole[:1])):
        assert not survives(written, sent(written, payload))


@pytest.mark.parametrize(
    "payload", [b"bytes", None, 7, [1, 2], np.zeros(4), np.zeros((2, 2), np.uint8)]
)
def test_what_is_no_array_of_bytes_is_refused(payload: Any) -> None:
    # 4817 values with 19 scales of 2 bytes, a counter of 8 bytes and 3 flags.
    encoded = Encoded(codec="int8", seed=1, payload=payload)
    with pytest.raises(DataError, match="int8 came as other than the 4866 bytes"):
        codec_of("int8").decode(encoded, LIKE)


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1.0, True, "1", None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(DataError, match="a seed that is none"):
        codec_of("random-k 1 %").decode(sent("random-k 1 %", seed=seed), LIKE)


@pytest.mark.parametrize("codec", ["int4", "int8 64", "", 3, "\x1b[31mint8" * 100])
def test_another_codec_is_refused(codec: Any) -> None:
    with pytest.raises(DataError, match="came in place of int8") as raised:
        codec_of("int8").decode(sent("int8", codec=codec), LIKE)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("encoded", [None, {}, 3, "int8", np.zeros(3, np.uint8)])
def test_what_is_nothing_encoded_is_refused(encoded: object) -> None:
    with pytest.raises(DataError, match="came in place of int8"):
        codec_of("int8").decode(encoded, LIKE)


@pytest.mark.parametrize("bits", [0x7F80, 0x7FC0, 0xFF80, 0xBF80, 0x7F7F])
def test_scales_that_are_not_finite_negative_or_too_large_are_refused(
    bits: int,
) -> None:
    for written in ("int8", "int4"):
        payload = sent(written).payload.copy()
        payload[2:4] = bits & 255, bits >> 8
        with pytest.raises(DataError, match="scales that cannot be"):
            codec_of(written).decode(sent(written, payload), LIKE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("written", "kind"),
    [
        *(("fp32", "<f4"), ("fp16", "<f2"), ("top-k 1 %", "<f4")),
        *(("random-k 1 %", "<f4"), ("powersgd 4", "<f4")),
    ],
)
def test_values_that_are_not_finite_are_refused(
    written: str, kind: str, value: float
) -> None:
    payload = sent(written).payload.copy()
    first = np.array([value], kind).view(np.uint8)
    payload[: len(first)] = first
    with pytest.raises(DataError, match="not finite"):
        codec_of(written).decode(sent(written, payload), LIKE)


def test_values_that_overflow_only_here_are_refused() -> None:
    large = np.full(1, 3e38, np.float32).view(np.uint8)
    for written in ("random-k 1 %", "powersgd 4"):  # times n/k, and times another
        payload = np.zeros_like(sent(written).payload)
        whole = len(payload) // 4 * 4 - 40
        payload[:whole] = np.tile(large, whole // 4)
        with pytest.raises(DataError, match="not finite"):
            codec_of(written).decode(sent(written, payload), LIKE)
    tensors = {"x": torch.tensor([1e30])}
    narrow = {"x": torch.ones(1, dtype=torch.float16)}
    with pytest.raises(DataError, match="'x' came with values that are not finite"):
        codec_of("bf16").decode(codec_of("bf16").encode(tensors, 0), narrow)


def test_booleans_that_are_neither_are_refused() -> None:
    payload = sent("int8").payload.copy()
    payload[-1] = 2
    with pytest.raises(DataError, match="'flags' came with booleans"):
        codec_of("int8").decode(sent("int8", payload), LIKE)


@pytest.mark.parametrize(("n", "k"), [(100, 5), (1000, 5), (1000, 250)])
def test_indices_twice_or_falling_are_refused(n: int, k: int) -> None:
    # The first byte has the lower bits of two at least with the same quotient, or, for
    # a quarter of all, what five have left below 3: 0, 1, 2, 0, 1.
    packed = np.empty(index_bytes(n, k), np.uint8)
    pack_indices(np.arange(k), n, packed)
    packed[0] = 0  # 0, 0 …
    with pytest.raises(DataError, match="do not increase"):
        unpack_indices(packed, n, k)


def test_remainders_that_are_none_are_refused() -> None:
    packed = np.empty(index_bytes(1000, 250), np.uint8)
    pack_indices(np.arange(250), 1000, packed)
    packed[7] = 3**5
    with pytest.raises(DataError, match="remainders that are none"):
        unpack_indices(packed, 1000, 250)


def test_indices_beyond_the_end_are_refused() -> None:
    # n = 1001 and k = 5: 7 lower bits, so an upper part of 7 leads up to 1023.
    packed = np.empty(index_bytes(1001, 5), np.uint8)
    pack_indices(np.array([0, 1, 2, 3, 1000]), 1001, packed)
    bits = np.unpackbits(packed, bitorder="little")
    bits[28:35] = 1  # lower bits of the last: 896 + 127
    with pytest.raises(DataError, match="or are too large"):
        unpack_indices(np.packbits(bits, bitorder="little"), 1001, 5)


def test_too_few_or_too_many_indices_are_refused() -> None:
    for n, k in ((1000, 5), (1000, 500)):  # Elias–Fano, and a bitmap
        for value in (0, 255):
            packed = np.full(index_bytes(n, k), value, np.uint8)
            with pytest.raises(DataError, match=f"indices came in place of {k}"):
                unpack_indices(packed, n, k)


@pytest.mark.parametrize("written", NAMES)
def test_memory_is_bounded_by_the_model(written: str) -> None:
    like = {"x": torch.randn(500, 400)}
    codec = codec_of(written)
    encoded = codec.encode(like, 0)
    tracemalloc.start()
    codec.decode(encoded, like)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The vector itself, keys or bits of as many values, and indices of 8 bytes.
    assert most < 6 * like["x"].nbytes
