"""Who takes part: the subset with which all can do the most steps alike; exact.

    maximise    a        such that some S, |S| ≤ m, has  hₖ(a) ≥ least  for k ∈ S
                         and  Σ over S of hₖ(a) ≥ D                     (common steps)
    then        |S|
    then        |U|      U ⊆ S does a + 1 steps:  Σ over S∖U of hₖ(a)
                         + Σ over U of hₖ(a + 1) ≥ D

with hₖ(τ) the most samples of learner k with τ steps by the deadline, as in `csa`. A
learner that is in gives its hₖ(a) to the sum, so it is left out only if there may be m
at most, or if it cannot do its least with as many steps as the others: then it would
only hold them back.

a: the m largest hₖ(a) of who can do its least are the best S, and their sum falls with
a, so it is searched. U: choosing m learners, u of them to do a step more, is a
transportation problem, so a price λ on the step finds it: the m largest of
max(hₖ(a), hₖ(a + 1) + λ). Ties are broken by weights that are too small to matter
otherwise, so that every u has a price.

``least`` is the same for all learners. |U| is exact while 4·K² times the most samples
of a learner is below 2⁶⁰; beyond, ties may cost some of it.
"""

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Bools, Ints
from melisma.maths.search import last_true
from melisma.system.problem import STEPS_LIMIT, Problem


def chosen(problem: Problem, at_most: int | None = None) -> Bools:
    """Return who is to take part, at most so many; all, if none of them is a hindrance.

    Where D samples do not fit with one step of all, all: the scheme says why. Raises
    InfeasibleError where they do not fit into so few.
    """
    low, D = problem.low, problem.samples
    most = min(at_most or problem.learners, max(1, D // int(low.max())))

    def best(tau: int) -> Ints:
        """Samples of the best with so many steps, the largest first."""
        h = problem.samples_within(tau)
        return np.sort(np.where(h >= low, h, 0))[::-1][:most]

    a = last_true(lambda tau: bool(best(tau).sum() >= D), 1, STEPS_LIMIT, guess=1)
    if a < 1 and (at_most is None or at_most >= problem.learners):
        return np.ones(problem.learners, dtype=bool)
    if a < 1:
        raise InfeasibleError(
            f"{D} samples do not fit into {most} of {problem.learners} learners in "
            f"{problem.deadline_s:.6g} s, even for 1 step of each: {best(1).sum()} do; "
            "use fewer samples, a longer deadline or a larger 'learners_at_most'"
        )
    lower, upper = problem.samples_within(a), problem.samples_within(a + 1)
    able = lower >= low
    if able.sum() <= most:
        return able
    return _with_most_steps(
        np.where(able, lower, -1), np.where(upper >= low, upper, -1), most, D
    )


def _with_most_steps(lower: Ints, upper: Ints, most: int, total: int) -> Bools:
    """Choose ``most`` learners, as many as possible with a step more.

    ``lower`` and ``upper`` are samples with a and with a + 1 steps; −1: not possible.
    """
    K = len(lower)
    tie = np.arange(K)  # of weight 1/(4·K²), so that no sum of them is a sample
    scale = min(4 * K * K, 2**60 // (int(lower.max()) + 1))
    one = np.where(lower >= 0, lower * scale + tie, -(2**60))
    two = np.where(upper >= 0, upper * scale + 2 * K + tie, -(2**60))

    def taken(price: int) -> tuple[Bools, int]:
        """Who is in at a price, and how many of them have a step more."""
        score = np.maximum(one, two + price)
        rank = np.argsort(-score, kind="stable")[:most]
        within = np.zeros(K, dtype=bool)
        within[rank] = True
        return within, int((within & (two + price > one)).sum())

    def fits(price: int) -> bool:
        within, _ = taken(price)
        raised = within & (two + price > one)
        served = lower[within & ~raised].sum() + upper[raised].sum()
        return bool(served >= total)

    highest = int(one.max()) + 1
    price = last_true(fits, -highest, highest, guess=0)
    return taken(price)[0] if price >= -highest else taken(-highest)[0]
