"""The paper's suggest and improve: the relaxed equal-τ point, rounded, then moves.

Suggest. With bounds aside, the relaxed problem (8) is solved by one real τ* for all,
the point that its multipliers (11) and (12) describe:

    Σₖ (T − C⁰ₖ) / (C¹ₖ + τ* C²ₖ) = D,   dₖ the k-th term, within least and most

Improve. Floor d, hand out what is missing, and let τₖ be the most that fits. Then, as
long as it helps: a learner gives up just the samples that keep it from one step more,
those with the fewest steps first, to others that have time to spare at the steps they
do, or that are more than a step ahead. A move helps if it narrows the window of steps
(down to a width of one), else raises the least τ, else leaves fewer learners at it,
else adds to Σ τ.

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", section IV.

Differences from the paper:
1. It does not say what its improve method moves; the moves are ours.
2. No promise of an optimum: the window that is reached may be wider than ``csa``'s.
"""

import numpy as np
from scipy.optimize import brentq

from melisma.maths.apportion import between, nearest
from melisma.maths.arrays import Floats, Ints
from melisma.schemes.common import common_steps
from melisma.system.problem import Allocation, Problem


def csa_sai(problem: Problem) -> Allocation:
    """CSA by suggest and improve: equal steps in real numbers, rounded, then moves.

    Raises InfeasibleError if not everyone can do one step.
    """
    common_steps(problem, 1, problem.samples_within)
    d = nearest(_suggestion(problem), problem.low, problem.high, problem.samples)
    while (better := _move(problem, d)) is not None:
        d = better
    return Allocation(samples=d, steps=problem.steps_within(d))


def _suggestion(problem: Problem) -> Floats:
    """Real samples of each learner at the relaxed τ*."""
    room_s = problem.deadline_s - problem.fixed_s

    def share(tau: float) -> Floats:
        d = room_s / (problem.sample_s + tau * problem.step_s)
        return np.clip(d, problem.low, problem.high)

    beyond = float(problem.steps_within(problem.low).max() + 1)
    return share(brentq(lambda tau: share(tau).sum() - problem.samples, 1.0, beyond))


def _move(problem: Problem, d: Ints) -> Ints | None:
    """Samples after the first move that helps; None if there is none."""
    tau = problem.steps_within(d)
    fewer = problem.samples_within(tau + 1)
    need = d - fewer
    spare = problem.samples_within(np.maximum(tau, 0)) - d
    ahead = problem.samples_within(np.minimum(tau, tau.min() + 1)) - d
    for k in np.lexsort((need, tau)):
        if fewer[k] < problem.low[k]:
            continue
        for room in (spare, ahead):
            others = np.where(np.arange(d.size) == k, 0, room)
            if others.sum() >= need[k]:
                moved = d + between(np.zeros_like(d), others, int(need[k]))
                moved[k] = fewer[k]
                if _merit(problem.steps_within(moved)) > _merit(tau):
                    return moved
    return None


def _merit(tau: Ints) -> tuple[int, int, int, int]:
    low = tau.min()
    width, crowd = int(np.ptp(tau)), int((tau == low).sum())
    return -max(width, 1), int(low), -crowd, int(tau.sum())
