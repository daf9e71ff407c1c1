"""A share of the values: the largest ones, or some drawn by a seed.

    top-k      the k = share·n largest absolute values as float32, and their indices;
               E ‖C(x) − x‖² ≤ (1 − k/n)·‖x‖², for error feedback
    random-k   k values at places that both sides draw by the seed, times n/k;
               unbiased, E ‖C(x) − x‖² = (n/k − 1)·‖x‖²

Ideal: 32 bits a value, and log₂(n choose k) for the indices of top-k, which `indices`
packs within 2 % of all, at every share (and 2 bytes, below 30,000 values).

Under error feedback random-k is multiplied by k/n, so that it sends values as they are:
what n/k-fold values overshoot would grow from cycle to cycle.

Papers: S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with Memory",
arXiv:1809.07599; J. Wangni et al., "Gradient Sparsification for Communication-Efficient
Distributed Optimization", arXiv:1710.09854.
"""

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError, DataError
from melisma.learning.codecs.codec import (
    Bytes,
    Codec,
    Shapes,
    Vector,
    check_finite,
    cut,
    is_finite,
    values_of,
)
from melisma.learning.codecs.draws import Draws
from melisma.learning.codecs.indices import (
    Indices,
    index_bytes,
    pack_indices,
    unpack_indices,
)
from melisma.learning.parameters import Parameters

#: Every so many-th value is looked at for a first guess of the k-th largest.
SAMPLED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sparse(Codec):
    """Some of the values; all others are taken for 0."""

    share: float  #: k/n, above 0 and up to 1

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"{self} is not a share above 0 % and up to 100 %")

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it for a share such as ``1 %``."""
        percent = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", setting)
        if percent is None:
            name = cls.example.partition(" ")[0]
            given = f"'{name} {setting}' has" if setting else f"{name!r} has"
            raise ConfigError(f"{given} no share: write for example {cls.example!r}")
        return cls(share=float(percent[1]) / 100)

    def __str__(self) -> str:
        return f"{self.example.partition(' ')[0]} {100 * self.share:.12g} %"

    def kept(self, values: int) -> int:
        """Return k: one at least, if there are any."""
        return min(values, max(1, int(self.share * values + 0.5)))

    def packed_bytes(self, shapes: Shapes) -> int:
        """Return 4 bytes for each of the k, and those of indices."""
        values = values_of(shapes)
        return 4 * self.kept(values) + self.index_bytes(values)

    def index_bytes(self, values: int) -> int:
        """Return how many bytes indices take."""
        return 0

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Write the values, and then their indices."""
        check_finite(vector, str(self))
        indices = self.chosen(vector, seed)
        values, rest = cut(out, 4 * len(indices))
        values.view("<f4")[:] = vector[indices]
        if len(rest):
            pack_indices(indices, len(vector), rest)

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return the values in their places."""
        vector = np.zeros(values_of(shapes), np.float32)
        k = self.kept(len(vector))
        first, rest = cut(packed, 4 * k)
        values = first.view("<f4").astype(np.float32)
        # What overflows is not finite either.
        with np.errstate(over="ignore", invalid="ignore"):
            values *= np.float32(self.factor(len(vector)))
        if not is_finite(values):
            raise DataError(f"{self} came with values that are not finite")
        vector[self.received(rest, len(vector), seed)] = values
        return vector

    def factor(self, values: int) -> float:
        """Return by what values are multiplied when they are received."""
        return 1.0

    @abstractmethod
    def chosen(self, vector: Vector, seed: int) -> Indices:
        """Return the indices of what is sent, increasing."""

    @abstractmethod
    def received(self, packed: Bytes, values: int, seed: int) -> Indices:
        """Return the same where the vector is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(_Sparse):
    """The largest absolute values; of equal ones, those that come first."""

    example: ClassVar[str] = "top-k 1 %"
    feeds_back: ClassVar[bool] = True

    def contraction(self, values: int) -> float:
        """Return k/n: no other k values have more of the norm."""
        return self.kept(values) / max(1, values)

    def index_bytes(self, values: int) -> int:
        """Return how many bytes indices take."""
        return index_bytes(values, self.kept(values))

    def chosen(self, vector: Vector, seed: int) -> Indices:
        """Return where the largest are."""
        # Without their sign, bits of floating-point numbers are ordered as they are.
        return largest(vector.view(np.uint32) & 0x7FFFFFFF, self.kept(len(vector)))

    def received(self, packed: Bytes, values: int, seed: int) -> Indices:
        """Return the indices that came."""
        return unpack_indices(packed, values, self.kept(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomK(_Sparse):
    """Values at places that the seed draws, every set of k equally likely."""

    unbiased: ClassVar[bool] = True
    example: ClassVar[str] = "random-k 1 %"
    feeds_back: ClassVar[bool] = True

    def variance(self, values: int) -> float:
        """Return n/k − 1."""
        return self.factor(values) - 1

    def factor(self, values: int) -> float:
        """Return n/k."""
        return values / max(1, self.kept(values))

    def damping(self, values: int) -> float:
        """Return k/n: values are sent as they are."""
        return 1 / max(1.0, self.factor(values))

    def chosen(self, vector: Vector, seed: int) -> Indices:
        """Return places, drawn."""
        return self._drawn(len(vector), seed)

    def received(self, packed: Bytes, values: int, seed: int) -> Indices:
        """Return the same places."""
        return self._drawn(values, seed)

    def _drawn(self, values: int, seed: int) -> Indices:
        # A key for each; those with the k largest keys are a random set.
        return largest(Draws(seed).integers(values), self.kept(values))


def largest(keys: NDArray[Any], k: int) -> Indices:
    """Return where the k largest are, increasing; of equal ones, the first.

    >>> largest(np.array([3, 1, 3, 2, 3]), 2).tolist()
    [0, 2]
    """
    if k == len(keys):
        return np.arange(k)
    least = _kth_largest(keys, k)
    above = np.flatnonzero(keys > least)
    equal = np.flatnonzero(keys == least)[: k - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _kth_largest(keys: NDArray[Any], k: int) -> Any:
    """Return the k-th largest key: among those above a guess, if they are enough."""
    sample = keys[::SAMPLED]
    place = min(len(sample), k * 5 // (4 * SAMPLED) + 32)
    guess = np.partition(sample, -place)[-place]
    high = keys[keys >= guess]
    among = high if len(high) >= k else keys
    return np.partition(among, -k)[-k]
