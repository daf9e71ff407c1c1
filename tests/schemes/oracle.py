"""The best allocation by trying all of them; shares no code with the schemes."""

from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Ints
from melisma.schemes import Scheme
from melisma.system import Problem

#: Width of the window (or the one that is good enough), −min τ, −Σ τ, Σ |τₖ − τₗ|.
Merit = tuple[int, int, int, int]


@cache
def splits(total: int, parts: int) -> Ints:
    """All ways to write ``total`` as an ordered sum of positive parts."""
    cuts = combinations(range(1, total), parts - 1)
    return np.array([np.diff([0, *cut, total]) for cut in cuts])


def steps(problem: Problem) -> Ints:
    """Most steps of each learner with 0, 1, …, D samples, in exact fractions."""
    T = Fraction(problem.deadline_s)
    table = [[0] * (problem.samples + 1) for _ in range(problem.learners)]
    for k, row in enumerate(table):
        c2, c1, c0 = (
            Fraction(float(c[k]))
            for c in (problem.step_s, problem.sample_s, problem.fixed_s)
        )
        for d in range(1, problem.samples + 1):
            row[d] = min((T - c0 - c1 * d) // (c2 * d), problem.steps_at_most)
    return np.array(table)


def best(problem: Problem, *, enough: int, least_steps: int) -> Merit | None:
    """Merit of the best allocation; None if there is none."""
    d = splits(problem.samples, problem.learners)
    d = d[((d >= problem.low) & (d <= problem.high)).all(axis=1)]
    tau = steps(problem)[np.arange(problem.learners), d]
    tau = tau[tau.min(axis=1, initial=least_steps) >= least_steps]
    return min(
        map(lambda row: merit(row, enough), np.unique(tau, axis=0)), default=None
    )


def merit(tau: Ints, enough: int) -> Merit:
    pairs = sum(abs(int(s) - int(t)) for s, t in combinations(tau, 2))
    return max(enough, int(np.ptp(tau))), -int(tau.min()), -int(tau.sum()), pairs


def reached(scheme: Scheme, problem: Problem, enough: int) -> Merit | None:
    """Merit of what a scheme returns, after a check of it; None if it finds nothing."""
    try:
        allocation = scheme(problem)
    except InfeasibleError:
        return None
    d, tau = allocation.samples, allocation.steps
    assert d.sum() == problem.samples
    assert (problem.low <= d).all()
    assert (d <= problem.high).all()
    assert (steps(problem)[np.arange(d.size), d] == tau).all()
    return merit(tau, enough)
