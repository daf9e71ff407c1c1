"""Synchronous allocation: the same number of steps for everyone, as many as fit.

    maximise    τ
    subject to  τ C²ₖ dₖ + C¹ₖ dₖ + C⁰ₖ ≤ T    for each learner k     (time)
                Σₖ dₖ = D,   least ≤ dₖ ≤ most,   dₖ ∈ ℕ               (work)

For a given τ, (time) alone says how much learner k can take, hₖ(τ), which falls as τ
grows. The answer is the last τ at which Σ hₖ(τ) covers D and no hₖ(τ) is under least.
Everyone takes the same share of the way from least to hₖ(τ). Where more steps are not
allowed, hₖ(τ) is by the earliest deadline that will do: all are done as soon as can be.

Paper: U. Mohammad, S. Sorour, "Adaptive Task Allocation for Mobile Edge Learning",
arXiv:1811.03748; "HA-Sync" in the asynchronous paper's figures.

Differences from the paper:
1. Whole samples throughout; the paper relaxes dₖ to real numbers.
"""

import numpy as np

from melisma.maths.apportion import between
from melisma.schemes.common import common_steps, soonest
from melisma.system.problem import Allocation, Problem


def sync(problem: Problem) -> Allocation:
    """The same number of steps for everyone, as many as fit.

    Raises InfeasibleError if one step does not.
    """
    tau = common_steps(problem, 1, problem.samples_within)
    is_capped = tau == problem.steps_at_most
    most = soonest(problem, tau) if is_capped else problem.samples_within(tau)
    d = between(problem.low, most, problem.samples)
    return Allocation(samples=d, steps=np.full(problem.learners, tau))
