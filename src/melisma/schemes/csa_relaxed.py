"""The paper's numerical solution: real numbers, a general solver, then rounding.

    minimise    z = top − bottom
    subject to  bottom ≤ τₖ ≤ top,   τₖ ≥ 0                     (8b), (8e)
                C²ₖ τₖ dₖ + C¹ₖ dₖ + C⁰ₖ = T                     (8c)
                Σₖ dₖ = D,   least ≤ dₖ ≤ most                   (8d), (8f)

over real τ, d, top and bottom. A nonconvex program, given to SLSQP with exact
derivatives; d is then floored, what is missing goes to the largest remainders, and τ
is the most that fits with the d that came out. ``csa`` solves the whole-number problem
itself: exactly, and faster.

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", problem (8).

Differences from the paper:
1. Two bounds, top and bottom, for its K(K−1)/2 pairs |τₖ − τₗ| ≤ z: the same z.
2. SLSQP; the paper names interior-point methods and no solver.
3. A most of steps is no part of the program: τ is cut to it at the end.
"""

from typing import Any

import numpy as np

from melisma.errors import SolverError
from melisma.maths.apportion import level, nearest
from melisma.maths.arrays import Floats
from melisma.schemes.common import common_steps
from melisma.system.problem import Allocation, Problem

#: Iterations after which the solver gives up; it needs about ten.
ITERATIONS = 200


def csa_relaxed(problem: Problem) -> Allocation:
    """CSA as its paper solves it: relaxed, by a general solver, then rounded.

    Raises InfeasibleError if samples do not even arrive in time, and SolverError if
    the solver stops without a solution.
    """
    common_steps(problem, 0, problem.samples_within)
    low, high, D = problem.low, problem.high, problem.samples
    d = nearest(np.clip(_solve(problem), low, high), low, high, D)
    return Allocation(samples=d, steps=np.maximum(problem.steps_within(d), 0))


def _solve(problem: Problem) -> Floats:
    """Real d of the relaxed problem, over x = (top, bottom, τ, d·K/D)."""
    from scipy.optimize import minimize

    K, unit = problem.learners, problem.samples / problem.learners
    # Seconds as shares of T, samples as multiples of D/K: all near 1.
    c2, c1 = (c * unit / problem.deadline_s for c in (problem.step_s, problem.sample_s))
    room = 1.0 - problem.fixed_s / problem.deadline_s
    start = level(problem.low, problem.high, problem.samples) / unit
    tau = np.maximum((room / start - c1) / c2, 0.0)
    ones, zeros = np.ones((K, 1)), np.zeros((K, 1))
    eye, blank = np.eye(K), np.zeros((K, K))
    apart = np.block([[ones, zeros, -eye, blank], [zeros, -ones, eye, blank]])
    width: Floats = np.r_[1.0, -1.0, np.zeros(2 * K)]
    total = np.r_[np.zeros(2 + K), np.ones(K)]

    def z(x: Floats) -> float:
        return float(x[0] - x[1])

    def z_slope(x: Floats) -> Floats:
        return width

    def busy(x: Floats) -> Floats:
        tau, d = x[2:].reshape(2, K)
        return np.append((c2 * tau + c1) * d - room, d.sum() - K)

    def busy_slope(x: Floats) -> Floats:
        tau, d = x[2:].reshape(2, K)
        times = np.hstack([zeros, zeros, np.diag(c2 * d), np.diag(c2 * tau + c1)])
        return np.vstack([times, total])

    constraints: Any = [  # scipy's stubs know only scalar ones
        {"type": "ineq", "fun": lambda x: apart @ x, "jac": lambda x: apart},
        {"type": "eq", "fun": busy, "jac": busy_slope},
    ]
    d_bounds = zip(problem.low / unit, problem.high / unit, strict=True)
    answer = minimize(
        z,
        np.r_[tau.max(), tau.min(), tau, start],
        jac=z_slope,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 + K) + list(d_bounds),
        constraints=constraints,
        options={"maxiter": ITERATIONS, "ftol": 1e-9},
    )
    if not answer.success:
        raise SolverError(
            f"SLSQP stopped after {answer.nit} iterations on {K} learners: "
            f"{answer.message}. Use 'csa', which is exact"
        )
    d: Floats = answer.x[2 + K :] * unit
    return d
