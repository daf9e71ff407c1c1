"""Data, models and training: the only room that knows torch."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.learning import benchmark, data, models
    from melisma.learning.data import Dataset
    from melisma.learning.descent import Descent
    from melisma.learning.devices import placed
    from melisma.learning.evaluation import evaluate
    from melisma.learning.gradients import gradient_sum
    from melisma.learning.lengths import Sizes
    from melisma.learning.losses import LOSSES, loss_of, numbers
    from melisma.learning.metrics import METRICS
    from melisma.learning.parameters import Model, parameters_of, put
    from melisma.learning.samples import Arrays, Part, pairs
    from melisma.learning.settings import (
        HERE,
        Correction,
        Late,
        ServerRule,
        Training,
        Weights,
    )
    from melisma.learning.training import use_threads

__all__ = [
    "HERE",
    "LOSSES",
    "METRICS",
    "Arrays",
    "Correction",
    "Dataset",
    "Descent",
    "Late",
    "Model",
    "Part",
    "ServerRule",
    "Sizes",
    "Training",
    "Weights",
    "benchmark",
    "data",
    "evaluate",
    "gradient_sum",
    "loss_of",
    "models",
    "numbers",
    "pairs",
    "parameters_of",
    "placed",
    "put",
    "use_threads",
]

offer(
    globals(),
    data="Dataset",
    devices="placed",
    evaluation="evaluate",
    descent="Descent",
    gradients="gradient_sum",
    lengths="Sizes",
    losses="LOSSES loss_of numbers",
    metrics="METRICS",
    parameters="Model parameters_of put",
    samples="Arrays Part pairs",
    settings="HERE Correction Late ServerRule Training Weights",
    training="use_threads",
)
