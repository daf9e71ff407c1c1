"""``deadline = "auto"``: a run that chooses its deadline, anew in each cycle.

Short cycles waste time on transfers, which take as long whatever is trained; long ones
on work that a learner does on its share alone, from parameters that grow stale. Of a
cycle in which a learner trains on x samples in the mean, each as often as it does, the
logarithm of the test loss is expected to fall by

    g · u(x),    u(x) = x / (1 + (x/X)^p)

Every sample counts g at first, and fully up to about X of them. Beyond that more adds
nothing (p = 1), or even takes away, as where models of unlike data drift apart (p = 2).
How many samples x(T) fit into a deadline T, and how long they really take, says the
planner itself, so that transfers, whole steps and learners that sit out are all in it.
Samples of a learner, and not passes over the data: models drift apart by what is done
alone, however much data there is. Nor batches, since rates are chosen by their size.

    maximise    E[g · u(x(T))] / t(T)        progress a second, expected

X and p are unknown, and so is how much a loss goes up and down by chance, σ; g falls as
the model gets better. A Bayes filter on a grid learns them from the fall of each cycle,
beginning with what is usual: X about 2,700. It is the more telling the more deadlines
differ, so one is drawn of all that are nearly as good as the best. The draw depends on
the seed and the cycle alone, and what is believed on records alone: a resumed run goes
on with the deadlines it would have had.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from melisma.algorithms.log import ROUNDING, CycleLog
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.system.streams import Stream

#: Hypotheses: X in samples of a learner, p, and σ of ln loss.
FULL = np.geomspace(64.0, 32768.0, 19)
SHAPES = (1.0, 2.0)
NOISES = (0.01, 0.03, 0.1, 0.3)
#: What X is believed to be at first: its median, and the deviation of ln X. Where
#: learners have few samples, it is no more than so many passes over them.
USUAL, SPREAD = 2700.0, 1.0
PASSES = 20
#: ln g, and the deviation of its step from cycle to cycle.
GAINS = np.linspace(math.log(1e-7), math.log(0.1), 70)
GAIN_STEP = 0.3
#: Deviation of a fall around what is expected of it, as a share; σ comes to it.
UNEVEN = 0.3
#: Chance that a fall says nothing at all.
STRAY = 0.02
#: Deadlines tried: from the shortest that is feasible up, so many to a doubling.
TO_A_DOUBLING, DOUBLINGS = 4, 7
#: Deadlines thought of, in seconds.
LEAST_S, MOST_S = 1e-6, 1e9
#: Share of the data that is enough, where all would take so many times as long.
MOST, PATIENCE = 0.8, 8
#: That a learner has time for at least, so that one is left if it is late.
BATCHES = 2
#: Progress a second that may be lost for the sake of learning more, as a share.
NEARLY = 0.08

Planned = Callable[[float], Awaitable[Plan]]


class Belief:
    """How probable every X, p, σ and g is: a Bayes filter on a grid."""

    def __init__(self, usual: float = USUAL) -> None:
        hypotheses = np.array(list(product(FULL, SHAPES, NOISES)))
        self._full, self._shape, self._noise = hypotheses.T[:, :, None]
        prior = np.exp(-0.5 * (np.log(self._full / usual) / SPREAD) ** 2)
        self.weights: Floats = np.repeat(prior, len(GAINS), axis=1)
        self.weights /= self.weights.sum()
        step = (GAINS[:, None] - GAINS) / GAIN_STEP
        kernel = np.exp(-0.5 * step**2)
        self._walk: Floats = kernel / kernel.sum(axis=1, keepdims=True)

    def see(self, trained: float, fall: float) -> None:
        """Learn from a cycle: by how much ln loss fell."""
        expected = self.progress(np.array([trained])) * np.exp(GAINS)
        spread = np.hypot(UNEVEN * expected, self._noise)
        fits = -0.5 * ((fall - expected) / spread) ** 2 - np.log(spread)
        likely = np.exp(fits - fits.max())  # something is, whatever came
        weights = self.weights * (likely + STRAY * likely.mean())
        self.weights = (weights / weights.sum()) @ self._walk

    def progress(self, trained: Floats) -> Floats:
        """u(x) under each hypothesis: hypotheses × samples."""
        whole: Floats = trained / (1 + (trained / self._full) ** self._shape)
        return whole

    def falls(self, trained: Floats) -> Floats:
        """Return the falls to expect of so many samples."""
        gains: Floats = self.weights @ np.exp(GAINS)
        return gains @ self.progress(trained)

    def full(self) -> float:
        """Return the X to expect, the median."""
        mass = self.weights.sum(axis=1).reshape(len(FULL), -1).sum(axis=1)
        return float(FULL[np.searchsorted(mass.cumsum(), 0.5)])


@dataclass(frozen=True, slots=True)
class Way:
    """A deadline, and what can be done by it."""

    deadline_s: float
    lasts_s: float  #: until the last learner is done
    trained: float  #: samples of a learner in the mean, each as often as it is
    share: float = 1.0  #: of the data that has a part


@dataclass(frozen=True, slots=True)
class Work:
    """What a cycle is to train on, in shards."""

    samples: int
    own: Sequence[int] | None = None  #: on each learner, where data lies on them
    batch: float = 0.0
    learners: int = 1  #: that may have a part
    shard: int = 1  #: samples
    each: float = math.inf  #: samples of a learner, in the mean over all

    def share(self, given: Ints, steps: Ints) -> float:
        """Return the share of the data that has a part where so much is given.

        Where data lies on learners it is that of all who have anything to do: a cycle's
        samples may be fewer than there are. Who has time for less than BATCHES, or all
        of its samples, has no part: a learner halts between two batches, so the first
        delay would leave nothing of its cycle.
        """
        least, work = BATCHES * self.batch, given * steps
        if self.own is None:
            enough = work >= min(least, self.samples / len(given))
            return float(given[enough].sum()) / self.samples
        own = np.asarray(self.own)
        enough = (work > 0) & (work >= np.minimum(least, own))
        return float(own[enough].sum()) / float(own.sum())


class Auto:
    """Chooses the deadline of each cycle."""

    def __init__(self, seed: int) -> None:
        self._seed, self._seen = seed, 0
        self._belief: Belief | None = None

    async def choose(self, log: CycleLog, work: Work, planned: Planned) -> None:
        """Give the cycle its deadline; ``planned`` returns the plan for one.

        Raises InfeasibleError if there is a plan for none.
        """
        if self._belief is None:
            self._belief = Belief(min(USUAL, PASSES * work.each))
        self._learn(log, self._belief)
        ways = await ways_of(planned, work)
        trained = np.array([way.trained for way in ways])
        lasts_s = np.array([way.lasts_s for way in ways])
        falls = self._belief.falls(trained)
        rng = np.random.default_rng([self._seed, Stream.DEADLINE, log.cycle])
        rates = falls / lasts_s
        good = np.flatnonzero(rates >= (1 - NEARLY) * rates.max())
        drawn = int(rng.choice(good))
        way, last = ways[drawn], _losses(log).get(log.cycle - 1)
        log.steered(
            way.deadline_s,
            trained=way.trained,
            expected=last * math.exp(-falls[drawn]) if last and last > 0 else None,
            why=f"{way.trained:.3g} samples of a learner in {way.lasts_s:.3g} s, as "
            f"more than {self._belief.full():.2g} are expected to add little",
        )

    def _learn(self, log: CycleLog, belief: Belief) -> None:
        losses = _losses(log)
        for cycle in range(self._seen + 1, log.cycle):
            before, after = losses.get(cycle - 1), losses.get(cycle)
            trained = log.state.trained.get(cycle)
            if before and after and trained and min(before, after) > 0:
                belief.see(trained, math.log(before / after))
        self._seen = log.cycle - 1


def _losses(log: CycleLog) -> dict[int, float | None]:
    """Return the loss after each cycle so far."""
    return {tested.cycle: tested.loss for tested in log.state.evaluations}


async def ways_of(planned: Planned, work: Work) -> list[Way]:
    """Return deadlines with a plan, from the shortest up.

    Raises InfeasibleError if there is none.
    """
    shortest = await shortest_s(planned, work)
    longer = [2 ** (n / TO_A_DOUBLING) for n in range(DOUBLINGS * TO_A_DOUBLING + 1)]
    ways = [await way_of(planned, work, shortest * times) for times in longer]
    return [way for way in ways if way.trained]


async def way_of(planned: Planned, work: Work, deadline_s: float) -> Way:
    """Return what can be done by a deadline: nothing where there is no plan."""
    try:
        plan = await planned(deadline_s)
    except InfeasibleError:
        return Way(deadline_s, deadline_s, 0.0, 0.0)
    times_s = plan.predicted_s if plan.planned_s is None else plan.planned_s
    assert times_s is not None
    in_time = times_s <= deadline_s * (1 + ROUNDING)
    given = plan.allocation.samples * in_time
    shards = float((given * plan.allocation.steps).sum())
    trained = shards * work.shard / work.learners
    lasts_s = min(float(times_s.max()), deadline_s)
    return Way(deadline_s, lasts_s, trained, work.share(given, plan.allocation.steps))


async def shortest_s(planned: Planned, work: Work) -> float:
    """Return the shortest deadline by which all data has a part, within 2 %.

    Or MOST of it, where all would take more than PATIENCE times as long: one learner
    that is slow, or says so, with data of its own does not stop all others.
    """

    async def covers(deadline_s: float, share: float) -> bool:
        way = await way_of(planned, work, deadline_s)
        return way.share >= share * (1 - ROUNDING)

    async def within(high: float, share: float) -> float:
        """Return the shortest from a half of this up."""
        for n in range(1, 6):
            nearer = high / 2 ** (0.5**n)
            high = nearer if await covers(nearer, share) else high
        return high

    high = 1.0
    if await covers(high, MOST):
        while high > LEAST_S and await covers(high / 2, MOST):
            high /= 2
    else:
        while not await covers(high := 2 * high, MOST):
            if high > MOST_S:
                await planned(high)  # which says why
                raise InfeasibleError(
                    f"no deadline of up to {MOST_S:g} s is enough to train once on "
                    f"{100 * MOST:g} % of the samples: use fewer, or faster learners"
                )
    most_s = await within(high, MOST)
    for times in (1, 2, 4, PATIENCE):
        if await covers(most_s * times, 1.0):
            return most_s if times == 1 else await within(most_s * times, 1.0)
    return most_s
