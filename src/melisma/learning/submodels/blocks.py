"""Blocks of a model: entries that the same parts train."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from torch import Tensor

from melisma.learning.submodels.part import Part
from melisma.maths.arrays import Bools


def blocks_of(parts: Sequence[Part | None], like: Mapping[str, Tensor]) -> Bools:
    """Return which parts train each block, parts × blocks; None trains everything.

    Of blocks only those are returned that no other one implies: where a block is
    trained, so is one that has all of its parts and others beside them.
    """
    found: set[int] = set()
    for name, tensor in like.items():
        # A part is a product of places along axes, so an entry's parts are those that
        # have its place along each.
        has = [part is None or name in part.up for part in parts]
        trained = sum(1 << m for m, does in enumerate(has) if does)
        axes = [
            _codes(parts, name, axis, size) for axis, size in enumerate(tensor.shape)
        ]
        for codes in product(*axes):
            code = trained
            for one in codes:
                code &= one
            found.add(code)
    least = [c for c in sorted(found) if not any(o != c and o & c == o for o in found)]
    rows = [[bool(code >> m & 1) for code in least] for m in range(len(parts))]
    return np.array(rows, dtype=bool)


def _codes(parts: Sequence[Part | None], name: str, axis: int, size: int) -> set[int]:
    """Return the sets of parts, in bits, that places along an axis have."""
    has = np.ones((len(parts), size), dtype=bool)
    for m, part in enumerate(parts):
        if part is not None and name in part.up:
            has[m] = False
            has[m, part.up[name][axis].numpy()] = True
    each = np.unique(has.T, axis=0).tolist()
    return {sum(1 << m for m, there in enumerate(c) if there) for c in each}
