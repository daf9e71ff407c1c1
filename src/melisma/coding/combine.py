"""Weighted sums of long vectors: what encoding and decoding come down to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from melisma.maths.arrays import Floats

CACHED = 1 << 17  #: numbers that are worked on at a time: 1 MiB in float64


def combine(weights: Floats, rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Σ wᵢ·rowᵢ, summed in float64 and given back in the type of the rows.

    Decoding weights may be large and of both signs, so that float32 sums would lose
    digits on top of those that the rows have lost already.

    >>> combine(np.array([1.0, -2.0]), [np.array([3.0, 4.0]), np.array([1.0, 0.5])])
    array([1., 3.])
    """
    if len(weights) != len(rows) or not len(rows):
        raise ValueError(f"{len(weights)} weights for {len(rows)} rows")
    flat = [np.ascontiguousarray(row).reshape(-1) for row in rows]
    total = np.empty_like(flat[0], dtype=np.result_type(rows[0], np.float32))
    width = max(CACHED // len(rows), 1024)
    buffer = np.empty((len(rows), min(width, total.size)))
    for low in range(0, total.size, width):
        part = buffer[:, : min(width, total.size - low)]
        for line, row in zip(part, flat, strict=True):
            line[:] = row[low : low + width]
        total[low : low + width] = weights @ part
    return total.reshape(rows[0].shape)
