"""Why no assignment exists, and what would help."""

from math import ceil
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.schemes.multitask.cover import fastest
from melisma.system.multitask import MultiTaskProblem


def check(problem: MultiTaskProblem) -> None:
    """Raise InfeasibleError for what can be seen at once."""
    m, n, least = problem.tasks, problem.learners, problem.least
    D, T = problem.shards, problem.deadline_s
    if n < m:
        raise InfeasibleError(
            f"{m} tasks for {n} learners, each of which serves one at most: use "
            f"{m - n} more learner{'s' * (m - n > 1)} or fewer tasks"
        )
    if (short := np.flatnonzero(least > D)).size:
        raise InfeasibleError(
            f"task {short[0]} has {D[short[0]]} shards, fewer than the least of "
            f"{least} that a learner serves with: lower 'least' to {D[short[0]]}"
        )
    if problem.every and n > (room := int((D // least).sum())):
        raise InfeasibleError(
            f"{n} learners with at least {least} shards each are too many for tasks of "
            f"{D.tolist()} shards: leave {n - room} out, lower 'least' or let learners "
            "be idle (every=False)"
        )
    caps = np.stack([problem.within(i, T[i]) for i in range(m)])
    for i in np.flatnonzero(caps.sum(axis=1) < D).tolist():
        needed = fastest(problem, i, _quickest(problem, i))
        raise InfeasibleError(
            f"task {i} cannot do its {D[i]} shards by its deadline of {T[i]:.6g} s, "
            f"not even with all {n} learners: {caps[i].sum()} fit; give it "
            f"{_up(needed)} s, fewer shards or more learners"
        )
    first_s = problem.fixed_s + problem.shard_s * least
    if problem.every and (idle := np.flatnonzero(~(caps > 0).any(axis=0))).size:
        j = idle[0]
        i = int(np.argmin(first_s[:, j] - T))
        raise InfeasibleError(
            f"learner {j} meets no task's deadline with the least of {least} shards "
            f"({idle.size} of {n} learners do not): leave it out, let learners be idle "
            f"(every=False) or give task {i} {_up(first_s[i, j])} s"
        )


def why_not(
    problem: MultiTaskProblem, enough_s: Floats | None = None
) -> InfeasibleError:
    """The error for a problem of which no assignment meets all deadlines.

    ``enough_s``: deadlines that would do, where these are known.
    """
    check(problem)
    share = _covered(problem)
    later = "later deadlines"
    if enough_s is not None:
        later += f" ({', '.join(map(_up, enough_s))} s would do)"
    if share < 1.0:
        more = ceil(problem.learners * (1.0 / share - 1.0))
        return InfeasibleError(
            f"{problem.learners} learners cover no more than {share:.1%} of the shards "
            f"of all {problem.tasks} tasks by their deadlines: use about {more} more "
            f"learners like these, {later} or fewer shards"
        )
    return InfeasibleError(
        f"no way to give {problem.learners} learners one task each meets all "
        f"{problem.tasks} deadlines with at least {problem.least} shards each: use "
        f"{later} or more learners"
    )


def too_dear(problem: MultiTaskProblem, least_cost: float) -> InfeasibleError:
    """The error for a budget below the cost of the cheapest assignment."""
    return InfeasibleError(
        f"the budget of {problem.budget:.6g} is below {_up(least_cost)}, the cost of "
        "the cheapest assignment that meets all deadlines: raise it to that, or extend "
        "deadlines so that cheap learners can do more"
    )


def _covered(problem: MultiTaskProblem) -> float:
    """Largest share of every task that split learners could do by the deadlines.

    By the dual: the least Σⱼ maxᵢ λᵢ·u_ij with Σ λᵢ·Dᵢ = 1.
    """
    u = _caps(problem)
    m, n = u.shape
    pair, task, learner = np.arange(m * n), *np.divmod(np.arange(m * n), n)
    # Columns: λ, then of each learner the maximum.
    worth: Any = csr_array(
        (
            np.append(u.ravel(), -np.ones(m * n)),
            (np.append(pair, pair), np.append(task, m + learner)),
        )
    )
    total: Any = np.append(problem.shards, np.zeros(n))[None]
    answer: Any = linprog(
        np.append(np.zeros(m), np.ones(n)),
        A_ub=worth,
        b_ub=np.zeros(m * n),
        A_eq=total,
        b_eq=[1.0],
    )
    return float(answer.fun)


def _caps(problem: MultiTaskProblem) -> Floats:
    """u(T) of all tasks."""
    u = [problem.within(i, T) for i, T in enumerate(problem.deadline_s)]
    return np.stack(u).astype(np.float64)


def _quickest(problem: MultiTaskProblem, task: int) -> Ints:
    """Learners that may serve a task together, the quickest first."""
    first_s = problem.fixed_s[task] + problem.shard_s[task] * problem.least
    return np.argsort(first_s)[: int(problem.shards[task]) // problem.least]


def _up(value: float) -> str:
    """A number of six digits that is not below the value."""
    digits = float(f"{value:.6g}")
    return f"{digits if digits >= value else value * (1.0 + 5e-6):.6g}"
