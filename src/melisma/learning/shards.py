"""The training set in shards as they are sent: a byte a value, keyed by content."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from melisma.errors import DataError
from melisma.learning.data import Dataset
from melisma.maths.arrays import Ints

#: Images and classes of one shard, as bytes.
Shard = tuple[Tensor, Tensor]
#: Images from 0 to 1 and their classes, ready to train on.
Examples = tuple[Tensor, Tensor]


def packed(x: Tensor, y: Tensor) -> Shard:
    """Return images from 0 to 1 and their classes as bytes."""
    return (x * 255).round().to(torch.uint8), y.to(torch.uint8)


def unpacked(shards: Sequence[Shard]) -> Examples:
    """Return the images and classes of several shards, ready to train on."""
    x = torch.cat([x for x, _ in shards]).float() / 255
    return x, torch.cat([y for _, y in shards]).long()


def joined(shards: Sequence[Shard]) -> Shard:
    """Return several shards as one."""
    return torch.cat([x for x, _ in shards]), torch.cat([y for _, y in shards])


def check_like(shard: Shard, shape: Sequence[int], classes: int) -> None:
    """Raise DataError unless these are bytes of images of a shape, and classes."""
    x, y = shard
    for part in (x, y):
        if not isinstance(part, Tensor) or part.dtype != torch.uint8:
            raise DataError("images and classes of a shard must be bytes")
    if tuple(x.shape[1:]) != tuple(shape) or tuple(y.shape) != tuple(x.shape[:1]):
        raise DataError(
            f"images {tuple(x.shape)} with classes {tuple(y.shape)}: expected images "
            f"of {tuple(shape)}, and a class for each"
        )
    if len(y) and int(y.max()) >= classes:
        raise DataError(f"class {int(y.max())}: there are 0 to {classes - 1}")


def check_fetched(shards: object, number: int, size: int) -> None:
    """Raise DataError unless these are as many shards of up to ``size`` samples.

    Their content is checked against their keys, which are hashes, by `Cache`.
    """
    if not isinstance(shards, list) or len(shards) != number:
        raise DataError(f"{number} shards were asked for, and others came")
    for shard in shards:
        if not _is_shard(shard) or not 1 <= len(shard[1]) <= size:
            raise DataError(f"a shard has to be {size} images and classes, as bytes")
    if len({tuple(x.shape[1:]) for x, _ in shards}) > 1:
        raise DataError("the shards that came have images of several shapes")


def _is_shard(shard: object) -> bool:
    if not isinstance(shard, tuple) or len(shard) != 2:
        return False
    if not all(isinstance(p, Tensor) and p.dtype == torch.uint8 for p in shard):
        return False
    x, y = shard
    return x.ndim > 1 and tuple(y.shape) == tuple(x.shape[:1])


def key_of(shard: Shard) -> str:
    """Return the hash of a shard's content."""
    digest = hashlib.sha256()
    for part in shard:
        digest.update(repr(tuple(part.shape)).encode())
        digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


class ShardStore:
    """All shards of a training set, cut, hashed and kept on first use."""

    def __init__(self, data: Dataset, size: int) -> None:
        self._data, self._size = data, size
        self._shards: dict[int, Shard] = {}
        self._keys: dict[int, str] = {}
        self._places: dict[str, int] = {}

    def keys(self, rows: Ints) -> list[str]:
        """Return the keys of the shards that ``rows`` consist of, one after another."""
        return [self._key(int(first) // self._size) for first in rows[:: self._size]]

    def first(self, number: int) -> list[str]:
        """Return the keys of the first shards."""
        return [self._key(place) for place in range(number)]

    def all(self) -> list[str]:
        """Return the keys of all whole shards."""
        return self.first(len(self._data.train_y) // self._size)

    def others(
        self, keys: Iterable[str], number: int, rng: np.random.Generator
    ) -> list[str]:
        """Return the keys of up to ``number`` shards that are not among ``keys``."""
        known = {self._places[key] for key in keys}
        whole = len(self._data.train_y) // self._size
        free = [place for place in range(whole) if place not in known]
        return [self._key(int(place)) for place in rng.permutation(free)[:number]]

    def take(self, keys: Iterable[str]) -> list[Shard]:
        """Return shards by key, uncopied; DataError for a key that was never issued."""
        try:
            return [self._cut(self._places[key]) for key in keys]
        except KeyError as error:
            raise DataError(f"there is no shard {error.args[0]!r}") from None

    def _key(self, place: int) -> str:
        if place not in self._keys:
            key = key_of(self._cut(place))
            self._keys[place] = key
            self._places[key] = place
        return self._keys[place]

    def _cut(self, place: int) -> Shard:
        if place not in self._shards:
            rows = slice(place * self._size, (place + 1) * self._size)
            self._shards[place] = packed(
                self._data.train_x[rows], self._data.train_y[rows]
            )
        return self._shards[place]


class Cache:
    """Shards that a learner has fetched; the least recently used are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._shards: OrderedDict[str, Shard] = OrderedDict()

    def get(
        self, keys: Sequence[str], fetch: Callable[[list[str]], list[Shard]]
    ) -> list[Shard]:
        """Return shards by key; ``fetch`` those that are not cached.

        Raises DataError if the content of a fetched shard does not match its key.
        """
        missing = [key for key in dict.fromkeys(keys) if key not in self._shards]
        fetched = dict(zip(missing, fetch(missing) if missing else [], strict=True))
        for key, shard in fetched.items():
            if key_of(shard) != key:
                raise DataError(f"shard {key} arrived damaged")
        found = [fetched.get(key) or self._shards[key] for key in keys]
        for key in dict.fromkeys(keys):
            self._keep(key, fetched.get(key))
        return found

    def _keep(self, key: str, shard: Shard | None) -> None:
        if shard is not None:
            self._shards[key] = shard
            self._bytes += _bytes(shard)
        if key in self._shards:  # a shard larger than the cache is not kept
            self._shards.move_to_end(key)
        while self._bytes > self._most_bytes:
            _, dropped = self._shards.popitem(last=False)
            self._bytes -= _bytes(dropped)


def _bytes(shard: Shard) -> int:
    return sum(part.nbytes for part in shard)
