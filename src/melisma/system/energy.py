"""What a cycle spends: joules, money or carbon, by one law, beside that of time.

    E(d, τ) = e²·τ·d + e¹·d + e⁰ where d > 0      for d samples and τ local steps

A learner that is known by the power it draws spends watts times seconds, so that the
coefficients follow from those of its delay law; what it costs or emits is the same law
with other coefficients:

              e²               e¹                         e⁰
    joules    W_c·C²           W_s·C¹                     W_s·C⁰ + that of waking
    money     p_j·e² + p_s·C²  p_j·e¹ + p_s·C¹ + p_b·Ω_d  p_j·e⁰ + p_s·C⁰ + 2·p_b·Ω_m
    carbon    g·e²             g·e¹                       g·e⁰

with W_c and W_s watts of computing and of sending, p prices of a joule, a second and a
byte, Ω bytes of a sample and of the model, and g grams per joule.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from melisma.errors import ConfigError
from melisma.maths.arrays import Bools, Floats, Ints, set_numbers
from melisma.system.law import DelayLaw

#: How many times as much as its profile says a learner may claim to have spent.
BELIEVED = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnergyLaw:
    """The three coefficients, as arrays over learners; in joules, money or grams."""

    step_j: Floats  #: e², to train on one sample once
    sample_j: Floats  #: e¹, to receive one sample
    fixed_j: Floats  #: e⁰, to take part at all

    def __post_init__(self) -> None:
        for name in ("step_j", "sample_j", "fixed_j"):
            set_numbers(self, name, each="learner")
        shapes = {self.step_j.shape, self.sample_j.shape, self.fixed_j.shape}
        if len(shapes) > 1 or self.step_j.ndim != 1:
            raise ConfigError(
                "step_j, sample_j and fixed_j have shapes "
                f"{self.step_j.shape}, {self.sample_j.shape} and {self.fixed_j.shape}: "
                "give one value per learner in each"
            )

    def each(self, steps: int) -> Floats:
        """Return what a sample takes, with so many steps."""
        return self.step_j * steps + self.sample_j

    def joules(self, samples: ArrayLike, steps: ArrayLike) -> Floats:
        """E(d, τ) of each learner; a learner without samples spends nothing."""
        d = np.asarray(samples, dtype=np.float64)
        tau = np.asarray(steps, dtype=np.float64)
        # e²·τ·d + e¹·d + e⁰
        spent = (self.step_j * tau + self.sample_j) * d + self.fixed_j
        return np.where(d > 0, spent, 0.0)

    def samples_within(self, limit_j: Floats, steps: int, most: Ints) -> Ints:
        """Return the most samples with which nobody spends more than its limit."""
        each = self.each(steps)
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.floor((limit_j - self.fixed_j) / each)
        fits = np.where(np.isnan(fits), np.inf, fits)  # nothing is left, nor needed
        d: Ints = np.clip(fits, 0, most).astype(np.int64)
        # Rounding of the quotient: what is spent decides.
        d = d + ((d < most) & (self.joules(d + 1, steps) <= limit_j))
        return d - ((d > 0) & (self.joules(d, steps) > limit_j))

    def only(self, learners: Ints | Bools) -> "EnergyLaw":
        """Return the law of some of the learners."""
        return EnergyLaw(
            step_j=self.step_j[learners],
            sample_j=self.sample_j[learners],
            fixed_j=self.fixed_j[learners],
        )

    def per_shard(self, size: int) -> "EnergyLaw":
        """Return the same law, counting shards of ``size`` samples."""
        return EnergyLaw(
            step_j=self.step_j * size,
            sample_j=self.sample_j * size,
            fixed_j=self.fixed_j,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """What all learners may spend together in a cycle, of one kind."""

    law: EnergyLaw
    most: float

    def __post_init__(self) -> None:
        if not self.most >= 0:
            raise ConfigError(f"budget of {self.most}: give a number from 0 up")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spending:
    """What a cycle may spend: all learners together, and each of its battery."""

    cost: EnergyLaw  #: what is to be least, or within the budget
    budget: float = np.inf  #: B, of all learners in a cycle
    energy: EnergyLaw | None = None  #: of batteries, where the cost is not in joules
    battery_j: Floats | float = np.inf  #: that each learner may spend
    hazard: Floats | float = 0.0  #: h, of being reclaimed, per second
    others: tuple[Budget, ...] = ()  #: that are kept beside the first

    def __post_init__(self) -> None:
        K = self.cost.step_j.shape
        set_numbers(self, "battery_j", shape=K, endless=True, each="learner")
        set_numbers(self, "hazard", shape=K, each="learner")
        laws = [budget.law for budget in self.budgets]
        for law in laws if self.energy is None else [*laws, self.energy]:
            if law.step_j.shape != K:
                raise ConfigError(
                    f"energy of {law.step_j.size} learners, and cost of {K[0]}: "
                    "give one value per learner in each"
                )

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """All that is limited."""
        return (Budget(self.cost, self.budget), *self.others)

    @classmethod
    def of_time(cls, law: DelayLaw) -> Self:
        """Return what is spent where nothing is known but times: a joule a second."""
        cost = EnergyLaw(step_j=law.step_s, sample_j=law.sample_s, fixed_j=law.fixed_s)
        return cls(cost=cost)

    @property
    def learners(self) -> int:
        """K, how many learners there are."""
        return self.cost.step_j.size

    def samples_within(self, steps: int, most: Ints) -> Ints:
        """Return the most samples that each learner's battery allows."""
        law = self.energy or self.cost
        return law.samples_within(np.asarray(self.battery_j), steps, most)

    def per_shard(self, size: int) -> "Spending":
        """Return the same, counting shards of ``size`` samples."""
        return replace(
            self,
            cost=self.cost.per_shard(size),
            energy=self.energy and self.energy.per_shard(size),
            others=tuple(Budget(b.law.per_shard(size), b.most) for b in self.others),
        )

    def only(self, learners: Ints | Bools) -> "Spending":
        """Return the same for some of the learners."""
        return Spending(
            cost=self.cost.only(learners),
            budget=self.budget,
            energy=self.energy and self.energy.only(learners),
            battery_j=np.asarray(self.battery_j)[learners],
            hazard=np.asarray(self.hazard)[learners],
            others=tuple(Budget(b.law.only(learners), b.most) for b in self.others),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerProfile:
    """What learners draw, cost and emit, as arrays over them."""

    computing_w: Floats
    sending_w: Floats  #: while data or a model travels
    waking_j: Floats  #: to take part in a cycle at all
    battery_j: Floats  #: that a battery holds; inf: the mains
    start_j: Floats  #: in it as the run begins
    harvest_w: Floats  #: that fill it
    joule_price: Floats
    second_price: Floats
    byte_price: Floats
    carbon_g: Floats  #: of a joule
    reclaim_s: Floats  #: mean time until a spot instance is reclaimed; inf: never
    returns_s: Floats  #: mean time until it is there again; inf: never

    def __post_init__(self) -> None:
        shape = np.shape(self.computing_w)
        for name in self.__dataclass_fields__:
            endless = name in ("battery_j", "start_j", "reclaim_s", "returns_s")
            set_numbers(self, name, shape=shape, endless=endless, each="learner")

    def only(self, learners: Ints) -> "PowerProfile":
        """Return the same of some of the learners."""
        names = self.__dataclass_fields__
        return PowerProfile(**{name: getattr(self, name)[learners] for name in names})

    @property
    def hazard(self) -> Floats:
        """h, of being reclaimed, per second."""
        return np.asarray(1.0 / self.reclaim_s)

    def level_j(self, learner: int, after_s: float, level_j: float) -> float:
        """Return what is in a battery that had so much, and was filled for a while."""
        filled_j = level_j + float(self.harvest_w[learner]) * max(after_s, 0.0)
        return min(filled_j, float(self.battery_j[learner]))

    def energy(self, law: DelayLaw) -> EnergyLaw:
        """Return joules: watts times what the delay law says."""
        return EnergyLaw(
            step_j=self.computing_w * law.step_s,
            sample_j=self.sending_w * law.sample_s,
            fixed_j=self.sending_w * law.fixed_s + self.waking_j,
        )

    def money(
        self, law: DelayLaw, *, sample_bytes: float, model_bytes: float
    ) -> EnergyLaw:
        """Return what joules, seconds and bytes cost; a model travels both ways."""
        energy, joule, second = self.energy(law), self.joule_price, self.second_price
        sample, model = self.byte_price * sample_bytes, self.byte_price * model_bytes
        return EnergyLaw(
            step_j=joule * energy.step_j + second * law.step_s,
            sample_j=joule * energy.sample_j + second * law.sample_s + sample,
            fixed_j=joule * energy.fixed_j + second * law.fixed_s + 2.0 * model,
        )

    def carbon(self, law: DelayLaw) -> EnergyLaw:
        """Return grams."""
        energy = self.energy(law)
        return EnergyLaw(
            step_j=self.carbon_g * energy.step_j,
            sample_j=self.carbon_g * energy.sample_j,
            fixed_j=self.carbon_g * energy.fixed_j,
        )

    def spent_j(
        self,
        learner: int,
        computing_s: float,
        sending_s: float,
        sensed_j: float | None = None,
    ) -> float:
        """Return what one learner spent in a cycle that took so long.

        What its own sensor says counts in place of that, up to `BELIEVED` times as
        much: one learner is not to use up what all may spend by a number.
        """
        drawn_j = self.computing_w[learner] * computing_s
        drawn_j += self.sending_w[learner] * sending_s + self.waking_j[learner]
        if sensed_j is None:
            return float(drawn_j)
        return float(min(sensed_j, BELIEVED * drawn_j))
