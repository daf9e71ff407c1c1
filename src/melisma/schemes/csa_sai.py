"""The paper's suggest and improve: the relaxed equal-τ point, rounded, then moves.

Suggest. With bounds aside, the relaxed problem (8) is solved by one real τ* for all,
the point that its multipliers (11) and (12) describe:

    Σₖ (T − C⁰ₖ) / (C¹ₖ + τ* C²ₖ) = D,   dₖ the k-th term, within least and most

Improve. Floor d, hand out what is missing, and let τₖ be the most that fits. Then, as
long as there is a move: of the learners with the fewest steps first, one gives up just
the samples that keep it from more steps, though not from more than the most that
anyone does, or one above the fewest. Others take them that have time to spare at the
steps they do. If there is no such move, a learner that is last alone gains a step from
those who are more than a step ahead of it, and so does any that has no step at all.
Each move raises the least τ, leaves fewer learners without a step, or adds to Σ τ, so
there is an end.

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", section IV.

Differences from the paper:
1. It does not say what its improve method moves; the moves are ours.
2. Where there is a most of steps, the suggestion is the one without it.
3. No promise of an optimum: the window that is reached may be wider than ``csa``'s.
"""

from dataclasses import replace

import numpy as np

from melisma.maths.apportion import between, nearest
from melisma.maths.arrays import Floats, Ints
from melisma.schemes.common import common_steps
from melisma.system.problem import STEPS_LIMIT, Allocation, Problem


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
    from scipy.optimize import brentq

    room_s = problem.deadline_s - problem.fixed_s

    def share(tau: float) -> Floats:
        d = room_s / (problem.sample_s + tau * problem.step_s)
        return np.clip(d, problem.low, problem.high)

    free = replace(problem, steps_at_most=STEPS_LIMIT)
    beyond = float(free.steps_within(problem.low).max() + 1)
    return share(brentq(lambda tau: share(tau).sum() - problem.samples, 1.0, beyond))


def _move(problem: Problem, d: Ints) -> Ints | None:
    """Samples after the next move; None if there is none."""
    h, f = problem.samples_within, problem.steps_within
    low, tau = problem.low, f(d)
    bottom, top = int(tau.min()), max(int(tau.max()), int(tau.min()) + 1)
    # As many steps as others can pay for who lose none, up to the top.
    room = np.maximum(h(np.maximum(tau, 0)) - d, 0)
    fewest = np.maximum(np.maximum(low, h(top + 1) + 1), d - (room.sum() - room))
    reach = f(fewest)
    if (more := reach > tau).any():
        return _give(d, np.where(more, h(np.maximum(reach, 0)), d), room, tau)
    # One step of the last, paid by those who are further ahead of it.
    last = tau == bottom
    room = np.maximum(h(np.maximum(np.minimum(tau, bottom + 1), 0)) - d, 0)
    keep = h(bottom + 1)
    paid = last & (keep >= low) & (d - keep <= room.sum() - room)
    if bottom >= 1:
        paid &= (f(keep) <= top) & (last.sum() == 1)
    return _give(d, np.where(paid, keep, d), room, tau) if paid.any() else None


def _give(d: Ints, keep: Ints, room: Ints, tau: Ints) -> Ints:
    """Let one learner, of the fewest steps, keep only so many; others take the rest."""
    givers = np.flatnonzero(keep < d)
    k = givers[np.lexsort(((d - keep)[givers], tau[givers]))[0]]
    others = np.where(np.arange(d.size) == k, 0, room)
    moved = d + between(np.zeros_like(d), others, int(d[k] - keep[k]))
    moved[k] = keep[k]
    return moved
