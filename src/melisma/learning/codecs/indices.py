"""Places of k of n values, packed: Elias–Fano, or a bitmap where that is smaller.

Elias–Fano cuts each index into its lower l bits, which are stored as they are, and the
rest h, which does not fall from index to index: bit h + i is set for the i-th. In all

    k·l + k + ⌊(n − 1)/2ˡ⌋ bits,   l near log₂(n/k)

whichever the indices are, so sizes are known beforehand. Ideal: log₂(n choose k) bits,
8.08 an index at 1 %, where this takes 8.56.

Paper: P. Elias, "Efficient Storage and Retrieval by Content and Address of Static
Files", Journal of the ACM 21(2), 1974.
"""

import math

import numpy as np
from numpy.typing import NDArray

from melisma.errors import DataError
from melisma.learning.codecs.codec import Bytes

Indices = NDArray[np.int64]


def index_bytes(n: int, k: int) -> int:
    """Return how many bytes the places of k of n values take; 0 for none and all."""
    if k in (0, n):
        return 0
    return min(_bytes(n), sum(_parts(n, k)))


def pack_indices(indices: Indices, n: int, out: Bytes) -> None:
    """Write indices, which increase, below n."""
    k = len(indices)
    if k in (0, n):
        return
    if _is_bitmap(n, k):
        out[:] = _bitmap(indices, n)
        return
    lower = _lower_bits(n, k)
    first, _ = _parts(n, k)
    bits = indices[:, None] >> np.arange(lower) & 1
    out[:first] = np.packbits(bits.astype(np.uint8), bitorder="little")
    out[first:] = _bitmap((indices >> lower) + np.arange(k), k + (n - 1 >> lower))


def unpack_indices(packed: Bytes, n: int, k: int) -> Indices:
    """Return k indices below n, which increase; DataError if these are none."""
    if k in (0, n):
        return np.arange(k)
    if _is_bitmap(n, k):
        return _places(packed, n, k)
    lower = _lower_bits(n, k)
    first, _ = _parts(n, k)
    upper = _places(packed[first:], k + (n - 1 >> lower), k) - np.arange(k)
    bits = np.unpackbits(packed[:first], count=k * lower, bitorder="little")
    indices = upper << lower | bits.reshape(k, lower) @ (1 << np.arange(lower))
    if indices[-1] >= n or not (np.diff(indices) > 0).all():
        raise DataError("indices came that do not increase, or are too large")
    return indices


def _lower_bits(n: int, k: int) -> int:
    """Return the l with which all takes the fewest bits."""
    near = int(math.log2(n / k))
    return min((near, near + 1), key=lambda lower: k * lower + (n - 1 >> lower))


def _parts(n: int, k: int) -> tuple[int, int]:
    """Return how many bytes lower and upper bits take."""
    lower = _lower_bits(n, k)
    return _bytes(k * lower), _bytes(k + (n - 1 >> lower))


def _is_bitmap(n: int, k: int) -> bool:
    return _bytes(n) <= sum(_parts(n, k))


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _bitmap(places: Indices, size: int) -> Bytes:
    bits = np.zeros(size, np.uint8)
    bits[places] = 1
    return np.packbits(bits, bitorder="little")


def _places(packed: Bytes, size: int, k: int) -> Indices:
    """Return where bits are set; DataError if that is not in k places."""
    places = np.flatnonzero(np.unpackbits(packed, count=size, bitorder="little"))
    if len(places) != k:
        raise DataError(f"{len(places)} indices came in place of {k}")
    return places
