"""Asynchronous allocation: everyone busy to the deadline, few steps apart; exact.

    minimise    z = maxₖ τₖ − minₖ τₖ
    subject to  Σₖ dₖ = D,   least ≤ dₖ ≤ most,   dₖ ∈ ℕ              (work)
                τₖ = fₖ(dₖ) ≥ 1, the most steps that fit in T          (full time)

of equal z the largest minₖ τₖ, then Σₖ τₖ, then the least mean |τₖ − τₗ| over pairs.
``csa_strict`` does just this. ``csa``, what the paper shows, is content with any
z ≤ 1 and goes on from there: a strict z = 0 leaves learners idle for want of samples.

fₖ falls with d, so τₖ ∈ [a, b] says that dₖ is in an interval,

    max(least, hₖ(b+1) + 1) ≤ dₖ ≤ min(most, hₖ(a)),    hₖ(τ) the most d with τ steps,

and a window [a, b] can be met just if no interval is empty and D is between the sums
of their ends. Both sums are monotone: the highest a and the lowest b are searched,
then a goes down only as far as a narrower window may exist. Inside the window the
largest Σ τ is a knapsack: a step more for learner k costs hₖ(τ) − hₖ(τ+1) samples.

Where a learner may do P steps at most (``steps_at_most``), τₖ = min(fₖ(dₖ), P), and
nothing fits with more: hₖ(τ) = 0 for τ > P. All of the above holds as it stands. Where
all do P steps, the samples are shared out so that the last is done as soon as can be.

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", problem (7).

Differences from the paper:
1. t ≤ T and τ the most that fits, for t = T: whole numbers hardly ever meet T exactly.
2. Solved exactly in whole numbers; the paper relaxes, solves and floors.
3. Where z ≥ 2 is forced, the last criterion is proven only up to the sizes that
   ``maths.knapsack.multiple_choice`` states.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from melisma.maths.apportion import between
from melisma.maths.arrays import Ints
from melisma.maths.knapsack import most_items, multiple_choice
from melisma.maths.search import last_true
from melisma.schemes.common import common_steps, soonest
from melisma.system.problem import STEPS_LIMIT, Allocation, Problem

Within = Callable[[int], Ints]


def csa(problem: Problem, *, least_steps: int = 1) -> Allocation:
    """Everyone busy to the deadline, at most one step apart where possible; exact.

    Raises InfeasibleError if someone would not get ``least_steps`` done.
    """
    return _allocate(problem, least_steps, width=1)


def csa_strict(problem: Problem, *, least_steps: int = 1) -> Allocation:
    """Steps as close together as they can be, even if some then wait; exact.

    Raises InfeasibleError if someone would not get ``least_steps`` done.
    """
    return _allocate(problem, least_steps, width=0)


def _allocate(problem: Problem, least_steps: int, width: int) -> Allocation:
    h = cache(problem.samples_within)
    top = common_steps(problem, least_steps, h)
    if top == problem.steps_at_most:
        d = between(problem.low, soonest(problem, top), problem.samples)
        return Allocation(samples=d, steps=np.full(problem.learners, top))
    a, b = _window(problem, h, top, least_steps, width)
    return (_narrow if b - a < 2 else _wide)(problem, h, a, b)


def _floor(problem: Problem, h: Within, b: int) -> Ints:
    """Least samples of each learner that keep it from more than b steps."""
    return np.maximum(problem.low, h(b + 1) + 1)


def _window(
    problem: Problem, h: Within, top: int, least_steps: int, width: int
) -> tuple[int, int]:
    """The window with the highest a of all that have the least width, or ``width``."""
    D = problem.samples
    floor = partial(_floor, problem, h)
    least = floor(top + width)
    if least.sum() <= D and (least <= h(top)).all():
        return top, top + width
    # No b under ``top`` will do: its intervals start above the ends for a = top.
    lowest = 1 + last_true(
        lambda b: bool(floor(b).sum() > D), top, STEPS_LIMIT, guess=top + width
    )
    windows = list(_windows(problem, h, top, lowest, least_steps))
    width = max(width, min(b - a for a, b in windows))
    a = next(a for a, b in windows if b - a <= width)
    return a, a + width


def _windows(
    problem: Problem, h: Within, top: int, lowest: int, least_steps: int
) -> Iterator[tuple[int, int]]:
    """Each a from the top down with its least b, but for those that are no narrower.

    With G(a) the most steps of anyone at its end hₖ(a), the least b is the larger of
    ``lowest`` and G(a). G falls with a, but only when all who have G steps take a
    sample more: not before a is down to the least of their fₖ(hₖ(a) + 1), and never
    if one of them has its most. Until then b stays where it is and the window widens.
    """
    a, narrowest = top, STEPS_LIMIT
    while a >= least_steps and lowest - a < narrowest:
        steps = problem.steps_within(h(a))
        G = int(steps.max())
        yield a, max(lowest, G)
        narrowest = min(narrowest, max(lowest, G) - a)
        ahead = steps == G
        if lowest >= G or (ahead & (h(a) == problem.high)).any():
            return
        a = int(problem.steps_within(h(a) + 1)[ahead].min())


# Inside a window only Σ hₖ(τₖ) ≥ D has to be watched. Were the least samples of the
# best levels more than D, not all would be at their highest level (the window holds
# that), and one could go a level up, giving up no more than the excess: a better Σ τ.


def _narrow(problem: Problem, h: Within, a: int, b: int) -> Allocation:
    """Fill a window of two levels at most; all of one Σ τ have the same staleness."""
    D = problem.samples
    floor, spare = _floor(problem, h, b), int(h(a).sum()) - D
    upper = most_items(np.where(h(b) >= floor, h(a) - h(b), spare + 1), spare)
    least = np.where(upper, floor, np.maximum(problem.low, h(a + 1) + 1))
    most = np.where(upper, h(b), h(a))
    return Allocation(samples=between(least, most, D), steps=np.where(upper, b, a))


def _wide(problem: Problem, h: Within, a: int, b: int) -> Allocation:
    """Fill a window of three levels or more, which only bounds or few samples force.

    Takes memory for a table of levels (or of samples to choose from) × learners.
    """
    D = problem.samples
    least, most = _floor(problem, h, b), h(a)
    choices = int((most - least).max()) + 1
    if choices <= b - a:  # fewer ways to choose dₖ than levels
        d = np.maximum(most - np.arange(choices)[:, None], least)
        tau = problem.steps_within(d)
        size = problem.samples_within(tau)
    else:
        highest = problem.steps_within(least)
        end = problem.samples_within(highest)
        levels = np.arange(a, b + 1)[:, None]
        size = np.maximum(problem.samples_within(levels), end)
        tau = np.broadcast_to(highest, size.shape).copy()
        for j in range(b - a - 1, -1, -1):
            tau[j] = np.where(size[j] > size[j + 1], a + j, tau[j + 1])
    pick = multiple_choice(tau, size, D)
    steps = np.take_along_axis(tau, pick[None], axis=0)[0]
    least = np.maximum(problem.low, problem.samples_within(steps + 1) + 1)
    most = problem.samples_within(steps)
    return Allocation(samples=between(least, most, D), steps=steps)
