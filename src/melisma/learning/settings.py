"""Settings of local training and aggregation, as a job gives them. Needs no torch."""

import math
import os
from dataclasses import dataclass
from enum import StrEnum

from melisma.errors import ConfigError


class Optimiser(StrEnum):
    """The optimiser of local training; its state lasts for one cycle."""

    SGD = "sgd"
    ADAM = "adam"


class Rule(StrEnum):
    """How the learners' updates are aggregated."""

    MEAN = "mean"  #: weighted by the samples really trained
    MEDIAN = "median"  #: of each coordinate; a minority cannot move it far
    TRIMMED = "trimmed-mean"  #: of each coordinate, without its extremes


class Late(StrEnum):
    """What happens to a learner that has not finished at the deadline."""

    HALT = "halt"  #: it stops in time and sends what it has, which counts
    DROP = "drop"  #: it is cut off, and its work of the cycle is lost
    WAIT = "wait"  #: the cycle lasts until it is done


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How every learner trains."""

    optimiser: Optimiser = Optimiser.SGD
    rate: float = 0.05  #: learning rate
    batch: int = 32  #: samples in a batch
    shuffle: bool = True  #: a new order in every pass

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"learning rate {self.rate}: give a number above 0")
        if self.batch < 1:
            raise ConfigError(f"batch of {self.batch} samples: give at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How updates are aggregated."""

    rule: Rule = Rule.MEAN
    trim: float = 0.1  #: share that the trimmed mean leaves out at either end
    clip: float | None = None  #: farthest that an update may lead from the model (L2)
    most_share: float = 1.0  #: of the mean, that one update may have

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 0.5:
            raise ConfigError(f"trim = {self.trim}: give a share from 0 to below 0.5")
        if not 0.5 <= self.most_share <= 1:
            raise ConfigError(
                f"most_share = {self.most_share}: give a share from 0.5 to 1"
            )
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip = {self.clip}: give a finite number above 0")
