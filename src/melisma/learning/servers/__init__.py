"""What the orchestrator does with the mean of a cycle's updates.

The mean change Δ = mean − θ is taken for a gradient's negative, and an optimiser of the
orchestrator's own steps along it:

    sgd        v ← β·v + Δ,                 θ ← θ + η·v;   β = 0, η = 1: the mean itself
    nesterov   v ← β·v + Δ,                 θ ← θ + η·(Δ + β·v)
    adagrad    v ← v + Δ²                                      θ ← θ + η·m/(√v + ε)
    adam       v ← β₂·v + (1 − β₂)·Δ²                          m ← β·m + (1 − β)·Δ
    yogi       v ← v − (1 − β₂)·Δ²·sign(v − Δ²)

Moments last for the whole run, so they are part of every checkpoint.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from melisma.learning.parameters import Parameters
from melisma.learning.servers.adagrad import Adagrad
from melisma.learning.servers.adam import Adam
from melisma.learning.servers.momentum import Momentum
from melisma.learning.servers.nesterov import Nesterov
from melisma.learning.servers.yogi import Yogi
from melisma.learning.settings import Merging, ServerRule


class Server(Protocol):
    """Steps along mean changes, from cycle to cycle."""

    def step(
        self, model: Parameters, mean: Parameters, moving: Collection[str]
    ) -> Parameters:
        """Return the next model; what is not ``moving``, as statistics, is the mean."""

    def state(self) -> Parameters:
        """Return the moments, for a checkpoint."""

    def restore(self, saved: Parameters) -> None:
        """Go on with those of a checkpoint, which may have more."""


def server_for(merging: Merging) -> Server:
    """Return the server's optimiser of a run."""
    rate, momentum = merging.rate, merging.momentum
    match merging.server:
        case ServerRule.SGD:
            return Momentum(_or(rate, 1.0), _or(momentum, 0.0))
        case ServerRule.NESTEROV:
            return Nesterov(_or(rate, 0.7), _or(momentum, 0.9))
    adaptive: dict[ServerRule, Callable[[float, float, float, float], Server]] = {
        ServerRule.ADAGRAD: Adagrad,
        ServerRule.ADAM: Adam,
        ServerRule.YOGI: Yogi,
    }
    return adaptive[merging.server](
        _or(rate, 0.01), _or(momentum, 0.9), merging.beta2, merging.epsilon
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
