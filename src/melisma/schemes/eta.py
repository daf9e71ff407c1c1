"""Equal task allocation: the same samples for everyone, as many steps as fit.

    dₖ = D / K in whole numbers,   τₖ = the most steps that fit in T

Learners differ in speed, so they end far apart in steps; the baseline that does not
know them ("HU", heterogeneity unaware).

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", section V.

Differences from the paper:
1. Where least or most are in the way of D / K, the split is as equal as they allow.
"""

import numpy as np

from melisma.maths.apportion import level
from melisma.system.problem import Allocation, Problem


def eta(problem: Problem) -> Allocation:
    """Equal samples for everyone, as many steps as fit each.

    A learner that cannot finish one step gets 0; one that cannot even receive its
    samples by the deadline gets 0 too, and is late. Raises InfeasibleError only if no
    split exists.
    """
    problem.check_room()
    d = level(problem.low, problem.high, problem.samples)
    return Allocation(samples=d, steps=np.maximum(problem.steps_within(d), 0))
