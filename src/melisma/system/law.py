"""The delay law, and where its coefficients come from.

    t(d, τ) = C²·τ·d + C¹·d + C⁰        seconds for d samples and τ local steps

A *step* is one pass over the d samples. All five papers price a learner's cycle
this way; they differ in what they know:

    known                     C²              C¹                       C⁰
    channel and clock (CSA)   cycles / f      (F·P_d + 2·P_m·S_d)/r    2·P_m·S_m / r
    measured rates (DAB)      1 / c           Ω_d / b                  2·Ω_m / b
    states, expected (MED)    Σ γ / c         Σ γ·Ω_d / b              Σ γ·2·Ω_m / b

In federated mode the data is on the learner already: F·P_d and Ω_d fall away.

Papers: Mohammad and Sorour (CSA), Eq. 5; Mays et al. (DAB), Eq. 4; Mays's thesis
(MED), Eq. 4.2 and 4.3.

Differences from the papers:
1. CSA's Eq. 2 and 4 multiply by τ twice, Eq. 5 once: Eq. 5 stands.
2. The thesis's (4.2) and (4.3) leave the number of passes out; here it is τ.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats, Ints, numbers, set_numbers


class Mode(StrEnum):
    """Where the data is when a cycle begins."""

    PARALLEL = "parallel"  #: at the orchestrator, which sends each learner its share
    FEDERATED = "federated"  #: at the learners; nothing but the model travels


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What training one model costs, whoever trains it."""

    sample_bits: float  #: F·P_d, bits of one sample on the wire
    model_bits: float  #: P_m·S_m, bits of the model on the wire
    cycles_per_sample: float  #: C_m, clock cycles to train on one sample once
    model_bits_per_sample: float = 0.0  #: P_m·S_d, where a model grows with its data


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DelayLaw:
    """The three coefficients, as arrays over learners (or learners × states)."""

    step_s: Floats  #: C², seconds to train on one sample once
    sample_s: Floats  #: C¹, seconds to receive one sample
    fixed_s: Floats  #: C⁰, seconds to receive the model and send it back

    def __post_init__(self) -> None:
        set_numbers(self, "step_s", above=0.0, each="learner")
        set_numbers(self, "sample_s", each="learner")
        set_numbers(self, "fixed_s", each="learner")
        shapes = {self.step_s.shape, self.sample_s.shape, self.fixed_s.shape}
        if len(shapes) > 1:
            raise ConfigError(
                "step_s, sample_s and fixed_s have shapes "
                f"{self.step_s.shape}, {self.sample_s.shape} and {self.fixed_s.shape}: "
                "give one value per learner in each"
            )

    @classmethod
    def from_channel(
        cls,
        workload: Workload,
        *,
        clock_hz: ArrayLike,
        rate_bps: ArrayLike,
        mode: Mode = Mode.PARALLEL,
    ) -> Self:
        """Coefficients of learners known by clock and radio rate (CSA)."""
        f, r = np.broadcast_arrays(
            _rates("clock_hz", clock_hz), _rates("rate_bps", rate_bps)
        )
        data = workload.sample_bits if mode == Mode.PARALLEL else 0.0
        return cls(
            step_s=workload.cycles_per_sample / f,
            sample_s=(data + 2.0 * workload.model_bits_per_sample) / r,
            fixed_s=2.0 * workload.model_bits / r,
        )

    @classmethod
    def from_rates(
        cls,
        *,
        samples_per_s: ArrayLike,
        bytes_per_s: ArrayLike,
        sample_bytes: float,
        model_bytes: float,
        mode: Mode = Mode.PARALLEL,
    ) -> Self:
        """Coefficients of learners known by benchmark (DAB).

        ``samples_per_s`` counts one pass. Give shards for samples throughout, and
        the law counts shards.
        """
        c, b = np.broadcast_arrays(
            _rates("samples_per_s", samples_per_s), _rates("bytes_per_s", bytes_per_s)
        )
        data = sample_bytes if mode == Mode.PARALLEL else 0.0
        return cls(step_s=1.0 / c, sample_s=data / b, fixed_s=2.0 * model_bytes / b)

    def expected(self, probability: ArrayLike) -> "DelayLaw":
        """Mean over the last axis, the learners' states, weighted by γ (MED)."""
        gamma = np.asarray(probability, dtype=np.float64)
        if (gamma < 0).any() or not np.allclose(gamma.sum(axis=-1), 1.0):
            raise ConfigError(
                f"state probabilities {gamma.tolist()} must be at least 0 and sum to 1"
            )
        return DelayLaw(
            step_s=(gamma * self.step_s).sum(axis=-1),
            sample_s=(gamma * self.sample_s).sum(axis=-1),
            fixed_s=(gamma * self.fixed_s).sum(axis=-1),
        )

    def at(self, learners: Ints, states: Ints) -> "DelayLaw":
        """Each learner's coefficients in the state it is in."""
        return DelayLaw(
            step_s=self.step_s[learners, states],
            sample_s=self.sample_s[learners, states],
            fixed_s=self.fixed_s[learners, states],
        )

    def only(self, learners: Ints | Bools) -> "DelayLaw":
        """Return the law of some of the learners."""
        return DelayLaw(
            step_s=self.step_s[learners],
            sample_s=self.sample_s[learners],
            fixed_s=self.fixed_s[learners],
        )

    def slowed(
        self,
        *,
        compute: Floats | float = 1.0,
        network: Floats | float = 1.0,
        overhead_s: Floats | float = 0.0,
    ) -> "DelayLaw":
        """Return the law with times multiplied, and with an overhead in each cycle."""
        return DelayLaw(
            step_s=self.step_s * compute,
            sample_s=self.sample_s * network,
            fixed_s=self.fixed_s * network + overhead_s,
        )

    def measured(
        self, *, shards: int, noise: float, rng: np.random.Generator
    ) -> "DelayLaw":
        """Return the law that a benchmark of some shards finds (SB).

        Each shard takes exp(noise·N(0, 1)) times what the law says, its transfer and
        its training apart; the benchmark divides the sum of their times. A model's
        transfer is by the rate of the shards'.
        """
        slower = np.exp(noise * rng.standard_normal((2, shards, *self.step_s.shape)))
        compute, network = slower.mean(axis=1)
        return self.slowed(compute=compute, network=network)

    def per_shard(self, size: int) -> "DelayLaw":
        """Return the same law, counting shards of ``size`` samples."""
        return DelayLaw(
            step_s=self.step_s * size,
            sample_s=self.sample_s * size,
            fixed_s=self.fixed_s,
        )

    def seconds(self, samples: ArrayLike, steps: ArrayLike) -> Floats:
        """t(d, τ) of each learner; a learner without samples takes no time.

        The order of operations is fixed: rounding then keeps t monotone in d and
        in τ, which the exact schemes rely on.
        """
        d = np.asarray(samples, dtype=np.float64)
        tau = np.asarray(steps, dtype=np.float64)
        # C²·τ·d + C¹·d + C⁰
        t = self.step_s * tau * d + self.sample_s * d + self.fixed_s
        return np.where(d > 0, t, 0.0)


def _rates(name: str, values: ArrayLike) -> Floats:
    return numbers(name, np.atleast_1d(values), above=0.0, each="learner")
