"""Places in a disc, and walks between them."""

from collections.abc import Callable

import numpy as np

from melisma.maths.arrays import Floats, Ints


def in_disc(count: int, radius_m: float, rng: np.random.Generator) -> Floats:
    """Places, count × 2, uniform over the area of a disc around the origin."""
    share, turn = rng.random((2, count))
    # A ring of twice the radius has twice the area, so r² is uniform.
    return on_ring(radius_m * np.sqrt(share), turn)


def on_ring(distance_m: Floats, turn: Floats) -> Floats:
    """Places at these distances from the origin; ``turn`` is a share of the circle."""
    angle = 2.0 * np.pi * turn
    ways: Floats = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return distance_m[:, None] * ways


class Walk:
    """Random waypoint: walk straight to a random place, pause, walk to the next.

    ``goals(n)`` are the n-th places that walkers go to, one row each. Where a walker
    is at a time depends on those alone, not on when one looked.
    """

    def __init__(
        self,
        start: Floats,
        goals: Callable[[int], Floats],
        *,
        speed_mps: float,
        pause_s: float,
    ) -> None:
        self._goals, self._speed, self._pause_s = goals, speed_mps, pause_s
        self._from, self._to = start.copy(), goals(0).copy()
        self._leg: Ints = np.zeros(len(start), dtype=np.int64)
        self._began_s = np.zeros(len(start))

    def at(self, time_s: float) -> Floats:
        """Return where everybody is; times must not go back."""
        while (done := time_s >= self._began_s + self._takes_s + self._pause_s).any():
            self._began_s[done] += (self._takes_s + self._pause_s)[done]
            self._from[done] = self._to[done]
            self._leg[done] += 1
            for leg in np.unique(self._leg[done]).tolist():
                turning = done & (self._leg == leg)
                self._to[turning] = self._goals(leg)[turning]
        part = np.minimum((time_s - self._began_s) / self._takes_s, 1.0)
        return self._from + part[:, None] * (self._to - self._from)

    @property
    def _takes_s(self) -> Floats:
        far: Floats = np.hypot(*(self._to - self._from).T)
        return np.maximum(far / self._speed, 1e-9)
