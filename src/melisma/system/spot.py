"""Spot instances: machines that are there until they are reclaimed, and come back.

Each is there for a time, then away for a time, and so on, from the start of the run,
at which all are there. Both times are exponential, as in most papers on preemption:
whoever has been there for long is as likely to be taken in the next second as whoever
just came. What happens follows from the seed alone, whenever it is asked for, so that
schemes that are compared meet the same market.
"""

import heapq

import numpy as np

from melisma.maths.arrays import Bools, Floats
from melisma.system.streams import Stream


class SpotInstances:
    """When learners are there, on a clock that only goes forward."""

    def __init__(self, reclaim_s: Floats, returns_s: Floats, seed: int) -> None:
        """Take mean times until reclaim and until return; inf: never."""
        self._means_s = {True: reclaim_s, False: returns_s}
        self._rng = np.random.default_rng([seed, Stream.SPOT])
        self._there = np.ones(len(reclaim_s), dtype=bool)
        self._changes_s = np.full(len(reclaim_s), np.inf)
        self._events: list[tuple[float, int]] = []
        for k in range(len(reclaim_s)):
            self._draw(k, 0.0)

    def there(self, time_s: float) -> Bools:
        """Return who is there at a time, no earlier than asked for before."""
        while self._events and self._events[0][0] <= time_s:
            changed_s, k = heapq.heappop(self._events)
            self._there[k] = not self._there[k]
            self._draw(k, changed_s)
        return self._there.copy()

    def taken_s(self) -> Floats:
        """Return when each is reclaimed that was there when last asked; inf: never."""
        return np.where(self._there, self._changes_s, np.inf)

    def returns_s(self) -> Floats:
        """Return when each comes back that was away when last asked; inf: never."""
        return np.where(self._there, np.inf, self._changes_s)

    def _draw(self, k: int, from_s: float) -> None:
        mean_s = float(self._means_s[bool(self._there[k])][k])
        self._changes_s[k] = np.inf
        if mean_s < np.inf:
            self._changes_s[k] = from_s + self._rng.exponential(mean_s)
            heapq.heappush(self._events, (float(self._changes_s[k]), k))
