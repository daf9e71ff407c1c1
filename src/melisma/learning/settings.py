"""Settings of local training and aggregation, as a job gives them. Needs no torch."""

import math
import os
from dataclasses import dataclass, field, replace
from enum import StrEnum

from melisma.errors import ConfigError


class Rule(StrEnum):
    """How the learners' updates are aggregated."""

    MEAN = "mean"  #: weighted by the samples really trained
    MEDIAN = "median"  #: of each coordinate; a minority cannot move it far
    TRIMMED = "trimmed-mean"  #: of each coordinate, without its extremes


class Weights(StrEnum):
    """What each update counts in the mean."""

    SAMPLES = "samples"  #: that it was trained on
    DATA = "data"  #: that lies on its learner (FedAvg)
    LEARNERS = "learners"  #: the same for everyone
    FEDNOVA = "fednova"  #: data, of changes per step


class ServerRule(StrEnum):
    """How the orchestrator steps along the mean change."""

    SGD = "sgd"  #: with momentum, if that is given; else the mean is the model
    NESTEROV = "nesterov"  #: as DiLoCo's outer step
    ADAGRAD = "adagrad"  #: adaptive, as the next two (FedOpt)
    ADAM = "adam"
    YOGI = "yogi"


class Correction(StrEnum):
    """How learners' gradients are corrected by what updates have shown."""

    NONE = "none"
    SCAFFOLD = "scaffold"  #: by how each one's gradients differ from everybody's


#: Times that a benchmark is repeated at most.
MOST_REPEATS = 100


class Late(StrEnum):
    """What happens to a learner that has not finished at the deadline."""

    HALT = "halt"  #: it stops in time and sends what it has, which counts
    DROP = "drop"  #: it is cut off, and its work of the cycle is lost
    WAIT = "wait"  #: the cycle lasts until it is done
    OVERRUN = "overrun"  #: it halts once it sees that time is over, and sends then
    #: It sends what it has; with nothing to send it goes on, and counts when it comes.
    CARRY = "carry"

    @property
    def lasts(self) -> bool:
        """Whether work lasts beyond the deadline, for who sends after it."""
        return self in (Late.WAIT, Late.OVERRUN, Late.CARRY)


class Precision(StrEnum):
    """Number format of products; parameters are float32 in any case."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What simulated learners train on."""

    threads: int = 1  #: of the CPU
    device: str = "cpu"  #: as torch calls it: "cuda", "cuda:1"
    precision: Precision = Precision.FP32


DEVICE_VARIABLE = "MELISMA_DEVICE"
#: The default: one core, or the device that the environment variable names.
HERE = Hardware(device=os.environ.get(DEVICE_VARIABLE, "cpu"))


class Schedule(StrEnum):
    """How the learning rate changes over cycles."""

    CONSTANT = "constant"
    LINEAR = "linear"  #: falls evenly, to its floor after the last cycle
    COSINE = "cosine"  #: falls along half a wave, to its floor after the last
    EXPONENTIAL = "exponential"  #: by the same factor in each cycle


class Buffers(StrEnum):
    """What happens to a model's real-valued buffers, as batch norm's statistics."""

    AVERAGE = "average"  #: they travel, and are averaged as parameters are
    LOCAL = "local"  #: each learner keeps its own, from cycle to cycle


#: Stands for an optimiser that is a function of the task's own.
OWN = "own"

#: A value of an optimiser's argument, as TOML and messages have it.
Argument = bool | int | float | list[float]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How every learner trains: plain data, with functions by their names."""

    optimiser: str = "sgd"  #: of torch.optim, or OWN; its state lasts for one cycle
    rate: float = 0.05  #: learning rate
    batch: int = 32  #: samples in a batch
    shuffle: bool = True  #: a new order in every pass
    arguments: dict[str, Argument] = field(default_factory=dict)  #: the optimiser's
    loss: str = "cross-entropy"  #: a name in `learning.losses.LOSSES`
    clip: float | None = None  #: largest norm of a batch's gradient
    proximal: float = 0.0  #: μ of FedProx: pulls each step back to the cycle's model
    schedule: Schedule = Schedule.CONSTANT
    cycles: int = 1  #: of the whole run, over which the rate falls
    warmup: int = 0  #: cycles over which the rate rises to its full value
    floor: float = 0.0  #: share of the rate that is left in the end
    decay: float = 0.95  #: factor of each cycle, where it falls exponentially
    buffers: Buffers = Buffers.AVERAGE

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"learning rate {self.rate}: give a number above 0")
        if self.batch < 1:
            raise ConfigError(f"batch of {self.batch} samples: give at least 1")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip = {self.clip}: give a finite number above 0")
        if not 0 <= self.proximal < math.inf:
            raise ConfigError(f"proximal = {self.proximal}: give a number from 0 up")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"floor = {self.floor}: give a share from 0 to 1")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay = {self.decay}: give a factor from 0 to 1")
        if self.warmup < 0 or self.cycles < 1:
            raise ConfigError(
                f"warmup = {self.warmup} of {self.cycles} cycles: give 0 or more"
            )

    def at(self, cycle: int) -> "Training":
        """Return the training of a cycle, from 1 up: with the rate that is due then."""
        share = self._share(cycle)
        return self if share == 1 else replace(self, rate=share * self.rate)

    def _share(self, cycle: int) -> float:
        """Return the share of the rate that is due in a cycle.

        >>> falling = Training(schedule=Schedule.LINEAR, cycles=6, warmup=2)
        >>> [round(falling._share(cycle), 2) for cycle in range(1, 7)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        cycle = max(1, cycle)
        if cycle <= self.warmup:
            return cycle / self.warmup
        begun = cycle - self.warmup - 1
        past = begun / max(begun + 1, self.cycles - self.warmup)
        match self.schedule:
            case Schedule.LINEAR:
                return 1 - (1 - self.floor) * past
            case Schedule.COSINE:
                wave = (1 + math.cos(math.pi * past)) / 2
                return self.floor + (1 - self.floor) * wave
            case Schedule.EXPONENTIAL:
                return max(self.floor, self.decay**begun)
        return 1.0

    @property
    def is_plain_sgd(self) -> bool:
        """Whether a step is w ← w − rate·gradient and nothing else."""
        plain = self.optimiser.lower() == "sgd" and not any(self.arguments.values())
        return plain and self.clip is None and not self.proximal


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How updates are aggregated."""

    rule: Rule = Rule.MEAN
    trim: float = 0.1  #: share that the trimmed mean leaves out at either end
    clip: float | None = None  #: farthest that an update may lead from the model (L2)
    most_share: float = 1.0  #: of the mean, that one update may have
    weights: Weights = Weights.SAMPLES
    server: ServerRule = ServerRule.SGD
    rate: float | None = None  #: η of the server; None: its own
    momentum: float | None = None  #: β of the server; None: its own
    beta2: float = 0.99  #: by which squares fade (adam, yogi)
    epsilon: float = 1e-3  #: added to their roots (adagrad, adam, yogi)
    correction: Correction = Correction.NONE

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"trim = {self.trim}: give a share from 0 to below 0.5")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ConfigError(f"server's rate {self.rate}: give a number above 0")
        for name in ("momentum", "beta2"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name} = {value}: give a number from 0 to below 1")
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon = {self.epsilon}: give a number above 0")
        if not 0.5 <= self.most_share <= 1:
            raise ConfigError(
                f"most_share = {self.most_share}: give a share from 0.5 to 1"
            )
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip = {self.clip}: give a finite number above 0")
