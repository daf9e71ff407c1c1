"""Metrics and loss of a model on a test set, and buffers to evaluate it with."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from melisma.errors import ConfigError, MelismaError
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import Loss, Supervised, checked, target_of
from melisma.learning.metrics import LOSS, Metric, Summed
from melisma.learning.parameters import buffers_are_local
from melisma.learning.samples import INPUTS, Batch, Samples, length

#: Samples that go forward through a model together.
TOGETHER = 1000
#: Samples at most from which buffers are estimated that stay on the learners.
ESTIMATED = 500


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


def estimate_buffers(model: nn.Module, samples: Samples, loss: Loss) -> None:
    """Set batch norm's statistics by one forward pass, where learners keep their own.

    They become mean and variance of up to ESTIMATED samples, taken evenly from all.
    Other layers run as in evaluation, so nothing is drawn at random, and other buffers
    stay as they are. Raises ConfigError if there are too few samples.
    """
    if not buffers_are_local(model):
        return
    model.train()  # a model may hold some of its layers fast
    parts = [part for part in model.modules() if isinstance(part, _NormBase)]
    norms = [part for part in parts if part.training and part.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum, norm.training = None, True  # None: the mean over all batches
    rows = np.linspace(0, len(samples) - 1, min(len(samples), ESTIMATED)).astype(int)
    try:
        with torch.no_grad(), fast_kernels(model):
            if norms:
                loss(model, samples[rows])
    except ValueError as error:
        raise ConfigError(
            f'buffers = "local": they cannot be estimated from {len(rows)} samples: '
            f"{error}"
        ) from error
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.eval()


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
