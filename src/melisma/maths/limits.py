"""Whole tasks to workers within several limits at once, with a bound.

    minimise    Σ pₖ·xₖ + qₖ·[xₖ > 0]
    subject to  Σ rₗₖ·xₖ + sₗₖ·[xₖ > 0] ≤ Bₗ   for each limit l
                Σ xₖ = n                        where a number is given
                xₖ = 0  or  leastₖ ≤ xₖ ≤ mostₖ,   xₖ ∈ ℕ

A price λₗ on what is limited bounds the optimum: at prices each worker decides alone,
and works as much as it may or not at all, so that

    bound(λ) = Σ min(0, fₖ + Σ λₗ·uₗₖ) − Σ λₗ·Bₗ       f, u: of all that a worker may do

is concave, and its highest point is found by cutting planes: each is a straight line
above it, and a small linear program says where all of them are highest. Few workers are
left to branch and bound (HiGHS), which is exact. Of many, those are for whom the prices
hardly decide; the others do as the prices say.

With one limit, `maths.charges` is faster, and exact for many.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from melisma.maths.arrays import Floats, Ints
from melisma.maths.charges import ROUNDING, Certified

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

#: Workers that branch and bound decides on, and nodes after which it ends.
FEW, NODES = 30, 300
#: Workers at most, where those few have no answer.
MANY = 16 * FEW
#: Of many, the share of the whole by which its answer may be worse than its best.
TOLERANCE = 1e-6
#: Cutting planes at most.
CUTS = 200
#: Shares by which limits are lowered where HiGHS, by its tolerance, is above one.
LOWER = (0.0, 2e-6, 2e-5)


class _Tasks(NamedTuple):
    """What tasks cost, and how many of them each worker may do."""

    cost: Floats
    charge: Floats
    least: Ints
    most: Ints

    def only(self, workers: Ints) -> "_Tasks":
        cost, charge, least, most = self
        return _Tasks(cost[workers], charge[workers], least[workers], most[workers])

    def total(self, tasks: Ints) -> float:
        return float(self.cost @ tasks + self.charge @ (tasks > 0))


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What workers may use together: limits × workers, and one number for each."""

    use: Floats  #: of a task
    charge: Floats  #: of a worker that does any
    most: Floats

    def used(self, tasks: Ints) -> Floats:
        """Return how much of each limit is used."""
        return np.asarray(self.use @ tasks + self.charge @ (tasks > 0))

    def left(self, workers: Ints, tasks: Ints) -> "Limits":
        """Return what is left for some workers, once others do these tasks."""
        left = self.most - self.used(tasks)
        return Limits(self.use[:, workers], self.charge[:, workers], left)

    def allow(self, tasks: Ints) -> bool:
        """Return whether no limit is exceeded."""
        return bool((self.used(tasks) <= self.most).all())


def least_within(
    cost: Floats,
    charge: Floats,
    least: Ints,
    most: Ints,
    limits: Limits,
    number: int | None = None,
) -> Certified | None:
    """Return the tasks of the least cost, ``number`` of them if given.

    None if there is no such way, or none is found.

    >>> limits = Limits(np.array([[1.0, 2.0]]), np.zeros((1, 2)), np.array([7.0]))
    >>> least_within(np.array([3.0, 1.0]), np.zeros(2), np.ones(2, int),
    ...     np.array([9, 9]), limits, 5).tasks
    array([3, 2])
    """
    most = np.where(most >= least, most, 0)
    work = _Tasks(cost, charge, least, most)
    bound, gain = _priced(work, limits, number)
    undecided = np.argsort(np.abs(gain), kind="stable")
    few = FEW
    while True:
        fixed = np.where(gain > 0, most, 0)
        core = np.sort(undecided[:few])
        fixed[core] = 0
        found = _branched(
            work.only(core),
            limits.left(core, fixed),
            None if number is None else number - int(fixed.sum()),
            0.0 if len(core) == len(cost) else TOLERANCE * abs(bound),
        )
        if found is not None:
            fixed[core] = found.tasks
            total = work.total(fixed)
            if len(core) == len(cost):
                bound = max(bound, found.bound)
            if limits.allow(fixed):  # it may not, by rounding alone
                return Certified(fixed, total, min(bound, total))
        if len(core) == len(cost) or few >= MANY:
            return None
        few *= 4


def _priced(work: _Tasks, limits: Limits, number: int | None) -> tuple[float, Floats]:
    """Return the highest bound, and what each worker gains by working at its prices."""
    from scipy.optimize import linprog

    most, works = work.most, work.most > 0
    full = work.cost * most + work.charge * works
    finite = np.isfinite(limits.most)
    use = (limits.use * most + limits.charge * works)[finite]
    at_most = limits.most[finite]
    free = np.zeros(len(at_most), dtype=bool)
    if number is not None:
        use, at_most = np.vstack([use, most]), np.r_[at_most, float(number)]
        free = np.r_[free, True]
    # Above these prices nobody works, or, below their negative, everybody does.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(full) / use
    top = 1.0 + 2.0 * np.where(np.isfinite(ratio), ratio, 0.0).max(axis=1, initial=0.0)
    if number is not None:
        top[-1] += float(top[:-1] @ (use[:-1] / np.maximum(most, 1)).max(axis=1))
    box = [*zip(np.where(free, -top, 0.0), top, strict=True), (None, None)]
    best, prices, slopes, heights = -np.inf, np.zeros(len(top)), [], []
    here = np.zeros(len(top))
    for _ in range(CUTS):
        priced = full + here @ use
        slope = use @ (priced < 0) - at_most
        value = float(np.minimum(priced, 0.0).sum() - here @ at_most)
        if value > best:
            best, prices = value, here
        # bound(λ) ≤ value + slope·(λ − here): one line of each
        slopes.append(np.r_[-slope, 1.0])
        heights.append(value - float(slope @ here))
        highest = linprog(
            np.r_[np.zeros(len(top)), -1.0], A_ub=slopes, b_ub=heights, bounds=box
        )
        if highest.x is None:  # what was found so far bounds as well
            break
        here, above = highest.x[:-1], float(highest.x[-1])
        if above - best <= ROUNDING * max(abs(best), abs(above)):
            break
    return best, -(full + prices @ use)


def _branched(
    work: _Tasks, limits: Limits, number: int | None, tolerance: float
) -> Certified | None:
    """Decide by branch and bound: tasks of each, and whether it does any."""
    bound = -np.inf
    for lower in LOWER:
        found, scale = _milp(work, limits, number, lower, tolerance)
        if found.x is None:
            return None
        if not lower:
            bound = float(found.mip_dual_bound) * scale
        tasks = np.round(found.x[: len(work.cost)]).astype(np.int64)
        if limits.allow(tasks):
            total = work.total(tasks)
            return Certified(tasks, total, min(bound, total))
    return None


def _milp(
    work: _Tasks, limits: Limits, number: int | None, lower: float, tolerance: float
) -> tuple["OptimizeResult", float]:
    """Solve it by HiGHS; costs are divided by the scale that is returned."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, diags_array, eye_array, hstack

    cost, charge, least, most = work
    K, one = len(cost), eye_array(len(cost))
    full = np.abs(cost) * most + charge
    scale = 1e-3 * float(full.max(initial=0.0)) or 1.0
    finite = np.isfinite(limits.most)
    size = np.where(limits.most[finite] > 0, limits.most[finite], 1.0)[:, None]
    rows = csr_array(np.hstack([limits.use, limits.charge])[finite] / size)
    at_most = limits.most[finite] / size[:, 0] - lower
    constraints = [
        LinearConstraint(rows, -np.inf, at_most),
        LinearConstraint(hstack([one, diags_array(-1.0 * most)]), -np.inf, 0.0),
        LinearConstraint(hstack([one, diags_array(-1.0 * least)]), 0.0, np.inf),
    ]
    if number is not None:
        count = np.r_[np.ones(K), np.zeros(K)]
        constraints.append(LinearConstraint(count[None, :], number, number))
    found = milp(
        np.r_[cost, charge] / scale,
        integrality=np.ones(2 * K, dtype=np.int64),
        bounds=Bounds(0.0, np.r_[1.0 * most, np.ones(K)]),
        constraints=constraints,
        options={
            "node_limit": NODES,
            "mip_rel_gap": tolerance / (float(full.sum()) or 1.0),
        },
    )
    return found, scale
