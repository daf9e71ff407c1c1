"""Many learners: a good assignment, and a proof of how good it is.

    minimise Σᵢ zᵢ under the constraints of ``exact``

Prices decide, as in a market: rent πⱼ for a learner, λᵢ for a shard of a task, β for
the budget. A fluid of learners finds them (``fluid``), its rounded division is improved
by pairs of tasks that share their learners anew (``share``), and the rents, a little
improved, prove a lower bound for all assignments (``dual``).

Paper: Mays's thesis, (4.4); the method is ours.

Differences from the paper: those of ``exact``.
"""

import numpy as np

from melisma.errors import SolverError
from melisma.maths.arrays import Floats, Ints
from melisma.schemes.multitask.cover import assigned, cheapest, costs, fastest, needed
from melisma.schemes.multitask.dual import bound_s, rents
from melisma.schemes.multitask.fluid import Fluid, fluid, rounded
from melisma.schemes.multitask.ilp import least_cost
from melisma.schemes.multitask.infeasible import check, too_dear, why_not
from melisma.schemes.multitask.share import Sharing
from melisma.system.multitask import Assignment, MultiTaskProblem, Solved

HARDER = (1.0, 1.5, 3.0, 10.0)  #: times the price at which a fluid keeps to the budget
NEARLY = 1.02  #: a fluid that exceeds the budget by less may be rounded into it
FAR = 0.05  #: a gap that is worth another bound
TIMES = 128  #: of a task, among which the budget chooses


def prices(problem: MultiTaskProblem, *, seed: int = 0) -> Solved:
    """Solve nearly, with a proven bound; the same seed gives the same answer.

    Raises InfeasibleError where that is proven, SolverError where none is found.
    """
    check(problem)
    beta, flow = 0.0, fluid(problem, 0.0)
    shards = None
    if flow.cost <= NEARLY * problem.budget:
        shards = _rounded(problem, flow, beta, seed)
    if shards is None and problem.budget < np.inf:
        beta, flow = _at_budget(problem)
        for factor in HARDER:
            # Where rounding has spoilt it, a higher price leaves more room.
            stricter = flow if factor == 1.0 else fluid(problem, factor * beta)
            shards = _rounded(problem, stricter, factor * beta, seed)
            if shards is not None:
                break
    if shards is None:
        raise _none_found(problem)
    return assigned(problem, shards, _bound_s(problem, shards, flow, beta))


def _bound_s(
    problem: MultiTaskProblem, shards: Ints, flow: Fluid, beta: float
) -> float:
    """The bound by improved rents; by plainer ones too, where it is far away."""
    goal_s = problem.objective_s(Assignment(shards))
    rent = rents(problem, flow.rent, beta, flow.z, goal_s)
    bound = bound_s(problem, rent, beta)
    if bound < (1.0 - FAR) * goal_s:
        none = np.zeros_like(rent)
        plainer = [(flow.rent, beta), (none, beta), (none, 0.0)]
        bound = max(bound, *(bound_s(problem, *prices) for prices in plainer))
    return bound


def _rounded(
    problem: MultiTaskProblem, flow: Fluid, beta: float, seed: int
) -> Ints | None:
    """An assignment from a fluid; None if it misses a deadline or the budget."""
    sharing = Sharing(problem, beta, rounded(problem, flow))
    sharing.improve(np.random.default_rng(seed))
    sets, z = sharing.sets, sharing.z
    if (z > problem.deadline_s).any():
        return None
    if beta > 0:
        times = _affordable(problem, sets)
        if times is None:
            return None
        z = times
    if not problem.every:
        sets = [needed(problem, i, z[i], S) for i, S in enumerate(sets)]
    shards = cheapest(problem, sets, z)
    return None if problem.cost(Assignment(shards)) > problem.most else shards


def _at_budget(problem: MultiTaskProblem) -> tuple[float, Fluid]:
    """The least price at which a fluid keeps to the budget."""
    low, high = 0.0, 1.0 / float(problem.price.mean())
    while (flow := fluid(problem, high)).cost > problem.budget:
        low, high = high, 4.0 * high
        if high > 1e9:
            raise _none_found(problem)
    for _ in range(12):
        beta = (low * high) ** 0.5 if low > 0 else high / 8.0
        trial = fluid(problem, beta)
        if trial.cost > problem.budget:
            low = beta
        else:
            high, flow = beta, trial
    return high, flow


def _affordable(problem: MultiTaskProblem, sets: list[Ints]) -> Floats | None:
    """Times of least sum that the budget pays for on given sets; None if none are.

    By a price on cost, found by bisection; then tasks use up what is left, one after
    the other. The choice is made again among times closer to the last.
    """
    low = np.array([fastest(problem, i, S) for i, S in enumerate(sets)])
    high = np.maximum(problem.deadline_s, low)
    tasks = np.arange(problem.tasks)
    for _ in range(3):
        z = np.geomspace(low, high, TIMES, axis=1)
        cost = np.stack([costs(problem, i, z[i], S) for i, S in enumerate(sets)])
        at = np.full(problem.tasks, TIMES - 1)
        if cost[tasks, at].sum() > problem.budget:
            return None
        dear, cheap = 1e9, 1e-9
        for _ in range(50):
            beta = (dear * cheap) ** 0.5
            trial = np.argmin(z + beta * cost, axis=1)
            if cost[tasks, trial].sum() > problem.budget:
                cheap = beta
            else:
                dear, at = beta, trial
        for i in tasks:
            spare = problem.budget - cost[tasks, at].sum()
            at[i] = np.argmax(cost[i] <= cost[i, at[i]] + spare)
        low = z[tasks, np.maximum(at - 2, 0)]
        high = z[tasks, at]
    return np.asarray(high)


def _none_found(problem: MultiTaskProblem) -> Exception:
    """Infeasible where a linear program proves it; else no more than not found."""
    least = least_cost(problem)
    if least == np.inf:
        return why_not(problem)
    if least > problem.most:
        return too_dear(problem, least)
    return SolverError(
        f"no assignment of {problem.learners} learners to {problem.tasks} tasks found "
        f"that meets all deadlines and the budget of {problem.budget:.6g} (none costs "
        f"less than {least:.6g}): raise the budget, extend deadlines, or try 'ilp'"
    )
