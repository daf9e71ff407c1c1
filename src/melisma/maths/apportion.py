"""Whole numbers that add up."""

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.maths.search import last_true


def nearest(values: Floats, low: Ints, high: Ints, total: int) -> Ints:
    """Round ``values`` down within bounds, then up to ``total`` by largest remainder.

    Where that does not do, since bounds are in the way, what is missing is taken in
    proportion to the room that is left, and what is too much likewise.

    >>> low, high = np.array([1, 1, 1]), np.array([9, 9, 4])
    >>> nearest(np.array([2.7, 2.6, 3.7]), low, high, 9).tolist()
    [3, 2, 4]
    >>> nearest(np.array([2.0, 2.0, 8.0]), low, high, 12).tolist()
    [4, 4, 4]
    """
    _check_total(low, high, total)
    parts: Ints = np.clip(np.floor(values), low, high).astype(np.int64)
    short = total - int(parts.sum())
    if short < 0:
        return between(low, parts, total)
    free = np.flatnonzero(parts < high)
    if short > free.size:
        return between(parts, high, total)
    order = np.argsort((parts - values)[free], kind="stable")
    parts[free[order[:short]]] += 1
    return parts


def between(low: Ints, high: Ints, total: int) -> Ints:
    """Integers of sum ``total``, each the same share of the way from low to high.

    Exact in integers: each is that share rounded down or up, so within its bounds.

    >>> between(np.array([0, 10]), np.array([10, 30]), 25).tolist()
    [5, 20]
    """
    _check_total(low, high, total)
    reach = np.cumsum(high - low)
    whole, rest = int(reach[-1]), total - int(low.sum())
    if whole == 0:
        return low.copy()
    # ⌊reach·rest / whole⌋: the quotient in floats, then put right by the remainder,
    # which is small and so survives that reach·rest may wrap around 2⁶⁴.
    filled = (reach * (rest / whole)).astype(np.int64)
    filled += (reach * rest - filled * whole) // whole
    parts = low + filled
    parts[1:] -= filled[:-1]
    return parts


def level(low: Ints, high: Ints, total: int) -> Ints:
    """Integers of sum ``total``, as equal as their bounds allow.

    >>> level(np.array([1, 1, 5]), np.array([2, 9, 9]), 11).tolist()
    [2, 4, 5]
    """
    _check_total(low, high, total)

    def at(height: int) -> Ints:
        return np.minimum(np.maximum(low, height), high)

    height = last_true(
        lambda height: int(at(height).sum()) <= total,
        int(low.min()),
        int(high.max()),
        guess=total // low.size,
    )
    parts = at(height)
    rising = np.flatnonzero((low <= height) & (height < high))
    parts[rising[: total - int(parts.sum())]] += 1
    return parts


def _check_total(low: Ints, high: Ints, total: int) -> None:
    least, most = low.sum(), high.sum()
    if not least <= total <= most:
        raise ValueError(f"a sum of {total} is not between {least} and {most}")
