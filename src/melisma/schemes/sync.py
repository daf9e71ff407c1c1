"""Synchronous allocation: the same number of steps for everyone, as many as fit.

    maximise    τ
    subject to  τ C²ₖ dₖ + C¹ₖ dₖ + C⁰ₖ ≤ T    for each learner k     (time)
                Σₖ dₖ = D,   least ≤ dₖ ≤ most,   dₖ ∈ ℕ               (work)

For a given τ, (time) alone says how much learner k can take, hₖ(τ), which falls as τ
grows. The answer is the last τ at which Σ hₖ(τ) covers D and no hₖ(τ) is under least.
Everyone takes the same share of the way from least to hₖ(τ).

Paper: U. Mohammad, S. Sorour, "Adaptive Task Allocation for Mobile Edge Learning",
arXiv:1811.03748; "HA-Sync" in the asynchronous paper's figures.

Differences from the paper:
1. Whole samples throughout; the paper relaxes dₖ to real numbers.
"""

import numpy as np

from melisma.maths.apportion import between
from melisma.schemes.common import common_steps
from melisma.system.problem import Allocation, Problem


def sync(problem: Problem) -> Allocation:
    """The same number of steps for everyone, as many as fit.

    Raises InfeasibleError if one step does not.
    """
    tau = common_steps(problem, 1, problem.samples_within)
    d = between(problem.low, problem.samples_within(tau), problem.samples)
    return Allocation(samples=d, steps=np.full(problem.learners, tau))
