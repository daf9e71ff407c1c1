"""Pairs of tasks share their learners anew, until no pair gains.

Given times for two tasks, each learner has a worth in either. Sorted by the ratio of
both, those in front go to the one task and those behind to the other: between two
tasks the best division is such a cut, but for the learner at it. A pair tries times
near its own, and cuts at each; that moves, swaps and trades any number of learners at
once, and finds times at which capacities, which are whole shards, waste little.

Where the budget binds, what exceeds it counts twice its price β, and time past a
deadline counts tenfold: both are gone at the end, if an assignment is found at all.
"""

from collections.abc import Sequence
from itertools import combinations
from math import inf

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.subsets import Division, masks, sums
from melisma.schemes.multitask.cover import capacities, costs, fastest, filled, sunk
from melisma.system.multitask import MultiTaskProblem

SHARES = (2_500, 800)  #: of all pairs together, about: without a budget, with one
SWEEPS = (12, 48)  #: over all pairs
PATIENCE = 6  #: sweeps without a gain, and it ends
TRIED = 20_000  #: learners in all times that a pair tries, about
GAINS = np.geomspace(1e-4, 1.0, 8) / 3.0  #: hoped for, in parts of the span
FEW = 8  #: learners whose tasks are chosen exactly
CHOICES = 12  #: of so many learners for each task, where no budget binds
NEAR = 48  #: levels before and after its time that a task looks at then
CUTS = 7  #: at each pair of times, where the budget binds
LATE = 10.0  #: seconds that a second past the deadline counts
SPANS = (0.2, 0.1, 0.05, 0.03)  #: how far from its time a task looks, then the last


class Sharing:
    """Learners of each task, with time and cost that they make of it."""

    def __init__(
        self, problem: MultiTaskProblem, beta: float, sets: Sequence[Ints]
    ) -> None:
        self.problem, self.beta, self.sets = problem, beta, list(sets)
        m = problem.tasks
        self.z, self.cost = np.full(m, inf), np.zeros(m)
        for i in range(m):
            self._settle(i)

    def improve(self, rng: np.random.Generator) -> None:
        """Let all pairs share, in random order, again and again."""
        pairs = list(combinations(range(self.problem.tasks), 2))
        shares = SHARES[self.beta > 0] // max(len(pairs), 1)
        sweeps = int(np.clip(shares, *SWEEPS))
        idle = 0
        for sweep in range(sweeps):
            span = SPANS[min(sweep, len(SPANS) - 1)]
            order = rng.permutation(len(pairs))
            gains = [self._share(pairs[k], span, rng) for k in order]
            idle = 0 if any(gains) else idle + 1
            if idle == PATIENCE:
                break
        if self.beta == 0 and (self.z < inf).all():
            for _ in range(CHOICES * self.problem.tasks):
                self._choose(rng)

    def _value(self, tasks: Sequence[int], z: Floats, cost: Floats | float) -> Floats:
        """What some tasks are charged, given what the others cost; z: tasks first."""
        T = self.problem.deadline_s[list(tasks)].reshape(-1, *[1] * (z.ndim - 1))
        value: Floats = (z + LATE * np.maximum(z - T, 0.0)).sum(axis=0)
        if self.beta > 0:
            others = self.cost.sum() - self.cost[list(tasks)].sum()
            over = np.maximum(cost + others - self.problem.budget, 0.0)
            value = value + 2.0 * self.beta * over
        return value

    def _settle(self, i: int) -> None:
        """Choose the best time of a task for its learners."""
        first = self.z[i] = fastest(self.problem, i, self.sets[i])
        if self.beta == 0 or first == inf:
            return
        low, high = first, max(2.0 * first, float(self.problem.deadline_s[i]))
        for _ in range(2):
            times = np.geomspace(low, high, 48)
            cost = costs(self.problem, i, times, self.sets[i])
            at = int(np.argmin(self._value([i], times[None], cost)))
            low, high = times[max(at - 1, 0)], times[min(at + 1, 47)]
        self.z[i], self.cost[i] = times[at], cost[at]

    def _worth(self, i: int) -> float:
        """λᵢ, seconds that one shard less saves; only the cheaper learners count."""
        # (1 + β·Σ p/B) / Σ 1/B  over those with β·p < λ: of all such, the least
        S = self.sets[i]
        S = S[np.argsort(self.problem.price[S])]
        B, p = self.problem.shard_s[i, S], self.problem.price[S]
        return float(((1.0 + self.beta * np.cumsum(p / B)) / np.cumsum(1.0 / B)).min())

    def _worths(self, i: int, u: Floats, learners: Ints) -> Floats:
        """What capacities of learners save a task, less what they cost."""
        worth, p = self._worth(i), self.problem.price[learners]
        base = np.minimum(u, sunk(self.problem))
        return worth * base + (u - base) * np.maximum(worth - self.beta * p, 0.0)

    def _share(
        self, pair: tuple[int, int], span: float, rng: np.random.Generator
    ) -> bool:
        """Divide the learners of two tasks anew; whether that gained."""
        problem, (b, c) = self.problem, pair
        now = np.array([self.z[b], self.z[c]])
        if (now == inf).any():
            return False
        U = np.concatenate([self.sets[b], self.sets[c]])
        gains = span * GAINS
        if self.beta > 0:
            gains = np.append(gains, -gains)
        rows = int(np.clip(TRIED // (U.size * gains.size), 2, 12))
        zb = np.repeat(now[0] * (1.0 + rng.uniform(-span, span, rows)), gains.size)
        z = np.stack([zb, now.sum() * (1.0 - np.tile(gains, rows)) - zb])
        u = [capacities(problem, i, z[k], U) for k, i in enumerate(pair)]
        worth = [self._worths(i, u[k], U) for k, i in enumerate(pair)]
        order = np.argsort((worth[1] + 1e-9) / (worth[0] + 1e-9), axis=1)
        front = np.cumsum(np.take_along_axis(u[0], order, 1), axis=1)
        behind = np.cumsum(np.take_along_axis(u[1], order, 1)[:, ::-1], axis=1)
        # Cuts from the first that covers the one D to the last that leaves the other.
        first = (front < problem.shards[b]).sum(axis=1) + 1
        last = U.size - 1 - (behind < problem.shards[c]).sum(axis=1)
        able = np.flatnonzero((first <= last) & (z > 0).all(axis=0))
        if not able.size:
            return False
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(U.size)[None], 1)
        rank, first, last, z = rank[able], first[able], last[able], z[:, able]
        if self.beta == 0:
            best = np.argsort(self._value(pair, z, 0.0))[:3]
            cuts = [rank[r] < k for r in best for k in {int(first[r]), int(last[r])}]
            return any(self._adopt(pair, U, cut) for cut in cuts)
        found, least = None, inf
        for part in np.linspace(0.0, 1.0, CUTS):
            at = np.round(first + part * (last - first))
            cut = rank < at[:, None]
            cost = filled(problem, b, U, u[0][able] * cut)[1]
            cost = cost + filled(problem, c, U, u[1][able] * ~cut)[1]
            value = self._value(pair, z, cost)
            r = int(np.argmin(value))
            if value[r] < least:
                found, least = cut[r], float(value[r])
        return found is not None and self._adopt(pair, U, found)

    def _choose(self, rng: np.random.Generator) -> None:
        """Choose tasks anew for a few learners of a few tasks: the best of all ways."""
        tasks = rng.permutation(self.problem.tasks)[:4].tolist()
        pool = np.concatenate([self.sets[i] for i in tasks])
        few = rng.permutation(pool)[:FEW]
        stay = [np.setdiff1d(self.sets[i], few) for i in tasks]
        worth = [
            self._value([i], self._times(i, S, few)[None], 0.0)
            for i, S in zip(tasks, stay, strict=True)
        ]
        division = Division(worth, every=True)
        if division.best < float(self._value(tasks, self.z[tasks], 0.0)) - 1e-9:
            for i, S, R in zip(tasks, stay, division.sets(), strict=True):
                added = few[R >> np.arange(few.size) & 1 == 1]
                self.sets[i] = np.concatenate([S, added])
                self._settle(i)

    def _times(self, i: int, stay: Ints, few: Ints) -> Floats:
        """Time of a task with each subset of a few learners; inf if far from now."""
        problem, S = self.problem, np.concatenate([stay, few])
        A, B = problem.fixed_s[i, S, None], problem.shard_s[i, S, None]
        low = np.maximum(np.floor((self.z[i] - A) / B) - 3.0, 0.0)
        levels = np.sort((A + B * (low + np.arange(1, 8))).ravel())
        at = int(np.searchsorted(levels, self.z[i]))
        levels = levels[max(at - NEAR, 0) : at + NEAR]
        u = capacities(problem, i, levels, S)
        u[u == 0] = -inf  # each member has to do its least
        total = u[:, : stay.size].sum(axis=1)[:, None] + sums(u[:, stay.size :])
        first = (total < problem.shards[i]).sum(axis=0)
        first[first == 0] = levels.size
        size = stay.size + masks(few.size).sum(axis=1)
        first[size * problem.least > problem.shards[i]] = levels.size
        times: Floats = np.append(levels, inf)[first]
        return times

    def _adopt(self, pair: tuple[int, int], learners: Ints, front: Bools) -> bool:
        """Give the learners in front to the one task, the others to the other."""
        tasks = list(pair)
        before = self.z[tasks], self.cost[tasks], [self.sets[i] for i in pair]
        value = float(self._value(pair, before[0], before[1].sum()))
        self.sets[pair[0]], self.sets[pair[1]] = learners[front], learners[~front]
        for i in pair:
            self._settle(i)
        if (
            float(self._value(pair, self.z[tasks], self.cost[tasks].sum()))
            < value - 1e-9
        ):
            return True
        self.z[tasks], self.cost[tasks] = before[:2]
        self.sets[pair[0]], self.sets[pair[1]] = before[2]
        return False
