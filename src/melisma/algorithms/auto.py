"""``deadline = "auto"``: a run that chooses its deadline, anew in each cycle.

Short cycles waste time on transfers, which take as long whatever is trained; long ones
on work that a learner does on its share alone, from parameters that grow stale. Of a
cycle in which every sample is trained on x times, the logarithm of the test loss is
expected to fall by

    g · u(x),    u(x) = x / (1 + (x/X)^p)

Every pass counts g at first, and fully up to about X of them. Beyond that more adds
nothing (p = 1), or even takes away, as where models of unlike data drift apart (p = 2).
How many passes x(T) fit into a deadline T, and how long they really take, says the
planner itself, so that transfers, whole steps and learners that sit out are all in it.
The deadline wanted is the one with the most progress a second, u(x(T))/T, whatever g.

X and p are unknown, and g falls as the model gets better. A Bayes filter on a grid
learns them: after each cycle the fall seen is held against g · u(x) under every X and
p, which is the more telling the more deadlines differ. So that they do, a cycle's
deadline is the best for an X and p drawn from what is believed (Thompson sampling). The
draw depends on the seed and the cycle alone, and what is believed on records alone: a
resumed run goes on with the deadlines it would have had.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from melisma.algorithms.log import CycleLog
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats
from melisma.system.streams import Stream

#: Hypotheses: X in passes over a cycle's samples, and p.
FULL = np.geomspace(1.0, 64.0, 13)
SHAPES = (1.0, 2.0)
#: ln g, and the deviation of its step from cycle to cycle.
GAINS = np.linspace(math.log(1e-4), math.log(3.0), 52)
GAIN_STEP = 0.3
#: Deviation of a fall around what is expected: a share of that, and what is there
#: anyway since the test set is finite.
NOISE, FLOOR = 0.3, 0.005
#: Chance that a fall says nothing at all.
STRAY = 0.02
#: Deadlines tried: from the shortest that is feasible up, so many to a doubling.
TO_A_DOUBLING, DOUBLINGS = 3, 8

Planned = Callable[[float], Awaitable[Plan]]


class Belief:
    """How probable every X, p and g is: a Bayes filter on a grid."""

    def __init__(self) -> None:
        full, shape = np.meshgrid(FULL, SHAPES)
        self._full, self._shape = full.ravel(), shape.ravel()
        size = (len(self._full), len(GAINS))
        self.weights: Floats = np.full(size, 1 / (size[0] * size[1]))
        step = (GAINS[:, None] - GAINS) / GAIN_STEP
        kernel = np.exp(-0.5 * step**2)
        self._walk: Floats = kernel / kernel.sum(axis=1, keepdims=True)

    def see(self, passes: float, fall: float) -> None:
        """Learn from a cycle: by how much ln loss fell."""
        expected = self.progress(np.array([passes])) * np.exp(GAINS)
        spread = np.hypot(NOISE * expected, FLOOR)
        likely = np.exp(-0.5 * ((fall - expected) / spread) ** 2) / spread
        weights = self.weights * (likely + STRAY * likely.mean())
        self.weights = (weights / weights.sum()) @ self._walk

    def progress(self, passes: Floats) -> Floats:
        """u(x) under each hypothesis: hypotheses × passes."""
        ratio = passes / self._full[:, None]
        whole: Floats = passes / (1 + ratio ** self._shape[:, None])
        return whole

    def drawn(self, rng: np.random.Generator) -> int:
        """Draw a hypothesis."""
        return int(rng.choice(len(self._full), p=self.weights.sum(axis=1)))

    def full(self, hypothesis: int) -> float:
        """X of a hypothesis."""
        return float(self._full[hypothesis])

    def fall(self, passes: float) -> float:
        """Return the fall to expect of so many passes."""
        progress = self.progress(np.array([passes]))[:, 0]
        return float(progress @ self.weights @ np.exp(GAINS))


@dataclass(frozen=True, slots=True)
class Way:
    """A deadline, and what can be done by it."""

    deadline_s: float
    lasts_s: float  #: until the last learner is done
    passes: float  #: over the cycle's samples


class Auto:
    """Chooses the deadline of each cycle."""

    def __init__(self, seed: int) -> None:
        self._seed, self._belief, self._seen = seed, Belief(), 0

    async def choose(self, log: CycleLog, samples: int, planned: Planned) -> None:
        """Give the cycle its deadline; ``planned`` returns the plan for one.

        Raises InfeasibleError if there is a plan for none.
        """
        self._learn(log)
        ways = await ways_of(planned, samples)
        rng = np.random.default_rng([self._seed, Stream.DEADLINE, log.cycle])
        drawn = self._belief.drawn(rng)
        passes = np.array([way.passes for way in ways])
        lasts_s = np.array([way.lasts_s for way in ways])
        rate = self._belief.progress(passes)[drawn] / lasts_s
        way = ways[int(rate.argmax())]
        last = _losses(log).get(log.cycle - 1)
        fall = self._belief.fall(way.passes) if last else 0.0
        log.steered(
            way.deadline_s,
            passes=way.passes,
            expected=last * math.exp(-fall) if last else None,
            why=f"{way.passes:.3g} passes in {way.lasts_s:.3g} s, if more than "
            f"{self._belief.full(drawn):.2g} add little",
        )

    def _learn(self, log: CycleLog) -> None:
        losses = _losses(log)
        for cycle in range(self._seen + 1, log.cycle):
            before, after = losses.get(cycle - 1), losses.get(cycle)
            passes = log.state.passes.get(cycle)
            if before and after and passes:
                self._belief.see(passes, math.log(before / after))
        self._seen = log.cycle - 1


def _losses(log: CycleLog) -> dict[int, float | None]:
    """Return the loss after each cycle so far."""
    return {tested.cycle: tested.loss for tested in log.state.evaluations}


async def ways_of(planned: Planned, samples: int) -> list[Way]:
    """Return deadlines with a plan, from the shortest up.

    Raises InfeasibleError if there is none.
    """
    shortest = await shortest_s(planned)
    ways = []
    for n in range(DOUBLINGS * TO_A_DOUBLING + 1):
        deadline_s = shortest * 2 ** (n / TO_A_DOUBLING)
        try:
            plan = await planned(deadline_s)
        except InfeasibleError:
            continue
        allocation, times_s = plan.allocation, plan.planned_s
        if times_s is None:
            times_s = plan.predicted_s
        assert times_s is not None
        passes = float((allocation.samples * allocation.steps).sum()) / samples
        ways.append(Way(deadline_s, float(times_s.max()), passes))
    return ways


async def shortest_s(planned: Planned) -> float:
    """Return the shortest deadline with a plan, within 2 %."""

    async def feasible(deadline_s: float) -> bool:
        try:
            await planned(deadline_s)
        except InfeasibleError:
            return False
        return True

    high = 1.0
    if await feasible(high):
        while high > 1e-6 and await feasible(high / 2):
            high /= 2
    else:
        while not await feasible(high := 2 * high):
            if high > 1e9:
                await planned(high)  # which says why
    for n in range(1, 6):
        nearer = high / 2 ** (0.5**n)
        high = nearer if await feasible(nearer) else high
    return high
