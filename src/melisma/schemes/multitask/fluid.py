"""Learners that divide themselves between tasks like a fluid: the start, and prices.

With a price β on the budget and fractions x_ij of learners, a task takes from each
learner what it can do in time zᵢ, of those that cost less than λᵢ, its own price of a
shard. At the optimum

    Σⱼ x_ij·e_ij = Dᵢ          e = u(zᵢ) where β·pⱼ < λᵢ, else what is not optional
    λᵢ·R = 1 + β·Σⱼ x_ij·pⱼ/B_ij    R = Σⱼ x_ij/B_ij    over those: a second more is
                                                       worth the shards that it saves

and a learner is where it is worth the most, λᵢ·e less what e costs. Frank and Wolfe's
method moves everybody there by a smaller and smaller step.
"""

from dataclasses import dataclass

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.schemes.multitask.cover import sunk
from melisma.system.multitask import MultiTaskProblem

STEPS = 200  #: of Frank and Wolfe; a start needs no more


@dataclass(frozen=True, slots=True, eq=False)
class Fluid:
    """Fractions of learners, with the times and prices of tasks that go with them."""

    x: Floats  #: tasks × learners
    z: Floats  #: zᵢ
    worth: Floats  #: λᵢ, seconds that one shard less saves
    cost: float  #: of all shards
    rent: Floats  #: what each learner saves where it is worth the most, seconds


def fluid(problem: MultiTaskProblem, beta: float) -> Fluid:
    """Divide learners at a price β; times are held at deadlines where those bind."""
    A, B, p = problem.fixed_s, problem.shard_s, problem.price
    D, T, free = problem.shards.astype(np.float64), problem.deadline_s, sunk(problem)
    x = np.full(B.shape, 1.0 / problem.tasks)
    z = np.minimum((D + (x * (A / B + 0.5)).sum(axis=1)) / (x / B).sum(axis=1), T)
    scarce = np.ones(problem.tasks)  # above 1 where the deadline binds
    worth = np.full(problem.tasks, np.inf)
    for step in range(STEPS):
        rate = np.where(worth[:, None] > beta * p, x, 0.0) / B
        R = np.maximum(rate.sum(axis=1), 1e-12)
        worth = scarce * (1.0 + beta * (rate * p).sum(axis=1)) / R
        u = np.maximum((z[:, None] - A) / B - 0.5, 0.0)
        more = np.maximum(u - free, 0.0) * (worth[:, None] > beta * p)
        base = np.minimum(u, free)
        d = x * (base + more)
        short = D - d.sum(axis=1)
        tight = np.maximum(scarce * np.exp(0.3 * short / D), 1.0)
        scarce = np.where(z >= T, tight, 1.0)
        z = np.clip(z + 0.5 * short / R, 0.5 * z, T)
        value = worth[:, None] * base + more * (worth[:, None] - beta * p)
        best = value.argmax(axis=0)
        x *= 1.0 - 2.0 / (step + 3.0)
        x[best, np.arange(problem.learners)] += 2.0 / (step + 3.0)
    return Fluid(x, z, worth, float((d @ p).sum()), value.max(axis=0))


def rounded(problem: MultiTaskProblem, flow: Fluid) -> list[Ints]:
    """Learners of each task, as a fluid's fractions suggest.

    Those that are divided least choose first: the task where their fraction, times the
    share of its shards that still lacks learners, is largest. No task gets
    more learners than it has shards for, and each gets at least one.
    """
    m = problem.tasks
    u = np.maximum((flow.z[:, None] - problem.fixed_s) / problem.shard_s, 0.0)
    share = np.maximum(u - 0.5, 0.0) / problem.shards[:, None]
    lack, seats = np.ones(m), problem.shards // problem.least
    task = np.full(problem.learners, -1)
    useful = problem.every | ((flow.rent > 0) & (u >= problem.least).any(axis=0))
    for j in np.argsort(-flow.x.max(axis=0), kind="stable").tolist():
        fits = (seats > 0) & (problem.every | (u[:, j] >= problem.least))
        if useful[j] and fits.any():
            pull = (flow.x[:, j] + 1e-9) * np.maximum(lack, 1e-3)
            task[j] = i = int(np.argmax(np.where(fits, pull, -1.0)))
            lack[i] -= share[i, j]
            seats[i] -= 1
    for i in np.setdiff1d(np.arange(m), task):
        crowded = np.bincount(task + 1, minlength=m + 1)[task + 1] > 1
        spare = np.flatnonzero(crowded | (task < 0))
        task[spare[np.argmax(share[i, spare])]] = i
    return [np.flatnonzero(task == i) for i in range(m)]
