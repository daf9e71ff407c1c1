"""Places of k of n values, packed: Elias–Fano, or a bitmap where that is smaller.

Elias–Fano divides each index by some m. Remainders are stored as they are; quotients h
do not fall from index to index: bit h + i is set for the i-th. In all

    k·log₂ m + k + ⌊(n − 1)/m⌋ bits,   m near n/k · ln 2

whichever the indices are, so sizes are known beforehand. Elias takes a power of two for
m. Here it is 2ˡ or 3·2ˡ: l bits of a remainder, and what is left of it, below 3, in a
byte with that of four other indices (3⁵ = 243 ≤ 256). At a share of a quarter, where
m = 2, m = 4 and a bitmap all take 4 bits an index, m = 3 takes 3.93.

Ideal: log₂(n choose k) bits, 8.08 an index at 1 %, where this takes 8.56.

Paper: P. Elias, "Efficient Storage and Retrieval by Content and Address of Static
Files", Journal of the ACM 21(2), 1974.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from melisma.errors import DataError
from melisma.learning.codecs.codec import Bytes, cut

Indices = NDArray[np.int64]
Bits = NDArray[np.uint8]

#: Of the five thirds in a byte, and how many bytes there are of them.
POWERS = 3 ** np.arange(5)
TRIPLES = 3**5


class _Cut(NamedTuple):
    """How indices are cut into quotients, thirds and lower bits."""

    lower: int  #: l
    base: int  #: m/2ˡ: 1, or 3

    @property
    def divisor(self) -> int:
        """Return m."""
        return self.base << self.lower

    def thirds_bytes(self, k: int) -> int:
        """Return how many bytes k remainders below 3 take."""
        return -(-k // len(POWERS)) if self.base == 3 else 0

    def size_bytes(self, n: int, k: int) -> int:
        """Return how many bytes k indices below n take."""
        bits = k * self.lower + k + (n - 1) // self.divisor
        return self.thirds_bytes(k) + _bytes(bits)


def index_bytes(n: int, k: int) -> int:
    """Return how many bytes the places of k of n values take; 0 for none and all."""
    if k in (0, n):
        return 0
    return min(_bytes(n), _best(n, k).size_bytes(n, k))


def pack_indices(indices: Indices, n: int, out: Bytes) -> None:
    """Write indices, which increase, below n."""
    k = len(indices)
    if k in (0, n):
        return
    if _is_bitmap(n, k):
        out[:] = np.packbits(_marked(indices, n), bitorder="little")
        return
    best = _best(n, k)
    thirds, rest = cut(out, best.thirds_bytes(k))
    upper = indices >> best.lower
    if best.base == 3:
        digits = np.zeros((len(thirds), len(POWERS)), np.int64)
        digits.reshape(-1)[:k] = upper % 3
        thirds[:] = digits @ POWERS
        upper //= 3
    lower = (indices[:, None] >> np.arange(best.lower) & 1).astype(np.uint8)
    places = _marked(upper + np.arange(k), k + (n - 1) // best.divisor)
    bits = np.concatenate([lower.reshape(-1), places])
    rest[:] = np.packbits(bits, bitorder="little")


def unpack_indices(packed: Bytes, n: int, k: int) -> Indices:
    """Return k indices below n, which increase; DataError if these are none."""
    if k in (0, n):
        return np.arange(k)
    if _is_bitmap(n, k):
        return _places(np.unpackbits(packed, count=n, bitorder="little"), k)
    best = _best(n, k)
    thirds, rest = cut(packed, best.thirds_bytes(k))
    quotients, width = k + (n - 1) // best.divisor, best.lower
    bits = np.unpackbits(rest, count=k * width + quotients, bitorder="little")
    lower, upper = cut(bits, k * width)
    indices = _places(upper, k) - np.arange(k)
    if best.base == 3:
        if thirds.max() >= TRIPLES:
            raise DataError("indices came with remainders that are none")
        indices = 3 * indices + (thirds[:, None] // POWERS % 3).reshape(-1)[:k]
    indices = indices << width | lower.reshape(k, width) @ (1 << np.arange(width))
    if indices[-1] >= n or not (np.diff(indices) > 0).all():
        raise DataError("indices came that do not increase, or are too large")
    return indices


def _best(n: int, k: int) -> _Cut:
    """Return the cut with which all takes the fewest bytes; of equal ones, the first.

    Beyond m = 2n/k, remainders grow faster than quotients shrink.
    """
    widths = range((n // k).bit_length() + 1)
    cuts = [_Cut(lower, base) for base in (1, 3) for lower in widths]
    return min(cuts, key=lambda one: one.size_bytes(n, k))


def _is_bitmap(n: int, k: int) -> bool:
    return _bytes(n) <= _best(n, k).size_bytes(n, k)


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _marked(places: Indices, size: int) -> Bits:
    bits = np.zeros(size, np.uint8)
    bits[places] = 1
    return bits


def _places(bits: Bits, k: int) -> Indices:
    """Return where bits are set; DataError if that is not in k places."""
    places = np.flatnonzero(bits)
    if len(places) != k:
        raise DataError(f"{len(places)} indices came in place of {k}")
    return places
