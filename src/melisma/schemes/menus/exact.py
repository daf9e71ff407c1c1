"""Whole numbers by HiGHS: a small window, and samples on rays that are chosen."""

import numpy as np

from melisma.errors import SolverError
from melisma.maths.arrays import Floats, Ints
from melisma.maths.rays import Rays
from melisma.schemes.menus.search import Found
from melisma.schemes.menus.windows import Plan, Windows

#: Classes of learners alike that samples are shared out over.
CLASSES = 256
#: What HiGHS answers when there is no solution.
INFEASIBLE = 2


def whole(windows: Windows, rays: Rays, a: int, rho: Floats) -> Found:
    """Solve a window with coverage: one ray each (x), and samples along it (d)."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack, kron

    blocks = windows.menu.blocks
    assert blocks is not None
    D, (R, K) = rays.total, rays.slope.shape
    taken = np.isfinite(rays.slope)
    n = R * K
    low = csr_array(np.diag(np.tile(rays.low, R)))
    high = csr_array(np.diag(rays.reach.ravel()))
    eye, none = eye_array(n), csr_array((K, n))
    one = kron(np.ones((1, R)), eye_array(K))
    shares = np.repeat(np.tile(blocks, (R // len(blocks), 1)), K, axis=0).T
    answer = milp(
        np.concatenate([np.zeros(n), -np.where(taken, rays.slope, 0.0).ravel()]),
        integrality=np.ones(2 * n, dtype=np.int64),
        bounds=Bounds(
            0, np.concatenate([taken.ravel().astype(float), rays.reach.ravel()])
        ),
        constraints=[
            LinearConstraint(hstack([one, none]), 1, 1),
            LinearConstraint(hstack([-low, eye]), lb=0),
            LinearConstraint(hstack([-high, eye]), ub=0),
            LinearConstraint(np.concatenate([np.zeros(n), np.ones(n)])[None], D, D),
            LinearConstraint(
                np.hstack([np.zeros((len(rho), n)), shares]), lb=rho * D - 1e-7
            ),
        ],
        options={"mip_rel_gap": 0.0},
    )
    if answer.status == INFEASIBLE:
        return Found(None, -np.inf)
    if not answer.success:
        raise SolverError(
            f"HiGHS stopped on a window of {K} learners: {answer.message}"
        )
    ray = answer.x[:n].reshape(R, K).argmax(axis=0)
    samples = np.rint(answer.x[n:].reshape(R, K).sum(axis=0)).astype(np.int64)
    plan = windows.plan(a, ray, samples)
    return Found(plan, max(plan.value, -float(answer.mip_dual_bound)))


def shared(windows: Windows, rays: Rays, a: int, ray: Ints, rho: Floats) -> Plan | None:
    """Share out samples on given rays; None if not all blocks can be covered.

    Over classes of learners with one option and slopes that are alike: few variables,
    however many learners. In a class the steepest are filled first.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    blocks = windows.menu.blocks
    assert blocks is not None
    slope, reach = rays.at(ray)
    option, _ = windows.of_ray(a, ray)
    name = _classes(option, slope)
    low, high = np.bincount(name, rays.low), np.bincount(name, reach)
    mean = np.bincount(name, slope) / np.bincount(name)
    kind = np.empty(mean.size, dtype=np.int64)
    kind[name] = option
    answer = milp(
        -mean,
        integrality=np.ones(mean.size, dtype=np.int64),
        bounds=Bounds(low, high),
        constraints=[
            LinearConstraint(np.ones((1, mean.size)), rays.total, rays.total),
            LinearConstraint(blocks[kind].T, lb=rho * rays.total - 1e-7),
        ],
        options={"mip_rel_gap": 1e-9, "time_limit": 5.0},
    )
    if answer.x is None:
        return None
    samples = np.zeros(ray.size, dtype=np.int64)
    for i, total in enumerate(np.rint(answer.x).astype(np.int64)):
        mine = np.flatnonzero(name == i)
        own = Rays(slope[None, mine], reach[None, mine], rays.low[mine], int(total))
        samples[mine] = own.filled(np.zeros(mine.size, dtype=np.int64))
    return windows.plan(a, ray, samples)


def _classes(option: Ints, slope: Floats) -> Ints:
    """Number learners so that those of one class have one option and like slopes."""
    pairs, name = np.unique(np.stack([option, slope]), axis=1, return_inverse=True)
    if pairs.shape[1] <= CLASSES:
        return name.ravel()
    rank = np.argsort(np.argsort(slope, kind="stable"))
    bins = max(1, CLASSES // (int(option.max()) + 1))
    both = option * bins + rank * bins // slope.size
    classes: Ints = np.unique(both, return_inverse=True)[1].ravel()
    return classes
