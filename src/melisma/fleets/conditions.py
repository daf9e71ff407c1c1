"""How simulated learners differ from what the orchestrator knows of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from melisma.errors import ConfigError
from melisma.learning.settings import Late
from melisma.maths.arrays import Floats
from melisma.system.spot import SpotInstances


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How learners are probed."""

    batches: int = 5
    noise: float = 0.1  #: spread (σ of the logarithm) of what is measured
    latency_s: float = 0.1  #: of the report and of the order that follows


PROBE = Probe()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conditions:
    """How simulated learners differ from what the orchestrator knows of them."""

    probability: Floats | None = None  #: γ, learners × states; a state a cycle
    changing: float = 0.0  #: chance that a state changes once, within a cycle
    noise: float = 0.0  #: spread (σ of the logarithm) of compute and network times
    #: In place of noise: how many times as long compute and network take in a cycle.
    slower: Callable[[int], Floats] | None = None
    late: Late = Late.HALT  #: what happens to a learner not done by the deadline
    look_every: int = 10  #: batches between two looks at the clock (Late.OVERRUN)
    staleness_at_most: int = 5  #: cycles for which an update is carried (Late.CARRY)
    timing: bool = False  #: only times are computed: nothing is ever trained
    adaptive: bool = False  #: learners bid with a margin, by how they have drifted
    late_at_most: float | None = None  #: share of cycles, by which they bid instead
    spot: SpotInstances | None = None  #: when learners are reclaimed and come back

    def __post_init__(self) -> None:
        if not (np.isfinite(self.noise) and self.noise >= 0):
            raise ConfigError(f"noise of {self.noise}: give a finite number from 0 up")
