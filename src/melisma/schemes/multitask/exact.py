"""Few learners: the best assignment of all, the budget included.

    minimise    Σᵢ zᵢ
    subject to  A_ij + B_ij·d_ij ≤ zᵢ ≤ Tᵢ  where d_ij > 0          (deadline)
                Σⱼ d_ij = Dᵢ                                        (coverage)
                d_ij = 0  or  d_ij ≥ least                          (least)
                each learner serves one task, or one at most        (association)
                Σ pⱼ·d_ij ≤ budget                                  (budget)

For a task and a set S of learners, the least z at which their capacities ⌊(z − A)/B⌋
cover D is a search over the levels z = A + B·d. A dynamic program over sets divides
the learners: the best of the tasks from i on with S is the minimum over R ⊆ S of
zᵢ(R) and the best of those after i with S∖R.

If the cheapest split in those times is within the budget, it is the answer. If not,
each set has a front of points (z, cost): the more time, the more its cheap members can
take. With a price β on cost the same program bounds from below whatever a point or a
part of an assignment can lead to. What cannot lead below a ceiling is dropped, the
rest is enumerated task by task, without what another of the same learners beats in
both z and cost. The ceiling is a guess just above the least Σz without a budget,
raised until an assignment is found below it: the best of those is the best of all.

Paper: Mays's thesis, (4.4); the method is ours.

Differences from the paper:
1. The time of the model counts only where a learner serves a task, and passes over the
   data are part of B (both missing in 4.2 and 4.3).
2. Times are real numbers; the author's program rounds them up to whole seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.subsets import Division, masks
from melisma.schemes.multitask.cover import assigned, cheapest
from melisma.schemes.multitask.infeasible import check, too_dear, why_not
from melisma.system.multitask import Assignment, MultiTaskProblem, Solved

PAIRS = 2**22  #: of a part of an assignment and a point, held at once
EXCESSES = (0.01, 0.03, 0.06)  #: of a ceiling over the bound; the lower, the quicker
ROUNDING = 1.0 + 1e-12  #: of a sum of times, in whichever order

#: A set of learners, as a mask, and the time of a task on it.
Choice = tuple[int, float]


def exact(problem: MultiTaskProblem) -> Solved:
    """Solve to the optimum, in time and memory of 3 to the number of learners."""
    check(problem)
    tables, fast, chosen = _fastest(problem)
    if not chosen:
        last_s = (problem.fixed_s + problem.shard_s * problem.shards[:, None]).max(
            axis=1
        )
        chosen = _fastest(replace(problem, deadline_s=last_s))[2]
        raise why_not(problem, np.array([z for _, z in chosen]) if chosen else None)
    shards = _shards(problem, chosen)
    if problem.cost(Assignment(shards)) > problem.most:
        shards = _shards(problem, _within_budget(problem, tables, fast))
    return assigned(problem, shards)


def _fastest(
    problem: MultiTaskProblem,
) -> tuple[list["_Table"], Division, list[Choice]]:
    """All tasks on all sets, and the best choices without a budget, if there are."""
    tables = [_Table.of(problem, i) for i in range(problem.tasks)]
    fast = Division([table.fastest for table in tables], problem.every)
    if fast.best == inf:
        return tables, fast, []
    pairs = zip(fast.sets(), tables, strict=True)
    return tables, fast, [(S, float(table.fastest[S])) for S, table in pairs]


def _shards(problem: MultiTaskProblem, chosen: Sequence[Choice]) -> Ints:
    """Cheapest split of each task in its time on its set."""
    j = np.arange(problem.learners)
    sets = [np.flatnonzero(S >> j & 1) for S, _ in chosen]
    return cheapest(problem, sets, [z for _, z in chosen])


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """Sets of learners, each with a time and the least cost at it."""

    sets: Ints
    z: Floats
    cost: Floats

    def __getitem__(self, where: Ints | Bools | slice) -> "_Points":
        return _Points(self.sets[where], self.z[where], self.cost[where])

    def priced(self, beta: float) -> Floats:
        """z + β·cost; the cost alone at an infinite price."""
        return self.z + beta * self.cost if beta < inf else self.cost

    def least(self, beta: float, size: int) -> Floats:
        """Of each set the least priced point."""
        best = np.full(size, inf)
        np.minimum.at(best, self.sets, self.priced(beta))
        return best

    def unbeaten(self) -> Ints:
        """Places of those that no other of the same set beats in both z and cost."""
        order = np.lexsort((self.cost, self.z, self.sets))
        group = np.cumsum(np.diff(self.sets[order], prepend=-1) > 0)
        # A running minimum that starts afresh with each group, as all of it is lower.
        cost = self.cost[order] - group * (1.0 + self.cost.max(initial=0.0))
        lower = np.append(True, cost[1:] < np.minimum.accumulate(cost)[:-1])
        places: Ints = order[lower[: order.size]]
        return places


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One task on every set of learners."""

    problem: MultiTaskProblem
    task: int
    levels: Floats  # times at which some learner can take one more, rising; then inf
    caps: Ints  # u(z), levels × learners
    first: Ints  # of each set, the first level at which it covers D

    @property
    def fastest(self) -> Floats:
        """Of each set the least time; inf where it cannot."""
        return self.levels[self.first]

    @classmethod
    def of(cls, problem: MultiTaskProblem, task: int) -> "_Table":
        """Find the first level of every set by bisection, all at once."""
        D, least = int(problem.shards[task]), problem.least
        d = np.arange(least, D + 1)[:, None]
        times = problem.fixed_s[task] + problem.shard_s[task] * d
        levels = np.unique(times[times <= problem.deadline_s[task]])
        caps = problem.within(task, levels)
        enough = caps.sum(axis=1) >= D
        levels, caps = np.append(levels[enough], inf), caps[enough]
        members = masks(problem.learners)
        # Not before its slowest member does ``least``; never with too many, or none.
        low = (members * (caps == 0).sum(axis=0)).max(axis=1)
        size = members.sum(axis=1)
        low[(size == 0) | (size * least > D)] = len(caps)
        high = np.full(low.shape, len(caps))
        while (open_ := np.flatnonzero(low < high)).size:
            mid = (low[open_] + high[open_]) // 2
            covers = np.einsum("sj,sj->s", caps[mid], members[open_]) >= D
            high[open_[covers]] = mid[covers]
            low[open_[~covers]] = mid[~covers] + 1
        return cls(problem, task, levels, caps, low)

    def points(self, latest: Floats) -> _Points:
        """The front of each set, up to its latest time."""
        end = np.searchsorted(self.levels[:-1], latest, side="right")
        count = np.maximum(end - self.first, 0)
        sets = np.repeat(np.arange(count.size), count)
        skipped = np.cumsum(count) - count
        level = np.arange(sets.size) - (skipped - self.first)[sets]
        cost = self._cost(sets, level)
        falls = (np.diff(sets, prepend=-1) > 0) | (np.diff(cost, prepend=inf) < 0)
        return _Points(sets, self.levels[level], cost)[falls]

    def cheapest(self) -> Floats:
        """Of each set the least cost by the deadline; inf where it cannot."""
        cost = np.full(self.first.shape, inf)
        able = np.flatnonzero(self.first < len(self.caps))
        cost[able] = self._cost(able, np.full(able.shape, len(self.caps) - 1))
        return cost

    def _cost(self, sets: Ints, level: Ints) -> Floats:
        """Of sets at levels: ``least`` for each member, the rest by price."""
        p, least, members = (
            self.problem.price,
            self.problem.least,
            masks(self.caps.shape[1]),
        )
        left = int(self.problem.shards[self.task]) - least * members.sum(axis=1)[sets]
        cost: Floats = least * (members * p).sum(axis=1)[sets]
        for j in np.argsort(p, kind="stable"):
            take = np.minimum(left, (self.caps[level, j] - least) * members[sets, j])
            cost += p[j] * take
            left -= take
        return cost


def _within_budget(
    problem: MultiTaskProblem, tables: Sequence[_Table], fast: Division
) -> list[Choice]:
    """Best sets and times under the budget, which those of ``fast`` exceed."""
    cheap = Division([table.cheapest() for table in tables], problem.every)
    if cheap.best > problem.most:
        raise too_dear(problem, cheap.best)
    rests = list(zip(fast.others(), cheap.others(), strict=True))
    excess = 0.02
    while True:
        ceiling = fast.best * (1.0 + excess)
        points = []
        for table, (rest_s, rest_cost) in zip(tables, rests, strict=True):
            own = table.points(ceiling - rest_s)
            points.append(own[own.cost + rest_cost[own.sets] <= problem.most])
        if chosen := _Search(problem, points, fast, cheap).below(ceiling):
            return chosen
        excess *= 3.0


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """The points of each task, and what bounds the tasks after it."""

    problem: MultiTaskProblem
    points: list[_Points]
    fast: Division
    cheap: Division

    def below(self, ceiling: float) -> list[Choice]:
        """Best choices with Σz up to the ceiling; none if there are none."""
        most = self.problem.most
        fast, low_z, low_cost = self.at(0.0)
        cheap, high_z, high_cost = self.at(inf)
        if cheap.best > most or fast.best > ceiling * ROUNDING:
            return []
        beta, program = 0.0, fast
        # The best price is where two lines z + β·(cost − budget) meet, one of a point
        # below the budget and one above, and no point is below both.
        while low_cost > most:
            beta = (high_z - low_z) / (low_cost - high_cost)
            program, z, cost = self.at(beta)
            if program.best - beta * most > ceiling * ROUNDING:
                return []
            if z + beta * cost >= (low_z + beta * low_cost) * (1.0 - 1e-12):
                break
            if cost > most:
                low_z, low_cost = z, cost
            else:
                high_z, high_cost, ceiling = z, cost, min(ceiling, z)
        bound = program.best - beta * most
        for excess in EXCESSES:
            lower = min(ceiling, bound * (1.0 + excess)) * ROUNDING
            if (chosen := self.enumerated(program, beta, lower)) or lower >= ceiling:
                return chosen
        return self.enumerated(program, beta, ceiling * ROUNDING)

    def at(self, beta: float) -> tuple[Division, float, float]:
        """The program at a price, with time and cost of its answer."""
        size = 2**self.problem.learners
        worth = [own.least(beta, size) for own in self.points]
        program = Division(worth, self.problem.every)
        z = cost = 0.0
        if program.best < inf:
            for S, own in zip(program.sets(), self.points, strict=True):
                here = own[own.sets == S]
                at = int(np.argmin(here.priced(beta)))
                z, cost = z + float(here.z[at]), cost + float(here.cost[at])
        return program, z, cost

    def enumerated(
        self, program: Division, beta: float, ceiling: float
    ) -> list[Choice]:
        """All that β does not exclude, task by task; the best of them."""
        limit = ceiling + beta * self.problem.most
        part = _Points(np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1))
        steps: list[tuple[_Points, Ints, Ints]] = []
        stages = zip(
            self.points,
            program.others(),
            program.after,
            self.fast.after,
            self.cheap.after,
            strict=True,
        )
        for points, others, after, after_s, after_cost in stages:
            own = points[points.priced(beta) + others[points.sets] <= limit]
            grown, where = [], []
            size = max(1, PAIRS // max(own.z.size, 1))
            for start in range(0, part.z.size, size):
                chunk = part[start : start + size]
                rows, columns = np.nonzero(chunk.sets[:, None] & own.sets == 0)
                both = _Points(
                    chunk.sets[rows] | own.sets[columns],
                    chunk.z[rows] + own.z[columns],
                    chunk.cost[rows] + own.cost[columns],
                )
                left = after.size - 1 - both.sets
                keep = both.priced(beta) + after[left] <= limit
                keep &= both.z + after_s[left] <= ceiling
                keep &= both.cost + after_cost[left] <= self.problem.most
                grown.append(both[keep])
                where.append((rows[keep] + start, columns[keep]))
            part = _Points(
                *(
                    np.concatenate([getattr(chunk, name) for chunk in grown])
                    for name in ("sets", "z", "cost")
                )
            )
            kept = part.unbeaten()
            part = part[kept]
            rows, columns = (np.concatenate(w)[kept] for w in zip(*where, strict=True))
            steps.append((own, rows, columns))
            if not part.z.size:
                return []
        return _retraced(steps, int(np.argmin(part.z)))


def _retraced(steps: list[tuple[_Points, Ints, Ints]], at: int) -> list[Choice]:
    """The choices that led to a place of the last step."""
    chosen = []
    for own, rows, columns in reversed(steps):
        point = columns[at]
        chosen.append((int(own.sets[point]), float(own.z[point])))
        at = int(rows[at])
    return chosen[::-1]
