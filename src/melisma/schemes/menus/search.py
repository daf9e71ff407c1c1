"""Search the windows of steps for the plan of most value: branch and bound.

A range of windows has one bound, by rays that are above those of all of them. The
range of the highest bound is halved, down to single windows; those of which the bound
is not above the best plan are left alone.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from melisma.maths.arrays import Floats
from melisma.maths.rays import ROUNDING
from melisma.maths.rays_core import close
from melisma.schemes.menus.windows import Plan, Windows, free

#: Windows solved, and how many rays of learners in all of them.
FEWEST, MOST, RAYS = 6, 400, 1_000_000
#: To what share of the largest a price for a range of windows is found.
PRECISE = 1e-7
#: Times that the gap of a window is closed further.
ROUNDS = 4


class Found(NamedTuple):
    """The best plan met; no plan is worth more than the bound."""

    plan: Plan | None
    bound: float


class Prices(NamedTuple):
    """Prices of a Lagrangian: of a sample, and of what its option does besides."""

    price: float
    bonus: Floats  #: of a sample by each option
    offset: float = 0.0  #: what all bonuses are too much


#: Solves the window from a, where a plan of so much value is known.
Solve = Callable[[Windows, int, float], Found]
#: Finds good prices for the windows from first to last.
Price = Callable[[int, int], Prices]


def priced(windows: Windows) -> Price:
    """Find prices without coverage: those that are best for some of the learners."""
    from scipy.optimize import minimize_scalar

    few, none = windows.sampled(), free(windows.menu.options)
    steepest = float(windows.value.max())

    def prices(first: int, last: int) -> Prices:
        most = steepest * (last + windows.width)
        answer = minimize_scalar(
            lambda price: few.bound(first, last, none, float(price)),
            bounds=(-most, most),
            method="bounded",
            options={"xatol": PRECISE * most},
        )
        return Prices(float(answer.x), none)

    return prices


def best(
    windows: Windows,
    first: int,
    last: int,
    known: Plan | None,
    price: Price,
    solve: Solve,
    most: int | None = None,
) -> Found:
    """Return the best plan of the windows from ``first`` to ``last``.

    After ``most`` windows the best plan met has to do, if there is one: by default
    after as many as take seconds at most.
    """
    plan, left = known, -np.inf
    if most is None:
        rays = windows.value.size * (windows.width + 1)
        most = min(max(RAYS // rays, FEWEST), MOST)

    def bound(first: int, last: int) -> float:
        at = price(first, last)
        return windows.bound(first, last, at.bonus, at.price) - at.offset

    heap = [(-np.inf, first, last)]
    count = 0
    while heap:
        height, first, last = heappop(heap)
        value = -np.inf if plan is None else plan.value
        if -height <= value + ROUNDING * abs(value) or (count >= most and plan):
            left = max(left, -height)
            break
        if first == last:
            found = solve(windows, first, value)
            count += 1
            if found.plan is not None and found.plan.value > value:
                plan = found.plan
            left = max(left, found.bound)
            continue
        middle = (first + last) // 2
        for low, high in ((first, middle), (middle + 1, last)):
            heappush(heap, (-min(-height, bound(low, high)), low, high))
    value = -np.inf if plan is None else plan.value
    proven = left <= value + ROUNDING * abs(value)
    return Found(plan, value if proven else left)


def bounded(windows: Windows, a: int, value: float) -> Found:
    """Bound one window, and look for no plan."""
    rays = windows.rays(a, free(windows.menu.options))
    reachable = rays.reachable
    return Found(None, rays.relax(enough=value).bound if reachable else -np.inf)


def solved(windows: Windows, a: int, value: float) -> Found:
    """Solve one window without coverage: relax, go between, close the gap."""
    rays = windows.rays(a, free(windows.menu.options))
    if not rays.reachable:
        return Found(None, -np.inf)
    relaxed = rays.relax(enough=value)
    if relaxed.bound <= value:
        return Found(None, relaxed.bound)
    ray, proven = rays.between(relaxed), False
    gain = rays.gain(ray, rays.filled(ray))
    for _ in range(ROUNDS):
        closed = close(rays, relaxed, ray, max(gain, value))
        proven, before = closed.proven, gain
        ray, gain = closed.ray, rays.gain(closed.ray, rays.filled(closed.ray))
        if proven or gain <= before:
            break
    plan = windows.plan(a, ray, rays.filled(ray))
    return Found(plan, max(plan.value, value) if proven else relaxed.bound)
