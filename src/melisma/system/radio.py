"""A radio cell whose channels change from cycle to cycle.

    rate = W log₂(1 + P h(R) g / (N₀ W))        bits per second of a learner

R is its distance in this cycle, g its fading, drawn anew for each cycle and constant
within it (block fading), the same both ways. W is a learner's bandwidth. Where all
together want more than the system has, they take turns or share it evenly; with less
bandwidth a learner has less noise too, so that half of it is more than half the rate.

Everything is a function of seed, cycle and time. So a run that was cut short finds the
same channel in the same cycle, and one with another scheme the same fading.

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning", section V and Table I.

Differences from the paper:
1. It says only that nodes are within 50 m, and prints neither mobility nor fading.
2. Its 100 MHz limit 5 MHz a node to 20 nodes, and it has no more.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from melisma.maths.arrays import Bools, Floats, Ints
from melisma.maths.channel import path_gain, shannon_bps
from melisma.maths.walk import Walk, in_disc, on_ring
from melisma.system.cell import Channel
from melisma.system.law import DelayLaw, Mode, Workload
from melisma.system.streams import Stream

#: Nearer than this the attenuation is that at 1 m, where the law begins.
NEAREST_M = 1.0
#: Whoever has less cannot take part in any cycle, and the law needs a rate above 0.
SLOWEST_BPS = 1.0


class Fading(StrEnum):
    """How a channel's gain varies from cycle to cycle."""

    NONE = "none"
    RAYLEIGH = "rayleigh"  #: no line of sight: exponential with mean 1
    LOGNORMAL = "lognormal"  #: shadowing: normal in decibels, with median 1


class Beyond(StrEnum):
    """What learners do whose bandwidths are together more than the system's."""

    TURNS = "turns"  #: as many as fit take part in a cycle, in turn
    SHARE = "share"  #: all take part, each with an even share


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """How the channels of a cell change."""

    radius_m: float = 50.0  #: within which learners are placed and walk
    speed_mps: float = 0.0  #: of learners that walk; 0: all stay where they are
    pause_s: float = 0.0  #: of a walker at each place that it comes to
    fading: Fading = Fading.NONE
    spread_db: float = 8.0  #: σ of lognormal fading
    total_hz: float | None = None  #: B, of the system; None: no limit
    beyond: Beyond = Beyond.TURNS


class RadioCell:
    """The learners of a cell, and their delay law in each cycle.

    ``distance_m`` is where they are at first; None: uniform over the disc.
    """

    def __init__(
        self,
        channel: Channel,
        surroundings: Surroundings,
        *,
        workload: Workload,
        clock_hz: Floats,
        distance_m: Floats | None,
        mode: Mode = Mode.PARALLEL,
        seed: int = 0,
        overhead_s: float = 0.0,
    ) -> None:
        self._channel, self._around = channel, surroundings
        self._workload, self._clock_hz, self._mode = workload, clock_hz, mode
        self._seed, self._overhead_s, K = seed, overhead_s, len(clock_hz)
        self._given_m, start = distance_m, self._goals(0)
        if distance_m is not None:
            start = on_ring(distance_m, self._chance(0).random(K))
        self._walk = Walk(
            start,
            lambda leg: self._goals(leg + 1),
            speed_mps=surroundings.speed_mps or 1.0,
            pause_s=surroundings.pause_s,
        )

    def law(self, cycle: int, time_s: float, members: Ints) -> DelayLaw:
        """Return the law of all learners in a cycle; ``members`` share the bandwidth.

        ``time_s`` is when it begins, and must not go back.
        """
        law = DelayLaw.from_channel(
            self._workload,
            clock_hz=self._clock_hz,
            rate_bps=self.rate_bps(cycle, time_s, members),
            mode=self._mode,
        )
        return law.slowed(overhead_s=self._overhead_s) if self._overhead_s else law

    def rate_bps(self, cycle: int, time_s: float, members: Ints) -> Floats:
        """Return each learner's rate."""
        channel = self._channel
        gain = path_gain(
            self.distance_m(time_s), channel.intercept_db, channel.slope_db
        )
        rate = shannon_bps(
            self._bandwidth_hz(len(members)),
            channel.power_w,
            gain * self.fading(cycle),
            channel.noise_w_per_hz,
        )
        return np.maximum(rate, SLOWEST_BPS)

    def distance_m(self, time_s: float) -> Floats:
        """Return how far from the orchestrator each learner is."""
        walks = self._around.speed_mps > 0
        if self._given_m is not None and not walks:
            return self._given_m
        places = self._walk.at(time_s if walks else 0.0)
        distance_m: Floats = np.hypot(*places.T)
        return np.maximum(distance_m, NEAREST_M)

    def fading(self, cycle: int) -> Floats:
        """Return g, the factor on each learner's gain in a cycle."""
        K, rng = len(self._clock_hz), self._chance(1, cycle)
        match self._around.fading:
            case Fading.NONE:
                return np.ones(K)
            case Fading.RAYLEIGH:
                return rng.exponential(size=K)
            case Fading.LOGNORMAL:
                decibels = self._around.spread_db * rng.standard_normal(K)
                return np.asarray(10.0 ** (decibels / 10.0))

    def on_air(self, cycle: int, members: Ints) -> Bools:
        """Return which of the members have a turn in a cycle."""
        K, slots = len(members), self._slots(len(members))
        turn = (np.arange(K) - (cycle - 1) * slots) % max(K, 1)
        return np.asarray(turn < slots)

    def _slots(self, learners: int) -> int:
        """Return how many learners can take part at once."""
        total_hz, around = self._around.total_hz, self._around
        if total_hz is None or around.beyond == Beyond.SHARE:
            return learners
        return min(learners, int(total_hz / self._channel.bandwidth_hz * (1 + 1e-12)))

    def _bandwidth_hz(self, learners: int) -> float:
        own_hz, total_hz = self._channel.bandwidth_hz, self._around.total_hz
        if total_hz is None or self._around.beyond == Beyond.TURNS:
            return own_hz
        return min(own_hz, total_hz / max(learners, 1))

    def _goals(self, leg: int) -> Floats:
        """Return the places where learners begin (leg 0), and where they walk to."""
        K = len(self._clock_hz)
        return in_disc(K, self._around.radius_m, self._chance(2, leg))

    def _chance(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, Stream.CELL, *numbers])
