"""Metrics and loss of a model on a test set."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from melisma.errors import ConfigError, MelismaError
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import Loss, Supervised, checked, target_of
from melisma.learning.metrics import LOSS, Metric, Summed
from melisma.learning.samples import INPUTS, Batch, Samples, length

#: Samples that go forward through a model together.
TOGETHER = 1000


class Scores(NamedTuple):
    """A model on a test set."""

    metrics: dict[str, float]
    loss: float  #: the mean over samples


class _Batches:
    """All samples, in batches; as often as they are gone through."""

    def __init__(self, samples: Samples, size: int) -> None:
        self._samples, self._size = samples, size

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self._samples), self._size):
            yield self._samples[start : start + self._size]


def evaluate(
    model: nn.Module,
    samples: Samples,
    loss: Loss,
    metrics: Sequence[Metric],
    batch: int = TOGETHER,
) -> Scores:
    """Return a model's metrics and mean loss; ConfigError if a metric raises.

    Metrics that are sums over outputs share one pass with a loss that compares them.
    """
    model.eval()
    batches, summed = _Batches(samples, batch), dict[str, Summed]()
    if isinstance(loss, Supervised):
        summed = {m.name: m.of for m in metrics if isinstance(m.of, Summed)}
    total, sums = 0.0, {name: list[Tensor]() for name in summed}
    with torch.no_grad(), fast_kernels(model):
        for one in batches:
            if isinstance(loss, Supervised):
                outputs = model(one[INPUTS])
                each = loss.of_outputs(outputs, one)
                for name, metric in summed.items():
                    sums[name].append(metric.sums(outputs, target_of(one)))
            else:
                each = loss(model, one)
            total += float(checked(each, length(one)).sum())
        mean = total / len(samples)
        values = {
            name: metric.value(torch.stack(sums[name]).sum(dim=0).tolist())
            for name, metric in summed.items()
        }
        values |= {LOSS: mean}
        values |= {
            metric.name: _value(metric, model, batches)
            for metric in metrics
            if metric.name not in values
        }
    return Scores({metric.name: values[metric.name] for metric in metrics}, mean)


def _value(metric: Metric, model: nn.Module, batches: _Batches) -> float:
    try:
        return float(metric.of(model, batches))
    except MelismaError:
        raise
    except Exception as error:  # the user's own code may raise anything
        reason = str(error).splitlines()[0] if str(error) else ""
        raise ConfigError(
            f"metric {metric.name!r} raised {type(error).__name__}: {reason[:200]}"
        ) from error
