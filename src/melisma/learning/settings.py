"""How learners train: what a job may say about it. Needs no torch."""

from dataclasses import dataclass
from enum import StrEnum

from melisma.errors import ConfigError


class Optimiser(StrEnum):
    """What turns gradients into steps; its state lasts for one cycle."""

    SGD = "sgd"
    ADAM = "adam"


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
