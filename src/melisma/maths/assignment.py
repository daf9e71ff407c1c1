"""Whole tasks to unlike workers: as soon as possible, or as cheaply.

    soonest    minimise  max {aₖ + bₖ·xₖ : xₖ > 0}    done together as early as can be
    cheapest   minimise  Σ eₖ·xₖ

    subject to  Σ xₖ = n,   0 ≤ xₖ ≤ mostₖ,   xₖ ∈ ℕ

How many tasks all workers can do by a time T, Σ min(mostₖ, ⌊(T − aₖ)/bₖ⌋), grows with
T: bisection finds a T that is too early by no more tasks than there are workers. All
that end by then belong to a best assignment; of the rest each goes to who would be done
with it first, which is OLAR's own rule. Costs that are linear are least where the
cheapest worker does as much as it may, then the next.

These are the problems of OLAR and Fed-LBAP (soonest), of (MC)²MKP with constant
marginal costs (cheapest), and of ECMTC (cheapest, with mostₖ what fits a deadline);
`benchmarks/bench_allocators.py` has them beside each other.
"""

import heapq

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints


def within(time: float | Floats, fixed: Floats, each: Floats, most: Ints) -> Ints:
    """Return how many tasks each worker can do by a time, or by each of several.

    Several times are a column, and the result has a row for each of them.
    """
    fits: Floats = np.floor((time - fixed) / each)
    # A quotient that is whole but for rounding counts: a + b·x ≤ T decides.
    fits += fixed + each * (fits + 1.0) <= time
    fits -= fixed + each * fits > time
    return np.maximum(np.minimum(fits, most), 0.0).astype(np.int64)


def soonest(fixed: Floats, each: Floats, most: Ints, number: int) -> Ints:
    """Return how many of ``number`` tasks each worker does, to be done the soonest.

    Raises InfeasibleError if all workers together may not do so many.
    """
    _check(most, number)
    low, high = 0.0, float((fixed + each * np.minimum(most, number)).max())
    tasks = np.zeros_like(most)
    while (
        number - tasks.sum() > len(most) and low < (middle := (low + high) / 2) < high
    ):
        by_then = within(middle, fixed, each, most)
        if by_then.sum() > number:
            high = middle
        else:
            low, tasks = middle, by_then
    workers = list(zip(fixed.tolist(), each.tolist(), most.tolist(), strict=True))
    done = tasks.tolist()
    next_ends = [
        (a + b * (x + 1), k)
        for k, ((a, b, m), x) in enumerate(zip(workers, done, strict=True))
        if x < m
    ]
    heapq.heapify(next_ends)
    for _ in range(number - sum(done)):
        _, k = heapq.heappop(next_ends)
        done[k] += 1
        a, b, m = workers[k]
        if done[k] < m:
            heapq.heappush(next_ends, (a + b * (done[k] + 1), k))
    return np.array(done, dtype=np.int64)


def cheapest(cost: Floats, most: Ints, number: int) -> Ints:
    """Return how many of ``number`` tasks each worker does, for the least total cost.

    ``most`` may have a row for each of several problems, as `within` returns: their
    workers are sorted once. Raises InfeasibleError if all workers of one together may
    not do so many.
    """
    order = cost.argsort(kind="stable")
    upto = np.add.accumulate(most.T[order])  # workers come first
    if upto[-1].min() < number:
        _check(most.reshape(-1, len(cost))[upto[-1].argmin()], number)
    np.minimum(upto, number, out=upto)
    upto[1:] -= upto[:-1].copy()
    tasks: Ints = np.empty_like(most)
    tasks.T[order] = upto
    return tasks


def _check(most: Ints, number: int) -> None:
    if int(most.sum()) < number:
        raise InfeasibleError(
            f"{number} tasks for {len(most)} workers that may do {int(most.sum())} "
            "together: use fewer tasks, or more workers"
        )
