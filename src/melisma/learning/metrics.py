"""Metrics by name: what a model is judged by on the test set.

A metric is any function of a model and batches. Those here are sums over samples: the
model's outputs for ``x`` are compared with ``y``, or with ``x`` if there is no ``y``:

    accuracy   share of values whose largest logit is at the target
    mae, rmse  of the differences
    r2         share of the targets' variance that the outputs explain
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from melisma.errors import ConfigError, unknown
from melisma.learning.losses import Supervised, like, loss_of, target_of
from melisma.learning.samples import INPUTS, Batch
from melisma.learning.settings import Training

#: The name of the metric that every task has: the loss itself; less is better.
LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a model, from batches that it was not trained on."""

    name: str
    of: Callable[[nn.Module, Iterable[Batch]], float]
    more_is_better: bool = True
    percent: bool = False  #: shown as a percentage


@dataclass(frozen=True, slots=True)
class Summed:
    """A metric of sums over batches of functions of outputs and targets."""

    sums: Callable[[Tensor, Tensor], Tensor]  #: of a batch, in float64
    value: Callable[[list[float]], float]  #: from the sums of all

    def __call__(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """Return the metric of a model."""
        parts = [self.sums(model(batch[INPUTS]), target_of(batch)) for batch in batches]
        return self.value(torch.stack(parts).sum(dim=0).tolist())


def _right(outputs: Tensor, target: Tensor) -> Tensor:
    right = (outputs.argmax(dim=1) == target).sum()
    return torch.stack([right, right.new_tensor(target.numel())]).double()


def _differences(outputs: Tensor, target: Tensor) -> Tensor:
    y = like(target, outputs).double()
    off = outputs.double() - y
    n = off.new_tensor(float(y.numel()))
    return torch.stack(
        [n, off.abs().sum(), off.square().sum(), y.sum(), y.square().sum()]
    )


def _r2(sums: list[float]) -> float:
    n, _, squares, y, y_squares = sums
    spread = y_squares - y * y / n
    return 1.0 - squares / spread if spread > 0 else math.nan


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", of=Summed(_right, lambda s: s[0] / s[1]), percent=True),
        Metric(
            name="mae",
            of=Summed(_differences, lambda s: s[1] / s[0]),
            more_is_better=False,
        ),
        Metric(
            name="rmse",
            of=Summed(_differences, lambda s: math.sqrt(s[2] / s[0])),
            more_is_better=False,
        ),
        Metric(name="r2", of=Summed(_differences, _r2)),
    )
}


def metrics_for(
    names: Iterable[str | Metric] | None, training: Training
) -> tuple[Metric, ...]:
    """Return metrics by their names; ConfigError for an unknown or repeated one.

    Where none are given: accuracy if there are classes, else the loss itself.
    """
    if not names:
        loss = loss_of(training)
        by_class = isinstance(loss, Supervised) and loss.by_class
        return (METRICS["accuracy"] if by_class else BY_LOSS,)
    metrics = tuple(n if isinstance(n, Metric) else _named(n) for n in names)
    every = [metric.name for metric in metrics]
    if len(set(every)) < len(every):
        raise ConfigError(f"metrics {', '.join(every)}: give each once")
    if any(metric.name == LOSS and metric is not BY_LOSS for metric in metrics):
        raise ConfigError(
            f"a metric is called {LOSS!r}, as the loss is: give it another name"
        )
    return metrics


def _unused(model: nn.Module, batches: Iterable[Batch]) -> float:
    raise NotImplementedError  # `evaluate` has the loss in any case


#: The loss as *the* metric.
BY_LOSS = Metric(name=LOSS, of=_unused, more_is_better=False)


def _named(name: str) -> Metric:
    if name == LOSS:
        return BY_LOSS
    if name not in METRICS:
        raise unknown("metric", name, [*METRICS, LOSS])
    return METRICS[name]
