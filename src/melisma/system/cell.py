"""The indoor cell of CSA's Table I: half the learners fast, half slow, one channel."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.maths.arrays import Floats
from melisma.maths.channel import path_gain, shannon_bps
from melisma.system.law import DelayLaw, Mode, Workload
from melisma.system.problem import Problem
from melisma.units import watts

#: The network [784, 300, 124, 60, 10] on MNIST, as the paper counts it: weights
#: without biases at 32 bit, 4·(weights + units after the input) operations a sample,
#: one operation a clock cycle; 784 pixels of 8 bit.
CSA_WORKLOAD = Workload(
    sample_bits=784 * 8, model_bits=8_974_080, cycles_per_sample=1_123_736
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A learner's radio link to the orchestrator, the same both ways."""

    bandwidth_hz: float = 5e6  #: W, of each learner
    power_w: float = watts(23.0)  #: P, transmitted
    noise_w_per_hz: float = watts(-174.0)  #: N₀, a density
    intercept_db: float = 7.0  #: attenuation at 1 m
    slope_db: float = 2.1  #: attenuation per decade of distance; 21 in other readings

    def rate_bps(self, distance_m: ArrayLike) -> Floats:
        """Bits per second over ``distance_m``."""
        gain = path_gain(distance_m, self.intercept_db, self.slope_db)
        return shannon_bps(self.bandwidth_hz, self.power_w, gain, self.noise_w_per_hz)


def clocks(learners: int) -> Floats:
    """Clock of each learner in hertz: 2.4 GHz for the first half, 700 MHz after.

    >>> clocks(3).tolist()
    [2400000000.0, 2400000000.0, 700000000.0]
    """
    return np.where(np.arange(learners) < (learners + 1) // 2, 2.4e9, 0.7e9)


def cell(
    learners: int,
    deadline_s: float,
    *,
    samples: int = 60_000,
    least: int = 1,
    most: int | None = None,
    mode: Mode = Mode.PARALLEL,
    channel: Channel | None = None,
) -> Problem:
    """One cycle of the CSA paper's setting, all learners 50 m away."""
    law = DelayLaw.from_channel(
        CSA_WORKLOAD,
        clock_hz=clocks(learners),
        rate_bps=(channel or Channel()).rate_bps(50.0),
        mode=mode,
    )
    return Problem.of(
        law, samples=samples, deadline_s=deadline_s, least=least, most=most
    )
