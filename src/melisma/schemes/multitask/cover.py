"""Times, costs and splits of a task on given learners."""

from collections.abc import Sequence
from math import inf

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.system.multitask import Assignment, MultiTaskProblem, Solved


def cheapest(
    problem: MultiTaskProblem, sets: Sequence[Ints], z: Sequence[float] | Floats
) -> Ints:
    """Shards of each learner: ``least`` for all of a task's set, the rest by price.

    Each set must be able to do that in its time z.
    """
    shards = np.zeros(problem.shard_s.shape, dtype=np.int64)
    for i, S in enumerate(sets):
        order = S[np.argsort(problem.price[S], kind="stable")]
        room = np.cumsum(problem.within(i, z[i])[order] - problem.least)
        filled = np.minimum(room, problem.shards[i] - problem.least * S.size)
        shards[i, order] = problem.least + np.diff(filled, prepend=0)
    return shards


def fastest(problem: MultiTaskProblem, task: int, learners: Ints) -> float:
    """Least z in which these learners, each with ``least`` at least, do all shards.

    The D-th of all levels A + B·d in order, or the slowest learner's ``least``; inf if
    they are too many.
    """
    A, B = problem.fixed_s[task, learners], problem.shard_s[task, learners]
    D, least = int(problem.shards[task]), problem.least
    if not 0 < learners.size * least <= D:
        return inf
    guess = (D + (A / B + 0.5).sum()) / (1.0 / B).sum()
    for reach in (2, 8):
        if (z := _level(A, B, D, guess, reach)) < inf:
            break
        guess = _between_levels(A, B, D)
    return max(z, float((A + B * least).max()))


def _level(A: Floats, B: Floats, D: int, guess: float, reach: int) -> float:
    """The D-th level; inf if it is not among those within reach of the guess."""
    low = np.maximum(np.floor((guess - A) / B) - reach, 0.0)
    k = D - int(low.sum()) - 1
    levels = A[:, None] + B[:, None] * (low[:, None] + np.arange(1, 2 * reach + 2))
    if not 0 <= k < levels.size:
        return inf
    z = float(np.partition(levels.ravel(), k)[k])
    counted = np.where(low > 0, A + B * low, 0.0).max()
    return z if counted <= z <= levels[:, -1].min() else inf


def _between_levels(A: Floats, B: Floats, D: int) -> float:
    """A time very near the D-th level, by bisection."""
    low, high = 0.0, float((A + B * D).min())
    for _ in range(50):
        middle = (low + high) / 2.0
        enough = np.maximum(np.floor((middle - A) / B), 0.0).sum() >= D
        low, high = (low, middle) if enough else (middle, high)
    return high


def sunk(problem: MultiTaskProblem) -> int:
    """Shards of each learner that every assignment pays for."""
    return problem.least if problem.every else 0


def capacities(
    problem: MultiTaskProblem, task: int, z: Floats, learners: Ints | slice
) -> Floats:
    """u(z), times × learners; by the last digit of a quotient more than ``within``."""
    A, B = problem.fixed_s[task, learners], problem.shard_s[task, learners]
    u = np.floor((z[:, None] - A) / B + 1e-9)
    u[u < problem.least] = 0.0
    return np.minimum(u, float(problem.shards[task]), out=u)


def filled(
    problem: MultiTaskProblem, task: int, learners: Ints, room: Floats
) -> tuple[Floats, Floats]:
    """Cheapest fill of D in rows of room: shards, in order of price, and their cost.

    What is sunk comes first. The cost is inf where the room does not do.
    """
    order = np.argsort(problem.price[learners], kind="stable")
    room = room[:, order]
    base = np.minimum(room, sunk(problem))
    left = problem.shards[task] - base.sum(axis=1)
    more = np.minimum(np.cumsum(room - base, axis=1), left[:, None])
    d = base + np.diff(more, axis=1, prepend=0.0)
    cost = (d * problem.price[learners][order]).sum(axis=1)
    return d, np.where((more[:, -1] < left) | (left < 0), inf, cost)


def costs(problem: MultiTaskProblem, task: int, z: Floats, learners: Ints) -> Floats:
    """Least cost of a task on given learners at each time; inf where they cannot."""
    return filled(problem, task, learners, capacities(problem, task, z, learners))[1]


def needed(problem: MultiTaskProblem, task: int, z: float, learners: Ints) -> Ints:
    """Of given learners the cheapest that cover D in time z, each with its least."""
    order = learners[np.argsort(problem.price[learners], kind="stable")]
    before = np.cumsum(u := problem.within(task, z)[order]) - u
    chosen: Ints = order[(u > 0) & (before < problem.shards[task])]
    return chosen


def assigned(
    problem: MultiTaskProblem, shards: Ints, bound_s: float | None = None
) -> Solved:
    """The answer; proven optimal where no bound is given."""
    assignment = Assignment(shards)
    total = problem.objective_s(assignment)
    return Solved(
        assignment=assignment,
        objective_s=total,
        bound_s=total if bound_s is None else min(bound_s, total),
    )
