"""Gradients as flat vectors, for coded training, and the descent along their mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from melisma.errors import ConfigError, DataError
from melisma.learning.checks import check_repeatable
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import Loss
from melisma.learning.memory import is_short
from melisma.learning.parameters import Model, Parameters, trained
from melisma.learning.samples import Samples
from melisma.maths.arrays import Floats

#: Samples in one forward and backward pass; bounds the memory.
_TOGETHER = 500
#: Prefix of the velocity's names in a checkpoint.
VELOCITY = "velocity/"


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


class Descent:
    """Gradient descent with momentum μ: v ← μ·v + g, w ← w − rate·v."""

    def __init__(self, model: Model, *, rate: float, momentum: float) -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum {momentum}: give a number from 0 to below 1")
        self._shapes = {name: p.shape for name, p in trained(model).items()}
        self._rate, self._momentum = rate, momentum
        self._velocity: Floats = np.zeros(size_of(model))

    def step(
        self, parameters: Parameters, gradient: Floats, rate: float | None = None
    ) -> Parameters:
        """Return the parameters after a step along a mean gradient.

        ``rate`` takes the place of the usual one for this step.
        """
        self._velocity = self._momentum * self._velocity + gradient
        moved = (self._rate if rate is None else rate) * self._velocity
        return {
            name: parameters[name] - part.to(parameters[name])
            for name, part in self._parts(moved).items()
        }

    def state(self) -> Parameters:
        """Return the velocity by name, for a checkpoint."""
        return {
            VELOCITY + name: part.clone()
            for name, part in self._parts(self._velocity).items()
        }

    def restore(self, state: Parameters) -> None:
        """Set the velocity to that of a checkpoint; DataError if it has none."""
        for name, shape in self._shapes.items():
            if VELOCITY + name not in state or state[VELOCITY + name].shape != shape:
                raise DataError(
                    f"the checkpoint has no {VELOCITY + name!r} of shape "
                    f"{tuple(shape)}: it is of another job"
                )
        parts = [state[VELOCITY + name] for name in self._shapes]
        self._velocity = torch.cat([part.reshape(-1) for part in parts]).numpy()

    def _parts(self, vector: Floats) -> Parameters:
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        pieces: Sequence[NDArray[Any]] = np.split(vector, np.cumsum(sizes)[:-1])
        return {
            name: torch.from_numpy(piece).reshape(shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
