"""Gradients as flat vectors, for coded training."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from melisma.errors import ConfigError
from melisma.learning.checks import check_repeatable
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import Loss
from melisma.learning.memory import is_short
from melisma.learning.parameters import Model, trained
from melisma.learning.samples import Samples

#: Samples in one forward and backward pass; bounds the memory.
_TOGETHER = 500


def check_additive(model: Model) -> None:
    """Raise ConfigError unless gradients of parts of the data add up to that of all."""
    check_repeatable(model)
    for name, part in model.named_modules():
        if isinstance(part, _BatchNorm):
            raise ConfigError(
                f"layer {name!r} of the model is {part}: gradients of parts of a batch "
                "do not add up to that of all: use a model without batch normalisation "
                "for coded training, as with nn.GroupNorm"
            )
    for name, value in model.named_buffers():
        if value.is_floating_point():
            raise ConfigError(
                f"buffer {name!r} of the model has no gradient: use a model without "
                "real-valued buffers for coded training"
            )


def gradient_sum(
    model: Model, samples: Samples, loss: Loss
) -> tuple[NDArray[Any], float]:
    """Return the sums over samples of gradients, as a float32 vector, and of losses.

    Fewer samples go through the model at a time where memory does not suffice.
    """
    model.train()
    at_once = _TOGETHER
    while True:
        try:
            with fast_kernels(model):
                total = _add_up(model, samples, loss, at_once)
            return _vector(model), total
        except (MemoryError, RuntimeError) as error:
            if not is_short(error) or at_once == 1:
                raise
        at_once //= 2


def _add_up(model: Model, samples: Samples, loss: Loss, at_once: int) -> float:
    """Leave the sum of gradients in the model; return that of losses."""
    model.zero_grad(set_to_none=True)
    total = 0.0
    for start in range(0, len(samples), at_once):
        together = loss(model, samples[start : start + at_once]).sum()
        together.backward()  # type: ignore[no-untyped-call]
        total += float(together.detach())
    return total


def _vector(model: nn.Module) -> NDArray[Any]:
    parts = [
        torch.zeros_like(p) if p.grad is None else p.grad
        for p in trained(model).values()
    ]
    return torch.cat([part.reshape(-1) for part in parts]).cpu().numpy()


def size_of(model: Model) -> int:
    """Return the length of a gradient vector."""
    return sum(parameter.numel() for parameter in trained(model).values())
