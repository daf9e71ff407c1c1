"""Codecs: names, sizes, what comes back, and the same bytes everywhere."""

import hashlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma import rpc
from melisma.errors import ConfigError, TrainingError
from melisma.learning.codecs import (
    CODECS,
    Encoded,
    Fp32,
    Int4,
    Int8,
    PowerSGD,
    RandomK,
    TopK,
    codec_of,
)
from melisma.learning.codecs.indices import index_bytes, pack_indices, unpack_indices
from melisma.learning.codecs.sparse import largest
from melisma.learning.parameters import Parameters
from melisma.rpc.values import pack, unpack

NAMES = [
    *("fp32", "fp16", "bf16", "int8", "int8 64", "int4", "int4 6"),
    *("top-k 1 %", "top-k 25 %", "top-k 30 %", "top-k 100 %"),
    *("random-k 1 %", "random-k 100 %"),
    *("powersgd 1", "powersgd 4"),
]
KINDS = [torch.float32, torch.float16, torch.float64, torch.int64, torch.bool]


def model(seed: int = 0) -> Parameters:
    """Tensors of every kind: matrices, odd sizes, a scalar, none, counters, flags."""
    rng = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(60, 70, generator=rng),
        "conv": torch.randn(8, 3, 5, 5, generator=rng),
        "bias": torch.randn(11, generator=rng),
        "scalar": torch.randn((), generator=rng),
        "nothing": torch.empty(0, 3),
        "counter": torch.tensor(2**40 + 7),
        "flags": torch.tensor([True, False, True]),
    }


def flat(tensors: Parameters) -> torch.Tensor:
    real = [tensors[n] for n in sorted(tensors) if tensors[n].is_floating_point()]
    return torch.cat([t.double().reshape(-1) for t in real])


def normal(size: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(size)
    return values.astype(np.float32)


def coded(written: str, vector: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a vector as it is received."""
    tensors = {"x": torch.from_numpy(vector)}
    codec = codec_of(written)
    return codec.decode(codec.encode(tensors, seed), tensors)["x"].numpy()


@pytest.mark.parametrize("written", NAMES)
def test_a_codec_is_written_as_it_is_read(written: str) -> None:
    assert str(codec_of(written)) == written
    assert codec_of(str(codec_of(written))) == codec_of(written)


def test_settings_are_read() -> None:
    assert codec_of("top-k 1%") == codec_of(" top-k  1.0 % ") == TopK(share=0.01)
    assert codec_of("random-k 0.5 %") == RandomK(share=0.005)
    assert codec_of("powersgd 4") == PowerSGD(rank=4)
    assert codec_of("int8") == Int8(block=256)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("int9", "unknown codec 'int9': did you mean 'int8'.*powersgd 4.*top-k 1 %"),
        ("", "unknown codec ''"),
        ("top-k", "'top-k' has no share: write for example 'top-k 1 %'"),
        ("top-k 5", "'top-k 5' has no share"),
        ("random-k 0 %", "random-k 0 % is not a share above 0 %"),
        ("top-k 101 %", "up to 100 %"),
        ("powersgd", "has no rank: write for example 'powersgd 4'"),
        ("powersgd 0", "powersgd 0 has no rank of 1 or more"),
        ("int8 3", "an even number from 2"),
        ("int4 many", "no number of values in a block"),
        ("fp16 2", "fp16 takes no setting"),
    ],
)
def test_what_is_no_codec_is_named(written: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        codec_of(written)


@pytest.mark.parametrize("written", NAMES)
def test_names_shapes_and_types_come_back(written: str) -> None:
    codec, tensors = codec_of(written), model()
    like = {name: tensor.to("meta") for name, tensor in tensors.items()}
    decoded = codec.decode(codec.encode(tensors, 1), like)
    assert list(decoded) == list(tensors)
    for name, tensor in decoded.items():
        assert (tensor.shape, tensor.dtype) == (like[name].shape, like[name].dtype)
    assert decoded["counter"].item() == 2**40 + 7
    assert decoded["flags"].tolist() == [True, False, True]


shapes = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=3), st.sampled_from(KINDS)),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(shapes, st.integers(0, 600))
def test_a_size_is_known_before(
    given: list[tuple[list[int], torch.dtype]], more: int
) -> None:
    tensors = {str(i): torch.ones(s, dtype=kind) for i, (s, kind) in enumerate(given)}
    tensors["more"] = torch.ones(more)
    like = {name: tensor.to("meta") for name, tensor in tensors.items()}
    for written in NAMES:
        codec = codec_of(written)
        assert codec.size_bytes(like) == codec.encode(tensors, 1).payload.size


def ideal_bytes(n: int, k: int) -> float:
    """Return the bytes of k of n values, and of log₂(n choose k) bits."""
    nats = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return 4 * k + nats / math.log(2) / 8


def test_sizes_are_within_two_percent_of_the_ideal() -> None:
    m, n = 600, 500
    size = m * n
    ideal: dict[str, float] = {"fp32": 4 * size, "fp16": 2 * size, "bf16": 2 * size}
    ideal |= {"int8": size, "int4": size / 2, "powersgd 4": 4 * 4 * (m + n)}
    ideal |= {f"random-k {p} %": 4 * size * p / 100 for p in (1, 10)}
    shares = (0.1, 1, 3, 10, 20, 25, 40, 60)
    ideal |= {f"top-k {p} %": ideal_bytes(size, round(size * p / 100)) for p in shares}
    like = {"weight": torch.empty(m, n, device="meta")}
    for written, best in ideal.items():
        assert best <= codec_of(written).size_bytes(like) <= 1.02 * best, written


@pytest.mark.parametrize("n", [1000, 1597, 9973, 30_011, 10**5, 10**6, 10**7])
def test_top_k_is_within_two_percent_at_every_share(n: int) -> None:
    # With few values, a whole byte is more than that.
    more = 2 if n < 30_000 else 0
    for share in (*np.geomspace(0.001, 0.5, 100), *np.linspace(0.2, 0.3, 101)):
        k = round(share * n)
        ideal, found = ideal_bytes(n, k), 4 * k + index_bytes(n, k)
        assert ideal <= found <= 1.02 * ideal + more, k / n


def test_fp32_is_exact() -> None:
    tensors = model()
    decoded = Fp32().decode(Fp32().encode(tensors, 0), tensors)
    assert all(decoded[name].equal(tensors[name]) for name in tensors)


def test_halves_are_rounded_to_nearest() -> None:
    x = np.concatenate(
        [normal(1000), np.array([0, -0.0, 1e-7, 65504, -1e-40], np.float32)]
    )
    assert np.array_equal(coded("fp16", x), x.astype(np.float16).astype(np.float32))
    # bfloat16: to the nearer of the two that agree in the upper 16 bits, or to even.
    down = (x.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)
    up = ((x.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32).astype(float)
    off = np.minimum(abs(x - down), abs(up - x))
    assert np.array_equal(abs(coded("bf16", x) - x.astype(float)), off)


@pytest.mark.parametrize(("written", "levels"), [("int8", 127), ("int4", 7)])
@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 1003, 140_001])
def test_integers_are_the_two_next_to_a_value(
    written: str, levels: int, size: int
) -> None:
    x = normal(size)
    rows = np.append(x, np.zeros(-size % 256)).reshape(-1, 256)
    # Recomputed in float64: the scale is the next bfloat16 above max/levels.
    least = np.abs(rows).max(axis=1) / levels * (1 + 2.0**-16)
    ulp = 2.0 ** (np.floor(np.log2(least)) - 7)
    scale = np.repeat(np.ceil(least / ulp) * ulp, 256)[:size]
    q = coded(written, x).astype(float) / scale
    assert np.array_equal(q, np.round(q))
    assert np.abs(q).max() <= levels
    assert (np.abs(q - x / scale) < 1 + 1e-4).all()


def test_the_smallest_and_largest_numbers_pass() -> None:
    x = np.array([3e38, -3e38, 1.0, 0.0], np.float32)
    assert coded("int8 2", x)[:2] == pytest.approx(x[:2], rel=0.01)
    tiny = np.full(4, 1e-44, np.float32)
    assert np.abs(coded("int4 2", tiny)).max() < 1e-35
    assert np.array_equal(coded("int8", np.zeros(300, np.float32)), np.zeros(300))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 1])
def test_top_k_is_what_a_full_sort_gives(share: float) -> None:
    x = np.round(normal(5003), 2)  # with many that are equal
    k = round(share * x.size)
    first = np.argsort(-np.abs(x), kind="stable")[:k]
    expected = np.zeros_like(x)
    expected[first] = x[first]
    assert np.array_equal(coded(f"top-k {100 * share:g} %", x), expected)


def test_random_k_sends_values_times_n_over_k() -> None:
    x = normal(1000) + 10
    received = coded("random-k 5 %", x, seed=3)
    there = received != 0
    assert there.sum() == 50
    assert received[there] == pytest.approx(20 * x[there], rel=1e-6)
    assert not np.array_equal(there, coded("random-k 5 %", x, seed=4) != 0)


def test_powersgd_is_what_its_formulas_give() -> None:
    m, q = normal(30 * 20).reshape(30, 20).astype(float), normal(40).reshape(20, 2)
    codec, tensors = PowerSGD(rank=2), {"m": torch.tensor(m).float()}
    encoded = codec.encode(tensors, 0, {"m": torch.from_numpy(q)})
    p = np.linalg.qr(m @ q)[0]
    expected = p @ p.T @ m
    decoded = codec.decode(encoded, tensors)["m"].numpy()
    assert decoded == pytest.approx(expected, abs=1e-5)
    # P is known but for the signs of its columns.
    start = codec.next_start(encoded, tensors)["m"].numpy()
    assert np.abs(start) == pytest.approx(np.abs(m.T @ p), abs=1e-5)


def test_powersgd_of_a_matrix_of_its_rank_is_exact() -> None:
    low = normal(60).reshape(30, 2) @ normal(40, seed=1).reshape(2, 20)
    assert coded("powersgd 2", low) == pytest.approx(low, abs=1e-5)
    assert np.array_equal(coded("powersgd 2", 0 * low), 0 * low)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_indices_come_back(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 3000))
    k = data.draw(st.integers(0, n) | st.integers(n // 5, n * 2 // 7))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    indices = np.sort(rng.choice(n, k, replace=False))
    packed = np.empty(index_bytes(n, k), np.uint8)
    pack_indices(indices, n, packed)
    assert unpack_indices(packed, n, k).tolist() == indices.tolist()
    # Those at either end need no more.
    for first in (0, n - k):
        pack_indices(first + np.arange(k), n, packed)
        assert unpack_indices(packed, n, k).tolist() == list(range(first, first + k))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.data())
def test_the_largest_are_found_whatever_the_first_guess(
    keys: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(keys)))
    expected = sorted(np.argsort(-np.array(keys), kind="stable")[:k].tolist())
    assert largest(np.array(keys), k).tolist() == expected


def test_a_misleading_sample_changes_nothing() -> None:
    keys = np.zeros(6400, np.int64)
    keys[::64] = np.arange(100) + 1  # all that the guess is made of
    assert largest(keys, 200)[:3].tolist() == [0, 1, 2]


#: SHA-256 of payloads, as computed on ARM (numpy 2.4); powersgd's products of matrices
#: differ in their last bits.
DIGESTS: dict[str, str] = {
    "fp16": "246b7b1e1ff71e79",
    "bf16": "01866c4bb1651d63",
    "int8": "905c87b9b368c85e",
    "int4": "d5846a64ee0ec992",
    "top-k 1 %": "d8a5e4cc715189ec",
    "top-k 25 %": "bcb9faa8cec121dd",
    "random-k 1 %": "fa94b5d90c8dcd93",
}


@pytest.mark.parametrize("written", DIGESTS)
def test_a_seed_gives_the_same_bytes_on_every_machine(written: str) -> None:
    # By exact operations alone, since a distribution's bits may differ.
    steps = np.arange(10_007, dtype=np.int64) * 7919 % 65_521 - 32_000
    tensors = {"x": torch.from_numpy((steps / 4096).astype(np.float32))}
    payload = codec_of(written).encode(tensors, 5).payload
    assert hashlib.sha256(payload.tobytes()).hexdigest()[:16] == DIGESTS[written]


@pytest.mark.parametrize("written", [name for name in NAMES if name != "fp32"])
def test_another_seed_gives_other_bytes_only_where_it_draws(written: str) -> None:
    tensors, codec = model(), codec_of(written)
    one, same, other = (codec.encode(tensors, seed).payload for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    draws = written.startswith(("int", "random-k 1 %", "powersgd"))
    assert np.array_equal(one, other) != draws


@pytest.mark.parametrize("written", NAMES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_sent(written: str, value: float) -> None:
    tensors = model()
    tensors["weight"][3, 4] = value
    with pytest.raises(TrainingError, match=r"not finite.*lower the learning rate"):
        codec_of(written).encode(tensors, 0)


def test_what_a_codec_cannot_hold_is_not_sent() -> None:
    with pytest.raises(TrainingError, match="beyond 65504"):
        codec_of("fp16").encode({"x": torch.tensor([7e4])}, 0)
    with pytest.raises(TrainingError, match=r"beyond 3e\+38"):
        codec_of("int8").encode({"x": torch.tensor([3.3e38])}, 0)
    with pytest.raises(TrainingError, match="not finite"):
        codec_of("fp32").encode({"x": torch.tensor([1e300], dtype=torch.float64)}, 0)


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(ValueError, match="a seed of -1"):
        Int4().encode(model(), -1)


def test_an_encoded_model_travels() -> None:
    rpc.register(Encoded)
    codec, tensors = Int8(), model()
    encoded = codec.encode(tensors, 9)
    received = unpack(*pack(encoded))
    decoded = codec.decode(received, tensors)
    assert flat(decoded).equal(flat(codec.decode(encoded, tensors)))


def test_tensors_that_need_gradients_and_views_are_encoded() -> None:
    tensors = {"x": torch.randn(40, 30, requires_grad=True).T}
    decoded = codec_of("fp32").decode(codec_of("fp32").encode(tensors, 0), tensors)
    assert decoded["x"].equal(tensors["x"].detach())


def test_every_codec_has_an_example() -> None:
    for name, kind in CODECS.items():
        assert kind.example.startswith(name)
        assert type(codec_of(kind.example)) is kind
