"""Close the gap that a relaxation of ``rays`` leaves, on the items that decide it.

On given rays at most one item is between the ends of its ray: steep ones are full, flat
ones empty. So an answer is an end of a ray for each item, and one item that fills up.
At the relaxed price an item loses π − (g − μ)·x beside its best end, losses add up,
and an answer that is better than one known loses less than the gap in all. Items of
which no other end loses so little stay as they are. Over the others, a table of the
least loss for each sum, with and without the one that fills up, is exact.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.rays import ROUNDING, Rays, Relaxed

#: Items that are looked at together, and entries of the table of their sums.
ITEMS, ENTRIES = 32, 6_000_000
#: Rays times sums that are tried at most, and what one takes: a moving minimum.
WORK, FILTER = 600_000_000, 8


class Closed(NamedTuple):
    """Rays of the best answer met; whether no other can be better."""

    ray: Ints
    proven: bool


def close(rays: Rays, relaxed: Relaxed, ray: Ints, gain: float) -> Closed:
    """Return the best rays, or the best met within the work allowed.

    ``ray`` and its ``gain`` are an answer known.
    """
    gap = relaxed.bound - gain
    if gap <= ROUNDING * abs(relaxed.bound):
        return Closed(ray, proven=True)
    start = rays.best(relaxed.price)
    slope, reach = rays.at(start.ray)
    net = slope - relaxed.price
    profit = net * start.size
    other = _next_loss(rays, relaxed.price, start.ray, profit)
    open_ = np.flatnonzero(other <= gap)
    order = open_[np.argsort(other[open_], kind="stable")]
    core = order[: _affordable(rays, order, relaxed.price, profit, gap)]
    still = np.ones(other.size, dtype=bool)
    still[core] = False
    table = _Table(rays, relaxed.price, core, profit[core], gap)
    target = rays.total - int(start.size[still].sum())
    fillers = _fillers(np.abs(net), reach - rays.low, net > 0, still)
    chosen = start.ray.copy()
    found = table.best(target, fillers)
    if found is None:
        return Closed(ray, proven=core.size == open_.size)
    chosen[core] = found
    return Closed(chosen, proven=core.size == open_.size)


def _next_loss(rays: Rays, price: float, ray: Ints, profit: Floats) -> Floats:
    """Least loss of each item by any end of a ray but its best."""
    loss = np.full(profit.size, np.inf)
    for r, (slope, reach) in enumerate(zip(rays.slope, rays.reach, strict=True)):
        net = slope - price
        own = profit - np.maximum(net * reach, net * rays.low)
        room, far = reach - rays.low, np.full(profit.size, np.inf)
        np.multiply(np.abs(net), room, out=far, where=room > 0)
        np.minimum(loss, np.where(ray == r, far, own), out=loss)
    return loss


def _affordable(
    rays: Rays, items: Ints, price: float, profit: Floats, gap: float
) -> int:
    """How many of the first items a table may have."""
    first = items[:ITEMS]
    slope, reach = rays.slope[:, first], rays.reach[:, first]
    net, low = slope - price, rays.low[first]
    ends = np.maximum(net * reach, net * low) >= profit[first] - gap
    sums = np.cumsum(np.where(ends, reach, low).max(axis=0))
    count = np.arange(1, first.size + 1)
    work = sums * np.cumsum(ends.sum(axis=0) * FILTER)
    return int(((sums * count <= ENTRIES) & (work <= WORK)).sum())


def _fillers(
    cost: Floats, room: Floats, gives: Bools, still: Bools
) -> list[tuple[float, int]]:
    """Items outside the table that may fill up: loss of a unit, and units; < 0: gives.

    Of two the one with the smaller loss and the more room does.
    """
    found = []
    for sign, side in ((-1, gives), (1, ~gives)):
        items = np.flatnonzero(still & side & (room > 0))
        items = items[np.lexsort((-room[items], cost[items]))]
        widest = np.maximum.accumulate(room[items])
        keep = items[np.diff(widest, prepend=0.0) > 0]
        found += [(float(cost[k]), sign * int(room[k])) for k in keep]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Least losses of some items by the sum of their sizes."""

    rays: Rays
    price: float
    items: Ints
    profit: Floats
    gap: float

    def best(self, target: int, fillers: list[tuple[float, int]]) -> Ints | None:
        """Rays with the least loss, if it is less than the gap."""
        size = target + 1 + max(0, *(-room for _, room in fillers), 0)
        if size < 1:
            return None
        whole = np.full(max(size, 1), np.inf)
        whole[0] = 0.0
        stages = [(whole, np.full(size, np.inf))]
        for i in range(self.items.size):
            stages.append(self._grown(i, *stages[-1]))
        ends = list(self._ends(stages[-1], target, fillers))
        loss, sum_, filled = min(ends, default=(np.inf, 0, False))
        if loss >= self.gap:
            return None
        return self._retraced(stages, sum_, filled)

    def _ends(
        self,
        last: tuple[Floats, Floats],
        target: int,
        fillers: list[tuple[float, int]],
    ) -> list[tuple[float, int, bool]]:
        """Loss, sum of the table's items, and whether one of them fills up."""
        whole, filled = last
        ends = []
        if target >= 0:
            ends += [(float(whole[target]), target, False)]
            ends += [(float(filled[target]), target, True)]
        for cost, room in fillers:
            # A filler that gives up units leaves the table a larger sum.
            low, high = max(min(target, target - room), 0), max(target, target - room)
            sums = np.arange(low, high + 1)
            if sums.size:
                loss = whole[low : high + 1] + cost * np.abs(sums - target)
                at = int(loss.argmin())
                ends.append((float(loss[at]), int(sums[at]), False))
        return ends

    def _points(self, i: int) -> list[tuple[int, int, float]]:
        """Ray, size and loss of the ends that lose less than the gap."""
        k = self.items[i]
        low = int(self.rays.low[k])
        steepest = int(self.rays.slope[:, k].argmax())
        points = []
        for r, (slope, reach) in enumerate(self._rays(i)):
            sizes = {low, reach} if r == steepest else {reach}
            points += [(r, x, self._loss(i, slope, x)) for x in sizes]
        return [point for point in points if point[2] <= self.gap]

    def _rays(self, i: int) -> list[tuple[float, int]]:
        k = self.items[i]
        slopes, reaches = self.rays.slope[:, k], self.rays.reach[:, k]
        pairs = zip(slopes.tolist(), reaches.tolist(), strict=True)
        return [(slope, int(reach)) for slope, reach in pairs]

    def _loss(self, i: int, slope: float, size: int) -> float:
        return float(self.profit[i]) - (slope - self.price) * size

    def _filling(self, i: int) -> list[tuple[int, float, int, int]]:
        """Ray, slope less price, and sizes between which an item may fill up."""
        low = int(self.rays.low[self.items[i]])
        return [
            (r, slope - self.price, low, reach)
            for r, (slope, reach) in enumerate(self._rays(i))
            if reach > low
            and min(self._loss(i, slope, x) for x in (low, reach)) <= self.gap
        ]

    def _grown(self, i: int, whole: Floats, filled: Floats) -> tuple[Floats, Floats]:
        """Least losses with one item more."""
        grown, full = np.full_like(whole, np.inf), np.full_like(whole, np.inf)
        for _, x, loss in self._points(i):
            if x < whole.size:
                n = whole.size - x
                np.minimum(grown[x:], whole[:n] + loss, out=grown[x:])
                np.minimum(full[x:], filled[:n] + loss, out=full[x:])
        for _, net, low, reach in self._filling(i):
            own = float(self.profit[i]) + _least_by_size(whole, net, low, reach)
            np.minimum(full, own, out=full)
        for table in (grown, full):
            table[table > self.gap] = np.inf
        return grown, full

    def _retraced(
        self, stages: list[tuple[Floats, Floats]], sum_: int, filled: bool
    ) -> Ints:
        """Rays that led to a sum."""
        ray = np.zeros(self.items.size, dtype=np.int64)
        for i in reversed(range(self.items.size)):
            before = stages[i]
            ways = [
                (float(before[filled][sum_ - x]) + loss, r, sum_ - x, filled)
                for r, x, loss in self._points(i)
                if x <= sum_
            ]
            for r, net, low, reach in self._filling(i) if filled else ():
                x = np.arange(low, min(reach, sum_) + 1)
                if x.size:
                    loss = before[0][sum_ - x] + (self.profit[i] - net * x)
                    at = int(loss.argmin())
                    ways.append((float(loss[at]), r, sum_ - int(x[at]), False))
            _, ray[i], sum_, filled = min(ways)
        return ray


def _least_by_size(whole: Floats, net: float, low: int, reach: int) -> Floats:
    """min over x from low to reach of whole(s − x) − net·x, for each s.

    With t = s − x it is −net·s + the least whole(t) + net·t in a window that moves.
    """
    from scipy.ndimage import minimum_filter1d

    n = whole.size
    sums = np.arange(n)
    reach = min(reach, n - 1)
    if reach < low:
        return np.full(n, np.inf)
    width = reach - low + 1
    wall = np.full(reach, np.inf)
    values = np.concatenate([wall, whole + net * sums])
    # Entry i of the filter covers i − width//2 … i − width//2 + width − 1, and the
    # window of s begins at t = s − reach, entry s of ``values``.
    moving: Floats = minimum_filter1d(values, width, mode="constant", cval=np.inf)
    return moving[width // 2 :][:n] - net * sums
