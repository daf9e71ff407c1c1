"""The association as an integer program, on HiGHS: the reference.

    minimise    Σᵢ zᵢ
    subject to  A_ij·x_ij + B_ij·d_ij ≤ zᵢ                          (time)
                least·x_ij ≤ d_ij ≤ U_ij·x_ij                       (deadline, least)
                Σⱼ d_ij = Dᵢ                                        (coverage)
                Σ pⱼ·d_ij ≤ budget                                  (budget)
                Σᵢ x_ij = 1, or ≤ 1                                 (association)
                x binary, d whole

U_ij is what learner j can do by the deadline. In the relaxation a learner with x = ½ in
two tasks serves both at full speed, as z limits each d alone: the bound is 40 to 95 %
below the optimum, and branching closes it for ten learners at most.

Paper: Mays's thesis, (4.4). Differences from the paper: those of ``exact``.
"""

from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, diags_array, hstack, kron

from melisma.errors import SolverError
from melisma.maths.arrays import Floats
from melisma.schemes.multitask.cover import assigned
from melisma.schemes.multitask.infeasible import check, too_dear, why_not
from melisma.system.multitask import MultiTaskProblem, Solved


def ilp(problem: MultiTaskProblem, *, limit_s: float = 60.0) -> Solved:
    """Solve by branch and bound; the best found if the time is up.

    Raises SolverError where nothing is found in time.
    """
    check(problem)
    m, n = problem.tasks, problem.learners
    answer = _solved(
        problem,
        np.concatenate([np.ones(m), np.zeros(2 * m * n)]),
        integrality=np.concatenate([np.zeros(m), np.ones(2 * m * n)]),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    if answer.status == 2:
        raise _reason(problem)
    if answer.x is None:
        raise SolverError(
            f"HiGHS found no assignment of {n} learners to {m} tasks in {limit_s:g} s "
            f"({answer.message}): give it more time or use the method of prices"
        )
    shards = np.round(answer.x[m + m * n :]).astype(np.int64).reshape(m, n)
    return assigned(problem, shards, float(answer.mip_dual_bound))


def least_cost(problem: MultiTaskProblem) -> float:
    """No assignment that meets all deadlines costs less; inf where none exists.

    The relaxation, whatever the budget.
    """
    m, n = problem.tasks, problem.learners
    cost = np.concatenate([np.zeros(m + m * n), np.tile(problem.price, m)])
    answer = _solved(problem, cost, budget=np.inf)
    return np.inf if answer.x is None else float(answer.fun)


def _reason(problem: MultiTaskProblem) -> Exception:
    """Why there is none: the cost of the cheapest, if deadlines are not to blame."""
    m, n = problem.tasks, problem.learners
    cost = np.concatenate([np.zeros(m + m * n), np.tile(problem.price, m)])
    whole = np.concatenate([np.zeros(m), np.ones(2 * m * n)])
    answer = _solved(problem, cost, budget=np.inf, integrality=whole)
    if answer.status == 2:
        return why_not(problem)
    return too_dear(problem, float(answer.fun))


def _solved(
    problem: MultiTaskProblem,
    objective: Floats,
    *,
    budget: float | None = None,
    **options: Any,
) -> Any:
    """HiGHS's answer; columns are z, x and d."""
    m, n = problem.tasks, problem.learners
    U = np.stack([problem.within(i, T) for i, T in enumerate(problem.deadline_s)])
    A, B, cap = (_diagonal(a) for a in (problem.fixed_s, problem.shard_s, U))
    each: Any = _diagonal(np.ones(m * n))
    own: Any = kron(_diagonal(np.ones(m)), np.ones((n, 1)))  # pairs × tasks
    shared: Any = kron(np.ones((1, m)), _diagonal(np.ones(n)))  # learners × pairs
    price = np.tile(problem.price, m)[None]

    def rows(z: Any, x: Any, d: Any) -> Any:
        height = next(part.shape[0] for part in (z, x, d) if part is not None)
        widths = zip((z, x, d), (m, m * n, m * n), strict=True)
        blocks = [
            csr_array((height, w)) if part is None else part for part, w in widths
        ]
        return hstack(blocks, format="csr")

    fewest = 1.0 if problem.every else 0.0  # tasks of a learner
    constraints = [
        LinearConstraint(rows(-own, A, B), ub=0.0),
        LinearConstraint(rows(None, -cap, each), ub=0.0),
        LinearConstraint(rows(None, -problem.least * each, each), lb=0.0),
        LinearConstraint(rows(None, None, own.T), problem.shards, problem.shards),
        LinearConstraint(rows(None, shared, None), fewest, 1.0),
        LinearConstraint(
            rows(None, None, csr_array(price)),
            ub=problem.budget if budget is None else budget,
        ),
    ]
    most = np.concatenate([problem.deadline_s, np.ones(m * n), U.ravel()])
    return milp(objective, bounds=Bounds(0.0, most), constraints=constraints, **options)


def _diagonal(values: Any) -> Any:
    return diags_array(np.asarray(values, dtype=np.float64).ravel())
