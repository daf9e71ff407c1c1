"""Whole numbers near real ones, where sources have sums and sinks have room."""

import numpy as np

from melisma.maths.arrays import Floats, Ints

#: An amount this little below a whole number is taken to be it: solvers leave such
#: traces. One further below has a large remainder, and is rounded up if there is room.
_NEAR = 1e-9


def handed_out(
    amounts: Floats, *, source: Ints, sink: Ints, room: Floats, most: Floats
) -> Floats:
    """Round each amount down or up so that every source's sum stays the same.

    Units go where the remainders are largest, first of all amounts together, as long
    as there is ``room`` in the sink and the amount stays within its own ``most``. What
    finds none goes to the last sink, whose room is endless, and of which each source
    must have an amount. Sums of sources must be whole.

    >>> handed_out(
    ...     np.array([1.6, 1.7, 0.7]),
    ...     source=np.array([0, 0, 0]),
    ...     sink=np.array([0, 1, 2]),
    ...     room=np.array([9.0, 1.9, np.inf]),
    ...     most=np.full(3, np.inf),
    ... ).tolist()
    [2.0, 1.0, 1.0]
    """
    whole = np.floor(amounts + _NEAR)
    sources = int(source.max(initial=-1)) + 1
    total = np.bincount(source, amounts, sources).round()
    left = total - np.bincount(source, whole, sources)
    free = np.floor(room + _NEAR) - np.bincount(sink, whole, room.size)
    rest = np.minimum(amounts - whole, np.floor(most + _NEAR) - whole)
    order = np.argsort(-(amounts - whole), kind="stable")
    for k in order[rest[order] > 0.0].tolist():
        i, j = source[k], sink[k]
        if left[i] > 0 and free[j] >= 1:
            whole[k] += 1
            left[i] -= 1
            free[j] -= 1
    last = np.flatnonzero(sink == room.size - 1)
    whole[last] += left[source[last]]
    return whole
