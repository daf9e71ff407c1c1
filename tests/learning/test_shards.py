import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from melisma.errors import DataError
from melisma.learning.data import EMBEDDED, load
from melisma.learning.samples import Arrays, Field, fields_of, joined
from melisma.learning.shards import (
    Cache,
    Shard,
    ShardStore,
    bytes_of,
    check_fetched,
    check_like,
    check_shard,
    key_of,
)
from melisma.learning.tensors import DTYPES
from melisma.rpc.values import pack, unpack

#: What a value of a sample may be: every type that torch and the wire have.
KINDS = sorted(name for name in DTYPES if not name.startswith("complex"))
SHAPES = st.lists(st.integers(0, 4), max_size=3)


def drawn(kind: str, shape: Sequence[int], seed: int) -> torch.Tensor:
    """Any bits, NaN and infinities included; truth values are 0 or 1."""
    rng, flat = np.random.default_rng(seed), torch.empty(math.prod(shape))
    flat = flat.to(DTYPES[kind])
    most = 2 if kind == "bool" else 256
    raw = torch.from_numpy(rng.integers(0, most, flat.nbytes, dtype=np.uint8))
    flat.view(torch.uint8).copy_(raw)
    return flat.reshape(list(shape))


@st.composite
def shards(draw: st.DrawFn) -> Shard:
    rows = draw(st.integers(0, 5))
    names = draw(st.sets(st.text(min_size=1, max_size=9), min_size=1, max_size=3))
    return {
        name: drawn(
            draw(st.sampled_from(KINDS)),
            [rows, *draw(SHAPES)],
            draw(st.integers(0, 2**32)),
        )
        for name in sorted(names)
    }


def carried(shard: Shard) -> Shard:
    """Return a shard as another device gets it."""
    body, buffers = pack(shard)
    arrived: Shard = unpack(body, [buffer.copy() for buffer in buffers])
    return arrived


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def assert_same(one: Shard, other: Shard) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert value.shape == other[name].shape
        assert bits(value) == bits(other[name])


@given(shards())
def test_shards_of_any_type_arrive_bit_for_bit_under_their_key(shard: Shard) -> None:
    arrived = carried(shard)
    check_shard(arrived)
    assert_same(arrived, shard)
    assert key_of(arrived) == key_of(shard)


@given(shards(), st.integers(1, 3))
def test_samples_of_any_type_are_cut_and_joined_bit_for_bit(
    shard: Shard, size: int
) -> None:
    samples = Arrays(shard)
    store, whole = ShardStore(samples, size), len(samples) // size
    taken = store.take(store.all())
    assert len(taken) == whole
    assert_same(joined([*taken, samples[:0]]), samples[: whole * size])


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_lost_a_bit_is_refused(kind: str) -> None:
    one = {"x": drawn(kind, [3, 2], 0)}
    other = {"x": one["x"].clone()}
    other["x"].view(torch.uint8)[1, 0] ^= 1
    with pytest.raises(DataError, match="arrived damaged"):
        Cache(1000).get([key_of(one)], lambda keys: [carried(other)])


def test_a_key_is_the_hash_of_names_types_shapes_and_values() -> None:
    one = {"x": torch.zeros(2, 1, 3, 3), "y": torch.tensor([1, 2])}
    others: list[Shard] = [
        {**one, "y": one["y"] + 1},
        {**one, "y": one["y"].int()},
        {**one, "x": one["x"] + 0.5},
        {**one, "x": one["x"].view(2, 3, 1, 3)},
        {"x": one["x"], "z": one["y"]},
        {"x": one["x"]},
        {name: value[:0] for name, value in one.items()},
    ]
    assert key_of({"y": one["y"].clone(), "x": one["x"].clone()}) == key_of(one)
    assert len({key_of(shard) for shard in (one, *others)}) == 1 + len(others)


def test_where_values_lie_in_memory_is_no_part_of_a_key() -> None:
    x = torch.arange(24.0).view(2, 3, 4).transpose(1, 2)
    assert key_of({"x": x}) == key_of({"x": x.contiguous()})


def test_a_class_beyond_a_byte_stays_what_it_is() -> None:
    samples = Arrays({"x": torch.zeros(2, 3), "y": torch.tensor([300, 70_000])})
    store = ShardStore(samples, 2)
    (arrived,) = map(carried, store.take(store.first(1)))
    assert arrived["y"].tolist() == [300, 70_000]


def test_images_travel_in_the_bytes_that_they_are_stored_in() -> None:
    fields = load(EMBEDDED).fields
    assert fields == {"x": Field("uint8", (1, 28, 28)), "y": Field("uint8", ())}
    assert bytes_of(fields) == 785


def test_samples_of_another_kind_are_named() -> None:
    fields = fields_of(Arrays({"x": torch.zeros(1, 4), "y": torch.zeros(1).long()}))
    check_like({"x": torch.ones(3, 4), "y": torch.ones(3).long()}, fields)
    others: list[object] = [
        {"x": torch.ones(3, 4).byte(), "y": torch.ones(3).long()},
        {"x": torch.ones(3, 5), "y": torch.ones(3).long()},
        {"x": torch.ones(3, 4), "y": torch.ones(3, 1).long()},
        {"x": torch.ones(3, 4)},
    ]
    for other in others:
        with pytest.raises(DataError, match=r"expected x: float32 \(4,\), y: int64"):
            check_like(other, fields)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        [torch.ones(2)],
        {"x": [1.0, 2.0]},
        {"": torch.ones(2)},
        {1: torch.ones(2)},
        {"x" * 256: torch.ones(2)},
        {"x": torch.tensor(1.0)},
        {"x": torch.ones(2, dtype=torch.complex64)},
        {"x": torch.ones(2), "y": torch.ones(3)},
        {str(n): torch.ones(1) for n in range(257)},
    ],
    ids=lambda wrong: str(wrong)[:20],
)
def test_what_is_no_shard_is_refused(wrong: object) -> None:
    with pytest.raises(DataError, match="shard"):
        check_shard(wrong)
    with pytest.raises(DataError, match="shard"):
        check_fetched([wrong], 1, 10)


def test_shards_of_several_kinds_or_sizes_are_refused() -> None:
    one, other = {"x": torch.ones(2, 3)}, {"x": torch.ones(2, 3).int()}
    check_fetched([one, one], 2, 2)
    with pytest.raises(DataError, match="samples of several kinds"):
        check_fetched([one, other], 2, 2)
    with pytest.raises(DataError, match="a shard has 2 samples: 1 were expected"):
        check_fetched([one], 1, 1)
    with pytest.raises(DataError, match="a shard has 0 samples"):
        check_fetched([{"x": torch.ones(0, 3)}], 1, 1)


def test_rows_are_found_by_the_keys_of_their_shards() -> None:
    data = load(EMBEDDED)
    store = ShardStore(data.train, 50)
    rows = np.concatenate([np.arange(150, 200), np.arange(0, 50), np.arange(150, 200)])
    keys = store.keys(rows)
    assert keys == [store.first(4)[3], store.first(1)[0], store.first(4)[3]]
    assert_same(joined(store.take(keys)), data.train[rows])


def test_a_key_that_was_never_given_out_is_an_error() -> None:
    with pytest.raises(DataError, match="there is no shard 'abc'"):
        ShardStore(load(EMBEDDED).train, 50).take(["abc"])


def shard_of(number: int) -> Shard:
    return {"x": torch.full((10, 1, 2, 2), number).byte(), "y": torch.zeros(10).byte()}


def test_what_is_here_is_not_fetched_again() -> None:
    shards = {key_of(shard_of(n)): shard_of(n) for n in range(4)}
    asked: list[list[str]] = []

    def fetch(keys: list[str]) -> list[Shard]:
        asked.append(keys)
        return [shards[key] for key in keys]

    cache, (a, b, c, _) = Cache(10_000), shards
    cache.get([a, b, a], fetch)
    found = cache.get([b, c, a], fetch)
    assert asked == [[a, b], [c]]
    assert [key_of(shard) for shard in found] == [b, c, a]
    cache.get([a, c], fetch)
    assert len(asked) == 2


def test_the_least_used_goes_when_there_is_no_room() -> None:
    shards = {key_of(shard_of(n)): shard_of(n) for n in range(3)}
    a, b, c = shards
    asked: list[str] = []

    def fetch(keys: list[str]) -> list[Shard]:
        asked.extend(keys)
        return [shards[key] for key in keys]

    cache = Cache(100)  # two shards of 50 bytes
    for keys in ([a], [b], [a], [c], [a], [b]):
        cache.get(keys, fetch)
    assert asked == [a, b, c, b]


def test_even_what_does_not_fit_is_given() -> None:
    shards = {key_of(shard_of(n)): shard_of(n) for n in range(3)}
    cache = Cache(10)
    keys = list(shards)
    found = cache.get(keys, lambda missing: [shards[key] for key in missing])
    assert [key_of(shard) for shard in found] == keys


def test_a_damaged_shard_is_refused() -> None:
    with pytest.raises(DataError, match="arrived damaged"):
        Cache(1000).get([key_of(shard_of(1))], lambda keys: [shard_of(2)])
