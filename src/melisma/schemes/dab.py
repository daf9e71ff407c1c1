"""Decentralized allocation: each learner takes what it can train by the deadline.

    maximise    aₖ ∈ ℕ,  for each learner alone
    subject to  (2Ω_m + Ω_d aₖ)/bₖ + μ aₖ/cₖ < D                       (time, strict)

Nobody needs to know anybody else, so a learner can decide for itself from what it has
measured. The total is whatever comes out: shards are handed out twice if need be, or
some not at all.

Paper: D. Mays, S. Elsayed, H. Hassanein, "Decentralized Data Allocation via Local
Benchmarking", Eq. 5.

``dab`` is the paper's rule. ``dab_adaptive`` is ours for devices whose deadline counts:
every time is taken to be 20 % longer than benchmarked, until a learner's own cycles say
otherwise (`system.drift`), and 3 % of the deadline, 50 ms at least, are left free.

Differences from the paper:
1. c in shards a second, as its use demands; the text says samples.
2. A time that equals the deadline but for rounding, one part in 10¹², is not before
   it: then x shards of an exact bound x are one too many, whatever the units.
"""

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Ints
from melisma.system.drift import Drift
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation, Problem

#: More shards than anybody takes: keeps counts inside exact floats.
SHARDS_LIMIT = 2**52
#: Left free before the deadline for what no benchmark sees: a share of it, or seconds.
MARGIN, MARGIN_S = 0.03, 0.05


def shards(
    *,
    deadline_s: float,
    shards_per_s: ArrayLike,
    bytes_per_s: ArrayLike,
    shard_bytes: float,
    model_bytes: float,
    passes: int,
) -> Ints:
    """Shards that each learner can fetch, train ``passes`` times and report in time.

    0: it sits out. ``shards_per_s`` counts one pass.

    >>> shards(deadline_s=15.0, shards_per_s=1.0, bytes_per_s=1.0, shard_bytes=1.0,
    ...     model_bytes=0.5, passes=1)  # 1 + 2a < 15: a < 7
    array([6])
    """
    law = DelayLaw.from_rates(
        samples_per_s=shards_per_s,
        bytes_per_s=bytes_per_s,
        sample_bytes=shard_bytes,
        model_bytes=model_bytes,
    )
    return most_before(law, deadline_s, passes)


def dab(problem: Problem, *, steps: int = 5) -> Allocation:
    """Each learner alone takes as many samples as it can train before the deadline.

    At most its most; one that cannot do its least sits out. The total is not D.
    Raises InfeasibleError if all sit out.
    """
    steps = min(steps, problem.steps_at_most)
    return _taken(problem, most_before(problem, problem.deadline_s, steps), steps)


def dab_adaptive(problem: Problem, *, steps: int = 5) -> Allocation:
    """As dab, with a margin: times 20 % longer, done 3 % before the deadline.

    Learners in a run replace the 20 % by what their own cycles teach them. Raises
    InfeasibleError if all sit out.
    """
    careful, steps = Drift().careful, min(steps, problem.steps_at_most)
    law = DelayLaw(
        step_s=careful * problem.step_s,
        sample_s=careful * problem.sample_s,
        fixed_s=careful * problem.fixed_s,
    )
    return _taken(problem, most_before(law, safely(problem.deadline_s), steps), steps)


def safely(deadline_s: float) -> float:
    """Return when to be done so that the deadline is met."""
    return max(deadline_s / 2, deadline_s - max(MARGIN * deadline_s, MARGIN_S))


def _taken(problem: Problem, most: Ints, steps: int) -> Allocation:
    """Return what learners take that finish so much in time."""
    d = np.minimum(most, problem.high)
    d = np.where(d >= problem.low, d, 0)
    if not d.any():
        least_s = problem.seconds(problem.low, steps)
        k = int(np.argmin(least_s))
        raise InfeasibleError(
            f"nobody finishes {steps} steps over its least samples before "
            f"{problem.deadline_s:.6g} s; learner {k} comes nearest with "
            f"{least_s[k]:.6g} s: extend the deadline beyond that, or lower 'least'"
        )
    return Allocation(samples=d, steps=np.where(d > 0, steps, 0))


def most_before(law: DelayLaw, deadline_s: float, steps: int) -> Ints:
    """Most samples of each learner that take it less than the deadline."""
    if not (np.isfinite(deadline_s) and deadline_s > 0 and steps >= 1):
        raise ConfigError(
            f"deadline of {deadline_s} s for {steps} passes: give a finite time above "
            "0 s and at least 1 pass"
        )
    end_s = deadline_s * (1.0 - 1e-12)
    bound = (end_s - law.fixed_s) / (law.step_s * steps + law.sample_s)
    d: Ints = np.clip(np.ceil(bound) - 1.0, 0, SHARDS_LIMIT).astype(np.int64)
    # The floor may be one off: what counts is the time that is predicted.
    d -= (d > 0) & (law.seconds(d, steps) >= end_s)
    d += (d < SHARDS_LIMIT) & (law.seconds(d + 1, steps) < end_s)
    return d
