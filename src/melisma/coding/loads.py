"""Whole numbers of partitions for workers of unlike speeds."""

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, Ints, numbers

LOSS = 0.02  #: of time, that whole partitions may cost
FINEST = 32  #: partitions per worker that a code takes at most, to keep to that


def loads(speeds: Floats, total: int, most: int) -> Ints:
    """Split ``total`` so that the last worker is done soonest, none above ``most``.

    Exact: no other split has a smaller max loadᵢ / speedᵢ. Each partition in turn goes
    to whoever would have done it first; all but a few of these turns at once.

    >>> loads(np.array([2.0, 2.0, 8.0]), 7, 7).tolist()
    [1, 1, 5]
    """
    if total > most * speeds.size:
        raise ValueError(f"{total} are more than {most} for each of {speeds.size}")
    # Nobody is done before T, so that each has ⌊T·speed⌋ by then; less for rounding.
    T = _even_s(speeds, total, most) * (1.0 - 1e-12)
    parts: Ints = np.minimum(np.floor(T * speeds), most).astype(np.int64)
    turns = [
        ((parts[i] + 1) / speeds[i], i) for i in np.flatnonzero(parts < most).tolist()
    ]
    heapq.heapify(turns)
    for _ in range(total - int(parts.sum())):
        _, i = turns[0]
        parts[i] += 1
        if parts[i] < most:
            heapq.heapreplace(turns, ((parts[i] + 1) / speeds[i], i))
        else:
            heapq.heappop(turns)
    return parts


def makespan(speeds: Floats, parts: Ints) -> float:
    """When the last worker is done, in partitions by speed."""
    return float((parts / speeds).max())


def _even_s(speeds: Floats, total: int, most: int) -> float:
    """When all is done if loads need not be whole."""
    full = np.zeros(speeds.size, dtype=bool)
    while True:
        if full.all():
            return float((most / speeds).max())
        T = (total - most * int(full.sum())) / float(speeds[~full].sum())
        more = ~full & (T * speeds >= most)
        if not more.any():
            return T
        full |= more


def groups(speeds: Floats, shares: ArrayLike) -> list[Ints]:
    """Split workers into groups with these shares of the speed, nearly; nobody idle.

    By falling speed, each joins the group whose speed for its share is then least.

    >>> [group.tolist() for group in groups(np.array([2.0, 2.0, 4.0, 4.0]), [1, 1])]
    [[2, 0], [3, 1]]
    """
    wanted = np.asarray(shares, dtype=np.float64)
    if wanted.size > speeds.size:
        raise ValueError(f"{speeds.size} workers for {wanted.size} groups")
    totals = np.zeros(wanted.size)
    group = np.empty(speeds.size, dtype=np.int64)
    order = np.argsort(-speeds, kind="stable")
    for left, w in zip(range(speeds.size, 0, -1), order.tolist(), strict=True):
        after = (totals + speeds[w]) / wanted
        if left == (totals == 0).sum():  # those who are left have a group to open each
            after[totals > 0] = np.inf
        group[w] = after.argmin()
        totals[group[w]] += speeds[w]
    return [order[group[order] == g] for g in range(wanted.size)]


def fewest(time: Callable[[int], float], low: int, high: int) -> int:
    """Fewest partitions, from ``low`` to ``high``, that cost at most ``LOSS`` of time.

    ``time(K)`` is the makespan of K partitions; time(K) / K falls towards its limit.
    Where none will do, the best of up to 200 that are tried.
    """
    many = 10**6 * low
    limit = time(many) / many
    best = low
    for K in np.unique(np.geomspace(low, high, 200).astype(np.int64)).tolist():
        if time(K) / K < time(best) / best:
            best = K
        if time(best) / best <= (1.0 + LOSS) * limit:
            break
    return best


def checked(
    workers: int,
    stragglers: int,
    speeds: ArrayLike | None,
    partitions: int | None = None,
) -> Floats:
    """Speeds as an array, all 1 where there are none; ConfigError for bad numbers."""
    if partitions is not None and partitions < 1:
        raise ConfigError(f"{partitions} partitions: give at least 1")
    if workers < 1:
        raise ConfigError(f"{workers} workers: give at least 1")
    if not 0 <= stragglers < workers:
        raise ConfigError(
            f"{stragglers} stragglers of {workers} workers: give 0 to {workers - 1}"
        )
    given = 1.0 if speeds is None else speeds
    return numbers("speeds", given, shape=(workers,), above=0.0, each="worker")
