"""The relaxed optimum in closed form, with the multipliers that prove it.

    minimise    z
    subject to  τₖ − τₗ ≤ z  (μ),   τₗ − τₖ ≤ z  (μ′)    for each pair k < l    (8b)
                C²ₖ τₖ dₖ + C¹ₖ dₖ + C⁰ₖ = T  (λ)                             (8c)
                Σₖ dₖ = D  (ω)                                               (8d)
                τₖ ≥ 0  (α),   least ≤ dₖ  (ν),   dₖ ≤ most  (ν′)       (8e), (8f)

over real z, τ and d. One τ for all solves it, but for learners that their bounds stop
before: dₖ(τ) = (T − C⁰ₖ) / (C¹ₖ + τ C²ₖ) within least and most. Σ dₖ(τ) falls with τ,
and bends only where a learner reaches a bound, so those places tell who is free at the
τ that is sought. With aₖ = (T − C⁰ₖ)/C²ₖ, bₖ = C¹ₖ/C²ₖ and D′ what the others leave,
that τ is the largest root of a polynomial over the free learners,

    D′ Πₖ (τ + bₖ) − Σₖ aₖ Πₗ≠ₖ (τ + bₗ) = 0,

the characteristic polynomial of v vᵀ − diag(b) with vₖ² = aₖ/D′: an eigenvalue, exact
to rounding where its coefficients are not. The multipliers follow from the gradient of
the Lagrangian, by which the corrected (11) and (12) read

    τₖ = −(λₖ C¹ₖ + ω − νₖ + ν′ₖ) / (λₖ C²ₖ),   dₖ = −(uₖ + u′ₖ − αₖ) / (λₖ C²ₖ).

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", Theorem 1 and appendices B and C.

Differences from the paper:
1. (11) and (20) have +νₖ, (12) and (21) +αₖ. The Lagrangian of (19) has −dₖ + least
   and −τₖ, so both are minus. (9) has +αₖτₖ, against its own (19).
2. Where one τ fits everyone, z = 0 and (11), (12) read 0/0: the uₖ + u′ₖ sum to 0, so
   by (12) the λₖ C²ₖ dₖ do, and by (11) all λₖ have the sign of −ω: all are 0. The
   theorem gives τ and d only of learners at either end of a staleness that is forced.
3. (26) to (29) count pairs wrongly: (27) starts at m = 1, the second sums end at k − 1,
   and pair (j, k) is number nⱼ + (k − j) − 1.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats
from melisma.schemes.common import common_steps
from melisma.system.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Multipliers:
    """What each constraint of (8) weighs; those of inequalities are at least 0."""

    time: Floats  #: λₖ
    total: float  #: ω: a sample more in all makes z larger by −ω
    nonnegative: Floats  #: αₖ
    least: Floats  #: νₖ
    most: Floats  #: ν′ₖ
    ahead: Floats  #: μ of τₖ − τₗ ≤ z, pairs as in (10)
    behind: Floats  #: μ′ of τₗ − τₖ ≤ z

    def pull(self) -> Floats:
        """Return uₖ + u′ₖ, (26) and (29): how hard z pulls at each learner's τ."""
        net = self.ahead - self.behind
        k, other = np.triu_indices(self.time.size, 1)
        u = np.zeros(self.time.size)
        np.add.at(u, k, net)
        np.subtract.at(u, other, net)
        return u


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelaxedOptimum:
    """A solution of the relaxed problem (8), and its certificate."""

    staleness: float  #: z
    steps: Floats  #: τₖ
    samples: Floats  #: dₖ
    multipliers: Multipliers


def relaxed_optimum(problem: Problem) -> RelaxedOptimum:
    """Solve (8) over real numbers, in closed form.

    Raises InfeasibleError if samples do not even arrive in time, ConfigError for a
    learner alone, which has nobody to be stale to.
    """
    if problem.learners < 2:
        raise ConfigError("staleness is between learners: give two or more")
    common_steps(problem, 0, problem.samples_within)
    c2, c1 = problem.step_s, problem.sample_s
    room_s = problem.deadline_s - problem.fixed_s
    # τ of each learner at its most and at its least samples.
    fewest = np.maximum((room_s / problem.high - c1) / c2, 0.0)
    highest = np.maximum((room_s / problem.low - c1) / c2, fewest)
    common, free = _common(problem, fewest, highest)
    tau = np.clip(common, fewest, highest)
    d = np.clip(room_s / (c1 + tau * c2), problem.low, problem.high)
    return RelaxedOptimum(
        staleness=float(np.ptp(tau)),
        steps=tau,
        samples=d,
        multipliers=_multipliers(problem, tau, d, common, free),
    )


def theorem_1(problem: Problem, m: Multipliers) -> tuple[Floats, Floats]:
    """Return τ and d by (11) and (12), corrected; NaN where λₖ = 0 and they are 0/0."""
    slope = np.where(m.time == 0, np.nan, m.time) * problem.step_s
    tau = -(m.time * problem.sample_s + m.total - m.least + m.most) / slope
    d = -(m.pull() - m.nonnegative) / slope
    return tau, d


def largest_root(a: Floats, b: Floats, total: float) -> float:
    """Return the largest τ with Σ aₖ/(τ + bₖ) = total, as an eigenvalue.

    >>> round(largest_root(np.array([6.0, 5.0]), np.array([1.0, 3.0]), 3.0), 12)
    2.0
    """
    v = np.sqrt(a / total)
    return float(np.linalg.eigvalsh(np.outer(v, v) - np.diag(b))[-1])


def _common(problem: Problem, fewest: Floats, highest: Floats) -> tuple[float, Bools]:
    """Return the τ of learners that no bound stops, and who they are."""
    c2, c1 = problem.step_s, problem.sample_s
    room_s, D = problem.deadline_s - problem.fixed_s, problem.samples
    bends = np.sort(np.r_[fewest, highest])

    def samples(tau: float) -> Floats:
        within = np.clip(tau, fewest, highest)
        d: Floats = np.clip(room_s / (c1 + within * c2), problem.low, problem.high)
        return d

    def excess(place: int) -> float:
        return float(samples(bends[place]).sum()) - D

    # The first bend with no more than D samples ends the piece that holds τ.
    end = bisect_left(range(bends.size - 1), 0.0, lo=1, key=lambda i: -excess(i))
    start_tau, end_tau = bends[end - 1], bends[end]
    free = (fewest <= start_tau) & (highest >= end_tau)
    rest = D - float(samples(end_tau)[~free].sum())
    tau = largest_root(room_s[free] / c2[free], c1[free] / c2[free], rest)
    return min(max(tau, float(start_tau)), float(end_tau)), free


def _multipliers(
    problem: Problem, tau: Floats, d: Floats, common: float, free: Bools
) -> Multipliers:
    """Return multipliers that make the gradient of the Lagrangian 0."""
    K, c2 = problem.learners, problem.step_s
    sample_s = c2 * tau + problem.sample_s
    first, last = int(np.argmax(tau)), int(np.argmin(tau))
    is_first, is_last = np.arange(K) == first, np.arange(K) == last
    ends_free = free * (c2 * d / sample_s)  # −d(dₖ)/dτ, by which z is shared out
    omega, weight = 0.0, np.zeros((K, K))  # of τ in the row ahead of τ in the column
    if tau[first] == tau[last]:  # one τ for all: pulls in balance
        weight = (1.0 - np.eye(K)) / (K * (K - 1))
    elif common <= tau[last]:  # bounds of those ahead: all free learners are last
        omega = -1.0 / ends_free.sum()
        weight[first] = ends_free / ends_free.sum()
    elif common >= tau[first]:  # bounds of those behind: all free learners are first
        omega = 1.0 / ends_free.sum()
        weight[:, last] = ends_free / ends_free.sum()
    else:  # bounds on both sides: the free ones, in between, have no weight
        weight = np.outer(is_first, is_last).astype(np.float64)
    pull = (weight - weight.T).sum(axis=1)
    lam = -pull / (c2 * d)
    slack = lam * sample_s + omega  # νₖ − ν′ₖ; of free learners 0 but for rounding
    slack[free] = 0.0
    k, other = np.triu_indices(K, 1)
    return Multipliers(
        time=lam,
        total=omega,
        nonnegative=np.zeros(K),
        least=np.maximum(slack, 0.0),
        most=np.maximum(-slack, 0.0),
        ahead=weight[k, other],
        behind=weight[other, k],
    )
