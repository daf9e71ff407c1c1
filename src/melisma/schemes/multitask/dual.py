"""A lower bound on Σz of every assignment, by prices for learners and the budget.

Let rent πⱼ be charged for each use of learner j, and β for each unit of cost. What an
assignment pays in rent it gets back, as it uses no learner twice; so

    Σz  ≥  Σᵢ min over z of [ z + Cᵢ(z) ]  −  Σⱼ πⱼ  −  β·(budget − what is sunk)

with Cᵢ(z) the least rent and cost at which learners of capacities u(z) cover D: a
fractional cover, filled in order of the cost per shard. Where every learner has to
serve, ``least`` shards of each are sunk: they are paid in any case.

C falls as z grows. So on an interval [a, b) no z + C(z) is below a + C(b), and
intervals are halved until the least of those is close to a value that is reached: the
bound is proven for all z, not for a sample of them.
"""

import numpy as np

from melisma.maths.arrays import Floats
from melisma.schemes.multitask.cover import capacities, sunk
from melisma.system.multitask import MultiTaskProblem

TOLERANCE = 1e-4  #: of a task's time, lost by not halving further
CHUNK = 2**20  #: learners in all times that are priced at once

STEPS = 60  #: of subgradient ascent
TIMES = (15, 25)  #: of each task at each step, for many learners and for few
PRICED = 25_000  #: learners in all these times, about
WIDTH = 0.01  #: how far these are from the middle one, times the root of their number
SOFT = 1e-3  #: of a task's time: two times so close count alike


def bound_s(problem: MultiTaskProblem, rent: Floats, beta: float) -> float:
    """No assignment has a smaller Σz; true for any rents of at least 0, any β ≥ 0."""
    total = -float(rent.sum()) - _allowance(problem, beta)
    for i, T in enumerate(problem.deadline_s):
        first = float((problem.fixed_s[i] + problem.shard_s[i] * problem.least).min())
        edges = np.geomspace(first, max(T, first), 24)
        C = _covers(problem, i, edges, rent, beta)
        while True:
            best = (edges + C).min()
            low = edges[:-1] + C[1:]
            wide = np.flatnonzero(low < best - TOLERANCE * edges[:-1])
            if not wide.size:
                break
            middle = (edges[wide] + edges[wide + 1]) / 2.0
            C = np.insert(C, wide + 1, _covers(problem, i, middle, rent, beta))
            edges = np.insert(edges, wide + 1, middle)
        total += float(min(best, low.min()))
    return total


def rents(
    problem: MultiTaskProblem, start: Floats, beta: float, z: Floats, goal_s: float
) -> Floats:
    """Rents with a better bound: subgradient steps towards the goal, then averaged.

    A step looks at times around those of the tasks, shifted at random, and takes their
    covers together, weighted by how good they are: the bound's corners are smoothed.
    """
    rng = np.random.default_rng(0)
    rent, z, later = start, z.copy(), []
    count = int(np.clip(PRICED // problem.learners, *TIMES))
    # With a price on cost a task's best time is far less certain.
    width = (6.0 if beta > 0 else 1.0) * WIDTH * count**0.5
    offsets = np.linspace(-width, width, count)
    for step in range(STEPS):
        value, over = (
            -float(rent.sum()) - _allowance(problem, beta),
            -np.ones_like(rent),
        )
        for i, T in enumerate(problem.deadline_s):
            shift = rng.uniform(-width, width) / count
            times = np.minimum(z[i] * (1.0 + offsets + shift), T)
            C, used = cover(problem, i, times, rent, beta)
            least = (times + C).min()
            if least == np.inf:
                continue
            weight = np.exp((least - times - C) / (SOFT * z[i]))
            weight /= weight.sum()
            value, over = value + least, over + (weight[:, None] * used).sum(axis=0)
            z[i] = 0.5 * (z[i] + (weight * times).sum())
        stride = 0.5 * 0.04 ** (step / STEPS)
        hope = max(goal_s - value, 2e-3 * goal_s)
        rent = np.maximum(rent + stride * hope / max((over**2).sum(), 1e-9) * over, 0.0)
        if 2 * step >= STEPS:
            later.append(rent)
    mean: Floats = np.mean(later, axis=0)
    return mean


def cover(
    problem: MultiTaskProblem, task: int, z: Floats, rent: Floats, beta: float
) -> tuple[Floats, Floats]:
    """C(z), and for each z how much of each learner it uses, 0 to 1."""
    p, D, free = problem.price, float(problem.shards[task]), float(sunk(problem))
    u = capacities(problem, task, z, slice(None))
    full = np.maximum(u, 1.0)
    unit = np.where(u > 0, (rent + beta * p * (u - free)) / full, np.inf)
    if beta * free == 0:
        paid, d = _fill(unit, u, D)
        return paid, d / full
    # A dear learner is used for its sunk shards at its rent, and only later for more.
    dear = (rent < free * beta * p) & (u > 0)
    base = np.minimum(u, free)
    paid, d = _fill(
        np.hstack([np.where(dear, rent / free, unit), np.where(dear, beta * p, unit)]),
        np.hstack([base, u - base]),
        D,
    )
    sunk_d, more = np.hsplit(d, 2)
    return paid, np.where(dear, sunk_d / free, (sunk_d + more) / full)


def _covers(
    problem: MultiTaskProblem, task: int, z: Floats, rent: Floats, beta: float
) -> Floats:
    """C of many times, a chunk after the other."""
    chunks = np.array_split(z, 1 + z.size * problem.learners // CHUNK)
    return np.concatenate([cover(problem, task, c, rent, beta)[0] for c in chunks])


def _fill(unit: Floats, room: Floats, total: float) -> tuple[Floats, Floats]:
    """Least cost of ``total`` in each row, inf if it has no room, and what is taken."""
    order = np.argsort(unit, axis=1)
    filled = np.cumsum(np.take_along_axis(room, order, 1), axis=1)
    np.minimum(filled, total, out=filled)
    taken = np.empty_like(room)
    np.put_along_axis(taken, order, np.diff(filled, axis=1, prepend=0.0), 1)
    cost = (np.where(taken > 0, unit, 0.0) * taken).sum(axis=1)
    return np.where(filled[:, -1] < total, np.inf, cost), taken


def _allowance(problem: MultiTaskProblem, beta: float) -> float:
    """β times what the budget leaves for shards that are not sunk."""
    if beta == 0:
        return 0.0
    return beta * (problem.most - sunk(problem) * float(problem.price.sum()))
