"""Whole tasks to workers that cost something to start; exact, with a certificate.

    least_cost   minimise  Σ pₖ·xₖ + qₖ·[xₖ > 0]   with  Σ xₖ = n
    most_value   maximise  Σ vₖ·xₖ                 with  Σ rₖ·xₖ + sₖ·[xₖ > 0] ≤ B

    and  xₖ = 0  or  leastₖ ≤ xₖ ≤ mostₖ,   xₖ ∈ ℕ

Without charges and values that differ, both are a sort: the cheapest worker does as
much as it may, then the next. With charges they are as hard as a knapsack, and a price
λ on what is shared out bounds them: at a price each worker decides alone, and either
works as much as it may or not at all. The best price is the ratio of objective to use
at which workers, each all or nothing, just meet n or B: again a sort. What the one
worker adds that would work in part is all that is lost, so the gap is small; it is
closed by branch and bound: that worker is started or not, and the rest is priced anew.
Workers that cannot be otherwise in any better answer are fixed beforehand.

What is returned says how good it is: no answer is better than ``bound``. The search
ends after some work; then ``is_proven`` may be false.
"""

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.assignment import cheapest

#: Workers that are priced in all, over all branches, before the search ends.
WORK = 500_000
#: More pieces than these are not all sorted: of so many a sample shows which are.
MANY, SAMPLED, MARGIN = 50_000, 10_000, 300
#: Share by which sums of floats may differ that are the same.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """Tasks of each worker, and how good they can be at best."""

    tasks: Ints
    objective: float  #: cost, or value
    bound: float  #: no answer costs less, or is worth more

    @property
    def gap(self) -> float:
        """How far this may be from the best."""
        return abs(self.objective - self.bound)

    @property
    def is_proven(self) -> bool:
        """Whether nothing is better, but for rounding."""
        return self.gap <= ROUNDING * max(abs(self.objective), abs(self.bound))


def least_cost(
    cost: Floats,
    charge: Floats,
    least: Ints,
    most: Ints,
    number: int,
    *,
    work: int = WORK,
) -> Certified:
    """Return ``number`` tasks for the least cost; InfeasibleError if they do not fit.

    >>> least_cost(np.array([1.0, 2.0]), np.array([9.0, 0.0]), np.ones(2, int),
    ...     np.array([9, 9]), 7).tasks
    array([0, 7])
    """
    most = np.minimum(most, number)
    most = np.where(most >= least, most, 0)
    if not (charge[most > 0].any() or (least[most > 0] > 1).any()):
        tasks = cheapest(cost, most, number)
        total = float(cost @ tasks)
        return Certified(tasks, total, total)
    one = np.ones(len(cost))
    problem = _Problem(cost, charge, one, 0.0 * one, least, most, float(number), True)
    found = _solve(problem, work)
    if found is None:
        raise InfeasibleError(
            f"{number} tasks for {len(most)} workers that may do {int(most.sum())} "
            "together, and each its least or none: use other numbers"
        )
    return found


def most_value(
    value: Floats,
    cost: Floats,
    charge: Floats,
    least: Ints,
    most: Ints,
    budget: float,
    *,
    work: int = WORK,
) -> Certified:
    """Return the most valuable tasks within a budget; none if it pays for none.

    >>> most_value(np.ones(2), np.array([1.0, 2.0]), np.array([9.0, 0.0]),
    ...     np.ones(2, int), np.array([9, 9]), 12.0).tasks
    array([0, 6])
    """
    most = np.where((most >= least) & (value > 0), most, 0)
    problem = _Problem(-value, 0.0 * cost, cost, charge, least, most, budget, False)
    found = _solve(problem, work)
    assert found is not None  # nobody needs to work
    return Certified(found.tasks, -found.objective, -found.bound)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Minimise Σ p·x + q·[x > 0], of which Σ r·x + s·[x > 0] is at most R, or just R.

    Workers that are ``open`` are started, whatever they do; none of them is left out.
    """

    p: Floats
    q: Floats
    r: Floats
    s: Floats
    low: Ints
    high: Ints
    R: float
    exact: bool
    open: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        if not self.open.size:
            object.__setattr__(self, "open", np.zeros(len(self.p), dtype=bool))

    def objective(self, x: Ints) -> float:
        return float(self.p @ x + self.q @ (x > 0))

    def fits(self, x: Ints) -> bool:
        used = float(self.r @ x + self.s @ (x > 0))
        return used == self.R if self.exact else used <= self.R

    def some(self, who: Bools, x: Ints) -> "_Problem":
        """Return the problem of some workers, where the others do x."""
        rest = np.where(who, 0, x)
        return _Problem(
            self.p[who],
            self.q[who],
            self.r[who],
            self.s[who],
            self.low[who],
            self.high[who],
            self.R - float(self.r @ rest + self.s @ (rest > 0)),
            self.exact,
            self.open[who],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Relaxed:
    """The answer in which one worker may do a part of what is all or nothing."""

    bound: float
    price: float  #: objective of a unit of what is shared out
    tasks: Ints  #: without that worker
    split: int  #: who it is; −1: nobody
    part: float  #: how much it does of what is all or nothing


def _relax(problem: _Problem) -> _Relaxed | None:
    """Price a problem; None if it has no answer.

    A worker that is not started yet is one piece, with its charge; of one that is,
    what it may do beyond its least.
    """
    is_open, low, high = problem.open, problem.low, problem.high
    size = np.where(is_open, high - low, high)
    objective = problem.p * size + np.where(is_open, 0.0, problem.q)
    use = problem.r * size + np.where(is_open, 0.0, problem.s)
    tasks = np.where(is_open, low, 0)
    left = problem.R - float(problem.r @ tasks + problem.s @ is_open)
    if left < 0:
        return None
    base = float(problem.p @ tasks + problem.q @ is_open)
    pieces = np.flatnonzero(size if problem.exact else (size > 0) & (objective < 0))
    with np.errstate(divide="ignore"):
        ratio = objective[pieces] / use[pieces]
    order = pieces[_order(ratio, use[pieces], left)]
    upto = np.cumsum(use[order])
    count = int(np.searchsorted(upto, left, side="right"))
    taken = order[:count]
    tasks[taken] += size[taken]
    bound = base + float(objective[taken].sum())
    rest = left - (float(upto[count - 1]) if count else 0.0)
    if count == len(order):
        if problem.exact and rest > 0:
            return None
        price = float(ratio.max(initial=0.0)) if problem.exact else 0.0
        return _Relaxed(bound, price, tasks, -1, 0.0)
    split = int(order[count])
    price, part = float(objective[split] / use[split]), rest / float(use[split])
    return _Relaxed(bound + part * float(objective[split]), price, tasks, split, part)


def _order(ratio: Floats, use: Floats, left: float) -> Ints:
    """Sort pieces by their ratio; of many, only those near where nothing is left.

    A sample says where that is. All before it are taken and none behind it is, in
    whatever order, which is checked.
    """
    if ratio.size <= MANY:
        return np.argsort(ratio, kind="stable")
    some = slice(None, None, 1 + ratio.size // SAMPLED)
    rank = np.argsort(ratio[some])
    upto = np.cumsum(use[some][rank])
    at = int(np.searchsorted(upto, left * upto[-1] / use.sum()))
    low, high = (
        float(ratio[some][rank[min(max(at + off, 0), rank.size - 1)]])
        for off in (-MARGIN, MARGIN)
    )
    before, behind = ratio < low, ratio > high
    if use[before].sum() > left or use[~behind].sum() <= left:
        return np.argsort(ratio, kind="stable")
    near = np.flatnonzero(~(before | behind))
    near = near[np.argsort(ratio[near], kind="stable")]
    return np.concatenate([np.flatnonzero(before), near, np.flatnonzero(behind)])


def _rounded(problem: _Problem, relaxed: _Relaxed, *, anew: bool = True) -> Ints | None:
    """Return an answer near the relaxed one, if one is found; the best of three.

    The rest goes to whoever does it best; or, ``anew``, the split worker is started,
    and all that are share out anew, by what tasks alone cost.
    """
    x = relaxed.tasks
    answers = [] if problem.exact and relaxed.split >= 0 else [x]
    begun = x > 0
    rest = problem.R - float(problem.r @ x + problem.s @ begun)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.floor((rest - np.where(begun, 0.0, problem.s)) / problem.r)
    more = np.nan_to_num(more, nan=0.0)
    able = x + more >= problem.low
    if problem.exact:
        able &= x + more <= problem.high
    more = np.clip(more, 0, problem.high - x).astype(np.int64)
    adds = np.where(
        able & (more > 0), problem.p * more + np.where(begun, 0.0, problem.q), np.inf
    )
    k = int(np.argmin(adds))
    if np.isfinite(adds[k]):
        answers.append(x.copy())
        answers[-1][k] += more[k]
    if anew and relaxed.split >= 0:
        begun[relaxed.split] = True
        started = replace(problem, high=np.where(begun, problem.high, 0), open=begun)
        if again := _relax(started):
            x = again.tasks
            if again.split >= 0:
                k = again.split
                size = int(problem.high[k] - problem.low[k])
                x[k] += int(np.floor(again.part * size * (1 + 1e-15) + 1e-9))
            answers.append(x)
    answers = [x for x in answers if problem.fits(x)]
    return min(answers, key=problem.objective) if answers else None


def _solve(problem: _Problem, work: int) -> Certified | None:
    """Branch and bound, after workers are fixed that are the same in all answers."""
    root = _relax(problem)
    if root is None:
        return None
    best = _rounded(problem, root, anew=False)  # the core's may be better
    at_most = problem.objective(best) if best is not None else np.inf
    if at_most <= root.bound + ROUNDING * abs(root.bound) and best is not None:
        return Certified(best, at_most, min(root.bound, at_most))
    core, fixed = _core(problem, root, at_most - root.bound)
    inner = problem.some(core, fixed)
    outside = problem.objective(np.where(core, 0, fixed))
    found, bound = _branch(inner, at_most - outside, work)
    if found is not None:
        answer = fixed.copy()
        answer[core] = found
        if problem.fits(answer):  # it may not, by rounding alone
            best, at_most = answer, problem.objective(answer)
    if best is None:
        return None
    return Certified(best, at_most, min(max(bound + outside, root.bound), at_most))


def _core(problem: _Problem, root: _Relaxed, gap: float) -> tuple[Bools, Ints]:
    """Return who may be otherwise in a better answer, and what the others do.

    At the price every worker loses something by not doing what suits it best, and an
    answer is worse than the bound by all of these: none may be above the gap.
    """
    p = problem.p - root.price * problem.r
    q = problem.q - root.price * problem.s
    full, little = q + p * problem.high, q + p * problem.low
    can = problem.high > 0
    works = np.where(can, np.minimum(full, little), np.inf)
    best = np.minimum(works, 0.0)
    gap += ROUNDING * (1 + abs(root.bound))
    idle = (works - best > gap) | ~can
    busy = can & (0.0 - best > gap) & (full <= little) & (-p > gap)
    return ~(idle | busy), np.where(busy, problem.high, 0)


def _branch(problem: _Problem, at_most: float, work: int) -> tuple[Ints | None, float]:
    """Return an answer below ``at_most``, if there is one, and a bound of all.

    The node of the least bound is divided first, so that it bounds all others.
    """
    best: Ints | None = None
    # Objectives that are whole numbers have no bound in between.
    whole = bool(
        (problem.p == np.round(problem.p)).all()
        and (problem.q == np.round(problem.q)).all()
    )
    serial = 0
    nodes: list[tuple[float, int, _Problem, _Relaxed]] = []
    todo = [problem]
    while True:
        for node in todo:
            relaxed = _relax(node)
            work -= len(node.p)
            if relaxed is None:
                continue
            answer = _rounded(node, relaxed)
            if answer is not None and (given := node.objective(answer)) < at_most:
                best, at_most = answer, given
            low = relaxed.bound
            if whole:
                low = float(np.ceil(low - ROUNDING * (1 + abs(low))))
            if low < _below(at_most):
                serial += 1
                heapq.heappush(nodes, (low, serial, node, relaxed))
        if not nodes or nodes[0][0] >= _below(at_most):
            return best, at_most
        if work <= 0:
            return best, float(nodes[0][0])
        _, _, node, relaxed = heapq.heappop(nodes)
        todo = _divided(node, relaxed)


def _below(objective: float) -> float:
    """Return what is better than an objective by more than rounding."""
    return objective - ROUNDING * abs(objective) if objective < np.inf else objective


def _divided(node: _Problem, relaxed: _Relaxed) -> list[_Problem]:
    """Divide at the worker that does a part: started or not, or less or more."""
    k = relaxed.split
    if k < 0:
        return []
    low, high, is_open = node.low.copy(), node.high.copy(), node.open.copy()
    if not node.open[k]:
        high[k], is_open[k] = 0, True
        return [replace(node, high=high), replace(node, open=is_open)]
    less = int(low[k] + np.floor(relaxed.part * (high[k] - low[k])))
    high[k], low[k] = less, less + 1
    return [replace(node, high=high), replace(node, low=low)]
