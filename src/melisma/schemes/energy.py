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

E may be money or carbon as well. A problem that does not say what is spent counts each
learner's seconds.

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
from melisma.system.energy import Spending
from melisma.system.problem import Allocation, Problem


def energy_least(problem: Problem) -> Allocation:
    """The least energy with which all samples are trained by the deadline; exact.

    Who is not needed sits out. Raises InfeasibleError if time, batteries or the budget
    are not enough.
    """
    spending, most = _spending(problem), capacity(problem)
    _check_room(problem, most)
    found = _least(problem, spending, most)
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
    return _allocation(problem, found.tasks)


def energy_most(problem: Problem) -> Allocation:
    """As many samples as the budget pays for, by the deadline, up to all; exact.

    Raises InfeasibleError if not one learner can do its least.
    """
    spending, most = _spending(problem), capacity(problem)
    D, low = problem.samples, problem.low
    if int(most.sum()) >= D:
        try:
            found = _least(problem, spending, most)
        except InfeasibleError:  # the least of nobody together is D
            pass
        else:
            if found.objective <= spending.budget:
                return _allocation(problem, found.tasks)
    cost = spending.cost
    each, value = cost.each(problem.steps), np.ones(problem.learners)
    d = most_value(value, each, cost.fixed_j, low, most, spending.budget).tasks
    if not d.any():
        _check_room(problem, most, any_number=True)
        k = int(np.argmin(np.where(most > 0, cost.joules(low, problem.steps), np.inf)))
        needs = float(cost.joules(low, problem.steps)[k])
        raise InfeasibleError(
            f"the budget of {spending.budget:.6g} pays for nobody's least; learner {k} "
            f"comes nearest with {needs:.6g}: give that much, or fewer steps"
        )
    return _allocation(problem, _trimmed(d, each, low, D))


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


def _least(problem: Problem, spending: Spending, most: Ints) -> Certified:
    cost = spending.cost
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
