"""Least energy by the deadline, or most samples within an energy; exact.

    energy-least   minimise  Σₖ Eₖ     subject to  Σₖ dₖ = D           (all work)
    energy-most    maximise  Σₖ dₖ ≤ D subject to  Σₖ Eₖ ≤ B           (budget)

    Eₖ = e²ₖ·τ·dₖ + e¹ₖ·dₖ + e⁰ₖ·[dₖ > 0]
    C²ₖ·τ·dₖ + C¹ₖ·dₖ + C⁰ₖ ≤ T,   Eₖ ≤ batteryₖ                       (time, battery)
    dₖ = 0  or  least ≤ dₖ ≤ most,   dₖ ∈ ℕ

with τ given. Time and battery each say how many samples learner k can take at most, so
both are gone when these are counted. What is left is to share out D samples that cost
e²τ + e¹ each: the cheapest learner takes as many as it can, then the next. Where taking
part costs e⁰ that is not enough, and a price with branch and bound decides who does
(`maths/charges.py`), proven but for what its bound says. Of equal Σ d, ``energy-most``
needs the least energy where all D fit into the budget.

E may be money or carbon as well, and several of them may be limited at once: then
prices for each, and a bound (`maths/limits.py`). A problem that does not say what is
spent counts each learner's seconds.

A spot instance is reclaimed with hazard h per second, and what it was at is lost: of t
seconds of work exp(−h·t) is expected to arrive, and p·t costs p·(exp(h·t) − 1)/h until
it does, if what is lost is ordered again and paid until it is lost. So

    energy-least   counts  φₖ·Eₖ  for  Eₖ        φₖ = (exp(hₖ·tₖ) − 1) / (hₖ·tₖ)
    energy-most    counts  vₖ·dₖ  for  dₖ        vₖ = exp(−hₖ·tₖ)

with tₖ of all that learner k can do. Both are exact for who does that, which is almost
everybody: others are worth more than is counted, by exp(h·t) at most. Budgets are kept
by E, which is what is spent if nobody is reclaimed.

Papers: A. L. Nunes et al., "Optimal Time and Energy-Aware Client Selection Algorithms
for Federated Learning on Heterogeneous Resources", Euro-Par 2024 (ECMTC); L. L. Pilla,
"Scheduling Algorithms for Federated Learning with Minimal Energy Consumption", TPDS
2023.

Differences from the papers:
1. Costs are linear with a charge, not a table: solved by sorting, not dynamic programs.
2. Of equal energy, not the earliest end but any.
"""

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.maths.charges import Certified, least_cost, most_value
from melisma.maths.limits import Limits, least_within
from melisma.system.energy import EnergyLaw, Spending
from melisma.system.problem import Allocation, Problem


def energy_least(problem: Problem) -> Allocation:
    """The least energy with which all samples are trained by the deadline; exact.

    Who is not needed sits out. Raises InfeasibleError if time, batteries or the budget
    are not enough.
    """
    spending, most = _spending(problem), capacity(problem)
    _check_room(problem, most)
    found = _least(problem, spending.cost, most)
    if found.bound > spending.budget:
        raise InfeasibleError(
            f"{problem.samples} samples with {problem.steps} steps by the deadline of "
            f"{problem.deadline_s:.6g} s need {found.bound:.6g} at least, and the "
            f"budget is {spending.budget:.6g}: give that much, fewer samples or steps, "
            "a longer deadline, or use 'energy-most'"
        )
    if found.objective > spending.budget:
        raise InfeasibleError(
            f"no way is known to train {problem.samples} samples for "
            f"{spending.budget:.6g}: {found.objective:.6g} would do, and "
            f"{found.bound:.6g} is not ruled out; use 'energy-most'"
        )
    if np.any(spending.hazard) or spending.others:
        return _allocation(problem, _least_of_several(problem, spending, most))
    return _allocation(problem, found.tasks)


def energy_most(problem: Problem) -> Allocation:
    """As many samples as the budget pays for, by the deadline, up to all; exact.

    Raises InfeasibleError if not one learner can do its least.
    """
    spending, most = _spending(problem), capacity(problem)
    D, low = problem.samples, problem.low
    is_safe = not np.any(spending.hazard)
    if is_safe and int(most.sum()) >= D:
        try:
            return energy_least(problem)
        except InfeasibleError:  # nor do the budgets pay for all, or nobody's least
            pass
    cost = spending.cost
    each, value = cost.each(problem.steps), np.ones(problem.learners)
    if is_safe and not spending.others:
        d = most_value(value, each, cost.fixed_j, low, most, spending.budget).tasks
    else:
        d = _most_of_several(problem, spending, most)
    if not d.any():
        _check_room(problem, most, any_number=True)
        raise InfeasibleError(_too_little(problem, spending, most))
    return _allocation(problem, _trimmed(d, each, low, D))


def _least_of_several(problem: Problem, spending: Spending, most: Ints) -> Ints:
    """Return what is expected to cost least within all budgets."""
    x = spending.hazard * problem.seconds(most, problem.steps)
    phi = np.where(x > 0, np.expm1(x) / np.where(x > 0, x, 1.0), 1.0)
    each, fixed = spending.cost.each(problem.steps), spending.cost.fixed_j
    priced = each * phi, fixed * phi, problem.low, most
    limits = _limits(problem, spending)
    found: Certified | None = least_cost(*priced, problem.samples)
    if found is not None and not limits.allow(found.tasks):
        found = least_within(*priced, limits, problem.samples)
    if found is None:
        raise InfeasibleError(
            f"no way is known to train {problem.samples} samples with {problem.steps} "
            f"steps within all of {_told(spending)}: give more, fewer samples or "
            "steps, or use 'energy-most'"
        )
    return found.tasks


def _most_of_several(problem: Problem, spending: Spending, most: Ints) -> Ints:
    """Return what most samples are expected to come of within all budgets, up to D."""
    each_s = problem.step_s * problem.steps + problem.sample_s
    with np.errstate(divide="ignore"):  # d·exp(−h·t) falls where d is above this
        top = np.floor(1.0 / (spending.hazard * each_s))
    most = np.where(most > 0, np.maximum(np.minimum(most, top), problem.low), 0)
    most = most.astype(np.int64)
    value = np.exp(-spending.hazard * problem.seconds(most, problem.steps))
    limits = _limits(problem, spending, at_most=problem.samples)
    low, (rows,) = problem.low, np.isfinite(limits.most).nonzero()
    if len(rows) == 1:
        use, charge, budget = limits.use[-1], limits.charge[-1], limits.most[-1]
        return most_value(value, use, charge, low, most, float(budget)).tasks
    found = least_within(-value, np.zeros(len(value)), low, most, limits)
    if found is None:  # though nothing at all would be within them
        raise InfeasibleError(
            f"no way is known to share {_told(spending)} out among "
            f"{problem.learners} learners: give one limit, or fewer learners"
        )
    return found.tasks


def _told(spending: Spending) -> str:
    return ", ".join(f"{b.most:.6g}" for b in spending.budgets)


def _limits(problem: Problem, spending: Spending, at_most: float = np.inf) -> Limits:
    """Return the budgets, and how many samples are given out at most."""
    K, budgets = problem.learners, spending.budgets
    return Limits(
        np.stack([*(b.law.each(problem.steps) for b in budgets), np.ones(K)]),
        np.stack([*(b.law.fixed_j for b in budgets), np.zeros(K)]),
        np.array([*(b.most for b in budgets), at_most]),
    )


def _too_little(problem: Problem, spending: Spending, most: Ints) -> str:
    """Say why nobody can do its least, and how much would do."""
    for budget in spending.budgets:
        needs = budget.law.joules(problem.low, problem.steps)
        k = int(np.argmin(np.where(most > 0, needs, np.inf)))
        if needs[k] > budget.most:
            return (
                f"the budget of {budget.most:.6g} pays for nobody's least; learner {k} "
                f"comes nearest with {needs[k]:.6g}: give that much, or fewer steps"
            )
    return "the budgets together pay for nobody's least: give more, or fewer steps"


def capacity(problem: Problem) -> Ints:
    """Return what each learner can train on by the deadline and its battery.

    0 where that is less than its least.
    """
    h = problem.samples_within(problem.steps)
    if problem.spending is not None:
        h = problem.spending.samples_within(problem.steps, h)
    return np.where(h >= problem.low, h, 0)


def _spending(problem: Problem) -> Spending:
    return problem.spending or Spending.of_time(problem)


def _least(problem: Problem, cost: EnergyLaw, most: Ints) -> Certified:
    each = cost.each(problem.steps)
    return least_cost(each, cost.fixed_j, problem.low, most, problem.samples)


def _allocation(problem: Problem, samples: Ints) -> Allocation:
    return Allocation(samples=samples, steps=np.where(samples > 0, problem.steps, 0))


def _trimmed(samples: Ints, each: Floats, low: Ints, total: int) -> Ints:
    """Return no more than so many: the dearest learners do less, down to nothing."""
    d = samples.copy()
    for k in np.argsort(-each, kind="stable"):
        if (over := int(d.sum()) - total) <= 0:
            break
        d[k] = d[k] - over if d[k] - over >= low[k] else 0
    return d


def _check_room(problem: Problem, most: Ints, *, any_number: bool = False) -> None:
    """Raise InfeasibleError if time and batteries do not allow so many samples."""
    D, T, tau = problem.samples, problem.deadline_s, problem.steps
    if int(most.sum()) >= (1 if any_number else D):
        return
    in_time = problem.samples_within(tau)
    in_time = np.where(in_time >= problem.low, in_time, 0)
    fastest_s = float(problem.seconds(problem.low, tau).min())
    battery = "" if in_time.sum() == most.sum() else " and batteries"
    raise InfeasibleError(
        f"{D} samples with {tau} steps do not fit in {T:.6g} s{battery}: {most.sum()} "
        f"do (the fastest learner needs {fastest_s:.6g} s for its least); use fewer "
        "samples or steps, more learners, or a longer deadline"
    )
