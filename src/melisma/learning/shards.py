"""The training set in shards as they are sent: batches, keyed by their content."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from melisma.errors import DataError
from melisma.learning.samples import Batch, Field, Samples, length
from melisma.learning.tensors import to_array
from melisma.maths.arrays import Ints

#: Some samples, in the types in which they are stored.
Shard = Batch

#: Values of a sample, and characters of a name, at most.
MOST_FIELDS, MOST_CHARACTERS = 256, 255


def check_like(shard: object, fields: Mapping[str, Field]) -> None:
    """Raise DataError unless these are samples with such fields."""
    check_shard(shard)
    found = {
        name: Field(str(value.dtype).removeprefix("torch."), tuple(value.shape[1:]))
        for name, value in shard.items()  # type: ignore[attr-defined]
    }
    if found != dict(fields):
        raise DataError(f"samples of {_told(found)}: expected {_told(fields)}")


def check_fetched(shards: object, number: int, size: int) -> None:
    """Raise DataError unless these are as many shards of up to ``size`` samples.

    Their content is checked against their keys, which are hashes, by `Cache`.
    """
    if not isinstance(shards, list) or len(shards) != number:
        raise DataError(f"{number} shards were asked for, and others came")
    for shard in shards:
        check_shard(shard)
        if not 1 <= length(shard) <= size:
            raise DataError(
                f"a shard has {length(shard)} samples: {size} were expected"
            )
    kinds = [
        {name: (value.dtype, value.shape[1:]) for name, value in shard.items()}
        for shard in shards
    ]
    if any(kind != kinds[0] for kind in kinds):
        raise DataError("the shards that came have samples of several kinds")


def check_shard(shard: object) -> None:
    """Raise DataError unless this is a batch: tensors by name, with as many rows."""
    if not isinstance(shard, dict) or not 1 <= len(shard) <= MOST_FIELDS:
        raise DataError("a shard has to be tensors by name")
    for name, value in shard.items():
        if not isinstance(name, str) or not 1 <= len(name) <= MOST_CHARACTERS:
            raise DataError("a shard has to be tensors by name")
        if not isinstance(value, Tensor) or not value.ndim or value.is_complex():
            raise DataError("a shard has to be tensors of real numbers, a row a sample")
    if len({len(value) for value in shard.values()}) > 1:
        raise DataError("the tensors of a shard differ in their numbers of samples")


def _told(fields: Mapping[str, Field]) -> str:
    return ", ".join(f"{n}: {f.dtype} {f.shape}" for n, f in fields.items())[:200]


def key_of(shard: Shard) -> str:
    """Return the hash of a shard's content."""
    digest = hashlib.sha256()
    for name in sorted(shard):
        kind, memory = to_array(shard[name])
        digest.update(repr((name, kind, memory.shape)).encode())
        digest.update(np.ascontiguousarray(memory).data)
    return digest.hexdigest()[:32]


def bytes_of(fields: Mapping[str, Field]) -> int:
    """Return the bytes of one sample on the wire."""
    return sum(field.nbytes for field in fields.values())


class ShardStore:
    """All shards of a training set, cut and hashed on first use."""

    def __init__(self, samples: Samples, size: int) -> None:
        self._samples, self._size = samples, size
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
        return self.first(len(self._samples) // self._size)

    def others(
        self, keys: Iterable[str], number: int, rng: np.random.Generator
    ) -> list[str]:
        """Return the keys of up to ``number`` shards that are not among ``keys``."""
        known = {self._places[key] for key in keys}
        whole = len(self._samples) // self._size
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
        """Return a shard: views of what is in memory, else read from disk."""
        return self._samples[place * self._size : (place + 1) * self._size]


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
    return sum(part.nbytes for part in shard.values())
