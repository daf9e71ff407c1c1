import numpy as np
import pytest
import torch

from melisma.errors import DataError
from melisma.learning.data import EMBEDDED, load
from melisma.learning.shards import Cache, Shard, ShardStore, key_of, packed, unpacked


def test_what_travels_as_bytes_arrives_as_it_was() -> None:
    data = load(EMBEDDED)
    x, y = unpacked([packed(data.train_x[:300], data.train_y[:300])])
    assert torch.equal(x, data.train_x[:300])
    assert torch.equal(y, data.train_y[:300])


def test_a_key_is_the_hash_of_images_and_classes() -> None:
    x, y = torch.zeros(2, 1, 3, 3), torch.tensor([1, 2])
    assert key_of(packed(x, y)) == key_of(packed(x.clone(), y.clone()))
    assert key_of(packed(x, y)) != key_of(packed(x, y + 1))
    assert key_of(packed(x, y)) != key_of(packed(x + 0.5, y))
    assert key_of(packed(x, y)) != key_of(packed(x.view(2, 3, 1, 3), y))


def test_rows_are_found_by_the_keys_of_their_shards() -> None:
    data = load(EMBEDDED)
    store = ShardStore(data, 50)
    rows = np.concatenate([np.arange(150, 200), np.arange(0, 50), np.arange(150, 200)])
    keys = store.keys(rows)
    assert keys == [store.first(4)[3], store.first(1)[0], store.first(4)[3]]
    x, y = unpacked(store.take(keys))
    assert torch.equal(x, data.train_x[rows])
    assert torch.equal(y, data.train_y[rows])


def test_a_key_that_was_never_given_out_is_an_error() -> None:
    with pytest.raises(DataError, match="there is no shard 'abc'"):
        ShardStore(load(EMBEDDED), 50).take(["abc"])


def shard_of(number: int) -> Shard:
    return packed(torch.full((10, 1, 2, 2), number / 255), torch.zeros(10))


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
