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

    maximise    E[g · u(x(T))] / t(T)        progress a second, expected

X and p are unknown, and so is how much a loss goes up and down by chance, σ; g falls as
the model gets better. A Bayes filter on a grid learns them from the fall of each cycle,
beginning with what is usual: X about 8. It is the more telling the more deadlines
differ, so one is drawn of all that are nearly as good as the best. The draw depends on
the seed and the cycle alone, and what is believed on records alone: a resumed run goes
on with the deadlines it would have had.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from melisma.algorithms.log import CycleLog
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats
from melisma.system.streams import Stream

#: Hypotheses: X in passes over a cycle's samples, p, and σ of ln loss.
FULL = np.geomspace(0.5, 64.0, 15)
SHAPES = (1.0, 2.0)
NOISES = (0.01, 0.03, 0.1, 0.3)
#: What X is believed to be at first: its median, and the deviation of ln X.
USUAL, SPREAD = 8.0, 1.0
#: ln g, and the deviation of its step from cycle to cycle.
GAINS = np.linspace(math.log(1e-4), math.log(3.0), 52)
GAIN_STEP = 0.3
#: Deviation of a fall around what is expected of it, as a share; σ comes to it.
UNEVEN = 0.3
#: Chance that a fall says nothing at all.
STRAY = 0.02
#: Deadlines tried: from the shortest that is feasible up, so many to a doubling.
TO_A_DOUBLING, DOUBLINGS = 4, 7
#: Progress a second that may be lost for the sake of learning more, as a share.
NEARLY = 0.08

Planned = Callable[[float], Awaitable[Plan]]


class Belief:
    """How probable every X, p, σ and g is: a Bayes filter on a grid."""

    def __init__(self) -> None:
        hypotheses = np.array(list(product(FULL, SHAPES, NOISES)))
        self._full, self._shape, self._noise = hypotheses.T[:, :, None]
        usual = np.exp(-0.5 * (np.log(self._full / USUAL) / SPREAD) ** 2)
        self.weights: Floats = np.repeat(usual, len(GAINS), axis=1)
        self.weights /= self.weights.sum()
        step = (GAINS[:, None] - GAINS) / GAIN_STEP
        kernel = np.exp(-0.5 * step**2)
        self._walk: Floats = kernel / kernel.sum(axis=1, keepdims=True)

    def see(self, passes: float, fall: float) -> None:
        """Learn from a cycle: by how much ln loss fell."""
        expected = self.progress(np.array([passes])) * np.exp(GAINS)
        spread = np.hypot(UNEVEN * expected, self._noise)
        likely = np.exp(-0.5 * ((fall - expected) / spread) ** 2) / spread
        weights = self.weights * (likely + STRAY * likely.mean())
        self.weights = (weights / weights.sum()) @ self._walk

    def progress(self, passes: Floats) -> Floats:
        """u(x) under each hypothesis: hypotheses × passes."""
        whole: Floats = passes / (1 + (passes / self._full) ** self._shape)
        return whole

    def falls(self, passes: Floats) -> Floats:
        """Return the falls to expect of so many passes."""
        gains: Floats = self.weights @ np.exp(GAINS)
        return gains @ self.progress(passes)

    def full(self) -> float:
        """Return the X to expect, the median."""
        mass = self.weights.sum(axis=1).reshape(len(FULL), -1).sum(axis=1)
        return float(FULL[np.searchsorted(mass.cumsum(), 0.5)])


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
        passes = np.array([way.passes for way in ways])
        lasts_s = np.array([way.lasts_s for way in ways])
        falls = self._belief.falls(passes)
        rng = np.random.default_rng([self._seed, Stream.DEADLINE, log.cycle])
        rates = falls / lasts_s
        good = np.flatnonzero(rates >= (1 - NEARLY) * rates.max())
        drawn = int(rng.choice(good))
        way, last = ways[drawn], _losses(log).get(log.cycle - 1)
        log.steered(
            way.deadline_s,
            passes=way.passes,
            expected=last * math.exp(-falls[drawn]) if last else None,
            why=f"{way.passes:.3g} passes over the samples in {way.lasts_s:.3g} s, as "
            f"more than {self._belief.full():.2g} are expected to add little",
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
