"""The "CSA" of the DAB testbed: a rule of thumb that may overrun.

    dₖ ∝ cₖ + bₖ, whole, Σ dₖ = D      c = 1/C² samples trained, b = 1/C¹ received a s
    τₖ = max(1, round((T − C⁰ₖ − C¹ₖ dₖ) / (C²ₖ dₖ)))

All of D is handed out, at least one step is asked of everyone, and τ is rounded up as
often as down, so the deadline is passed whenever D is more than the learners can do:
what the figures that compare DAB with "CSA" show.

Paper: D. Mays et al., "Decentralized Data Allocation via Local Benchmarking", as its
published code does it.

Differences from the code:
1. Counts samples, or whatever the Problem counts; the code counts shards of 500.
2. Respects least and most, and the most of steps.
"""

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.apportion import nearest
from melisma.system.problem import Allocation, Problem


def csa_testbed(problem: Problem) -> Allocation:
    """Shares by training plus download rate, steps rounded; learners may be late.

    Raises ConfigError where samples take no time to arrive (federated mode): the rule
    has no meaning there. Raises InfeasibleError if no split exists.
    """
    problem.check_room()
    c2, c1, c0 = problem.step_s, problem.sample_s, problem.fixed_s
    T, D = problem.deadline_s, problem.samples
    if not c1.all():
        raise ConfigError(
            f"learner {np.argmin(c1)} receives samples in 0 s: shares by download rate "
            "need a time above 0, so parallel mode"
        )
    speed = 1.0 / c2 + 1.0 / c1
    d = nearest(D * speed / speed.sum(), problem.low, problem.high, D)
    tau = np.rint((T - c0 - c1 * d) / (c2 * d))
    tau = np.clip(tau, 1.0, problem.steps_at_most)
    return Allocation(samples=d, steps=tau.astype(np.int64))
