"""Share out a total over items that each grow along one of several rays.

    maximise    Σₖ g(k, rₖ)·xₖ
    subject to  Σₖ xₖ = total,   lowₖ ≤ xₖ ≤ h(k, rₖ),   xₖ ∈ ℕ

A ray has a slope g and a reach h; an item takes one ray. With a price μ on the total
each item stands alone and is best at one end of one ray, so that

    φ(μ) = μ·total + Σₖ maxᵣ max{(g − μ)·h, (g − μ)·low}  ≥  the best sum,  for any μ.

φ is convex and piecewise linear. Its minimum is where the lines of two picks meet, one
with too large a sum and one with too small a one; they differ in items for which both
are as good. Going over from one to the other, all items but one are where the bound
has them: the gap is a part of one item's gain, however many there are.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from melisma.maths.apportion import between
from melisma.maths.arrays import Floats, Ints

#: Sums of gains are told apart if they differ by more than this share: rounding.
ROUNDING = 1e-11
#: Prices that are tried; a bound at any of them holds.
PRICES = 100
#: Items that a first guess looks at, and how far about the total it does.
SAMPLED, ABOUT = 4096, 0.01
#: Items gone through at once: all that is known of them fits a cache.
CHUNK = 8192


class Pick(NamedTuple):
    """The best end of a ray for each item, at some price."""

    ray: Ints
    size: Floats
    gain: float  #: Σ g·x
    total: float  #: Σ x

    def bound(self, price: float, total: float) -> float:
        """Value at a price of the line that this pick is."""
        return self.gain - price * (self.total - total)


class Relaxed(NamedTuple):
    """The least bound, its price, and picks with sums on either side of the total."""

    bound: float
    price: float
    more: Pick
    less: Pick


@dataclass(frozen=True, slots=True, eq=False)
class Rays:
    """Rays × items. A slope of −∞ with a reach of ``low``: not to be taken."""

    slope: Floats
    reach: Floats
    low: Floats
    total: int

    @property
    def reachable(self) -> bool:
        """Return whether any choice has the total between its ends."""
        open_ = np.isfinite(self.slope)
        most = np.where(open_, self.reach, 0.0).max(axis=0).sum()
        return bool(open_.any(axis=0).all() and self.low.sum() <= self.total <= most)

    def best(self, price: float) -> Pick:
        """Return what is best for each item alone at a price."""
        ray = np.zeros(self.low.size, dtype=np.int64)
        for start in range(0, ray.size, CHUNK):
            part = slice(start, start + CHUNK)
            low, own_ray = self.low[part], ray[part]
            gain = np.full(low.size, -np.inf)
            for r in range(len(self.slope)):
                net = self.slope[r, part] - price
                own = np.maximum(net * self.reach[r, part], net * low)
                np.copyto(own_ray, r, where=own > gain)
                np.maximum(gain, own, out=gain)
        slope, reach = self.at(ray)
        return _pick(ray, slope, np.where(slope > price, reach, self.low))

    def at(self, ray: Ints) -> tuple[Floats, Floats]:
        """Return slope and reach of each item's ray."""
        items = np.arange(self.low.size)
        return self.slope[ray, items], self.reach[ray, items]

    def furthest(self) -> Pick:
        """Return the largest sum, of the best slopes that have it."""
        reach = np.where(np.isfinite(self.slope), self.reach, -1.0)
        ends = reach == reach.max(axis=0)
        ray = np.where(ends, self.slope, -np.inf).argmax(axis=0)
        return _pick(ray, *self.at(ray))

    def shortest(self) -> Pick:
        """Return the smallest sum, of the best slopes."""
        ray = self.slope.argmax(axis=0)
        return _pick(ray, self.at(ray)[0], self.low)

    def relax(self, enough: float = -np.inf) -> Relaxed:
        """Return the least bound, or the first that is not above ``enough``.

        The total must be within reach.
        """
        more, less, bound, at = self.furthest(), self.shortest(), np.inf, 0.0
        for pick in (more, less):
            if pick.total == self.total:
                return Relaxed(pick.gain, 0.0, pick, pick)
        guesses = self._guesses()
        for _ in range(PRICES):
            if guesses:
                price = guesses.pop()
            else:
                price = (more.gain - less.gain) / (more.total - less.total)
            pick = self.best(price)
            height = pick.bound(price, self.total)
            if height < bound:
                bound, at = height, price
            model = more.bound(price, self.total), less.bound(price, self.total)
            if height <= max(model) + ROUNDING * abs(height) or bound <= enough:
                break
            if pick.total >= self.total:
                more = min(more, pick, key=attrgetter("total"))
            if pick.total <= self.total:
                less = max(less, pick, key=attrgetter("total"))
            if more.total == less.total:
                break
        return Relaxed(bound, at, more, less)

    def _guesses(self) -> list[float]:
        """Prices on either side of the best one, by every so manieth item."""
        sample = slice(None, None, self.low.size // SAMPLED)
        prices = []
        for about in (1.0 - ABOUT, 1.0 + ABOUT) if self.low.size > 2 * SAMPLED else ():
            low = self.low[sample]
            total = int(self.total * about * low.size / self.low.size)
            rays = Rays(self.slope[:, sample], self.reach[:, sample], low, total)
            if rays.reachable:
                prices.append(rays.relax().price)
        return prices

    def between(self, relaxed: Relaxed) -> Ints:
        """Return rays on the way from one pick to the other, with room for the total.

        Sizes fall as the price rises, so that going over item by item passes it.
        """
        more, less = relaxed.more, relaxed.less
        ray = more.ray.copy()
        changing = np.flatnonzero((more.ray != less.ray) | (more.size != less.size))
        saved = np.cumsum((more.size - less.size)[changing])
        spare = more.total - self.total
        over = changing[: int(np.searchsorted(saved, spare, side="right"))]
        ray[over] = less.ray[over]
        return ray

    def filled(self, ray: Ints) -> Ints:
        """Return the best sizes on given rays: steep ones first, equals alike."""
        slope, reach = self.at(ray)
        low, high = self.low.astype(np.int64), reach.astype(np.int64)
        rest = self.total - int(low.sum())
        order = np.argsort(-slope, kind="stable")
        room = np.cumsum((high - low)[order])
        last = slope[order[min(int(np.searchsorted(room, rest)), order.size - 1)]]
        size = np.where(slope > last, high, low)
        equal = slope == last
        size[equal] = between(
            low[equal], high[equal], self.total - int(size[~equal].sum())
        )
        return size

    def gain(self, ray: Ints, size: Ints) -> float:
        """Σ g·x."""
        return float(self.at(ray)[0] @ size)


def _pick(ray: Ints, slope: Floats, size: Floats) -> Pick:
    return Pick(ray, size, float(slope @ size), float(size.sum()))
