"""The orchestrator's step along a mean gradient: of coded training.

Its optimiser lasts for the whole run, so its state is part of every checkpoint.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from melisma.errors import ConfigError, DataError
from melisma.learning.gradients import size_of
from melisma.learning.optimisers import optimiser_for
from melisma.learning.parameters import Model, Parameters, trained
from melisma.learning.settings import Training
from melisma.maths.arrays import Floats

#: Prefixes of names in a checkpoint: of the velocity, and of an optimiser's tensors and
#: numbers.
VELOCITY, STATE, NUMBER = "velocity/", "optimiser/", "optimiser-number/"

Shapes = Mapping[str, torch.Size]


def descent_for(model: Model, training: Training) -> "Descent | OptimiserDescent":
    """Return how a run descends; ConfigError if the optimiser cannot.

    SGD has its velocity in double precision; the others are torch's own.
    """
    by_hand = training.optimiser.lower() == "sgd" and training.clip is None
    if by_hand and not training.arguments.keys() - {"momentum"}:
        momentum = training.arguments.get("momentum", 0.0)
        if not isinstance(momentum, int | float):
            raise ConfigError(f"momentum {momentum}: give a number")
        return Descent(model, rate=training.rate, momentum=momentum)
    return OptimiserDescent(model, training)


def shapes_of(model: Model) -> Shapes:
    """Return the shapes of what is trained, in the order of a gradient's parts."""
    return {name: p.shape for name, p in trained(model).items()}


def cut(vector: Floats, shapes: Shapes) -> Parameters:
    """Return the parts of a gradient vector by name."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    pieces: Sequence[NDArray[Any]] = np.split(vector, np.cumsum(sizes)[:-1])
    return {
        name: torch.from_numpy(piece).reshape(shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


class Descent:
    """Gradient descent with momentum μ: v ← μ·v + g, w ← w − rate·v."""

    def __init__(self, model: Model, *, rate: float, momentum: float) -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum {momentum}: give a number from 0 to below 1")
        self._shapes = shapes_of(model)
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
            for name, part in cut(moved, self._shapes).items()
        }

    def state(self) -> Parameters:
        """Return the velocity by name, for a checkpoint."""
        return {
            VELOCITY + name: part.clone()
            for name, part in cut(self._velocity, self._shapes).items()
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


class OptimiserDescent:
    """Steps of an optimiser of torch, or of the task's own, along mean gradients.

    What it keeps with each parameter is kept in checkpoints; what it keeps elsewhere is
    not.
    """

    def __init__(self, model: Model, training: Training) -> None:
        self._shapes, self._clip = shapes_of(model), training.clip
        self._values = {
            name: p.detach().clone().requires_grad_()
            for name, p in trained(model).items()
        }
        self._optimiser = optimiser_for(self._values.values(), training)

    def step(
        self, parameters: Parameters, gradient: Floats, rate: float | None = None
    ) -> Parameters:
        """Return the parameters after a step along a mean gradient.

        ``rate`` takes the place of the usual one for this step.
        """
        for name, part in cut(gradient, self._shapes).items():
            value = self._values[name]
            with torch.no_grad():
                value.copy_(parameters[name])
            value.grad = part.to(value)
        if self._clip is not None:
            clip_grad_norm_(self._values.values(), self._clip)
        for group in self._optimiser.param_groups:
            group["lr"] = group["lr"] if rate is None else rate
        self._optimiser.step()
        return {
            name: value.detach().to(parameters[name], copy=True)
            for name, value in self._values.items()
        }

    def state(self) -> Parameters:
        """Return what the optimiser keeps, for a checkpoint; ConfigError if it cannot.

        Numbers are kept as tensors of float64.
        """
        kept: Parameters = {}
        for name, value in self._values.items():
            for key, item in self._optimiser.state.get(value, {}).items():
                match item:
                    case None:
                        pass
                    case Tensor():
                        kept[f"{STATE}{name}/{key}"] = item.detach().cpu().clone()
                    case int() | float():
                        number = torch.tensor(item, dtype=torch.float64)
                        kept[f"{NUMBER}{name}/{key}"] = number
                    case _:
                        raise ConfigError(
                            f"the optimiser keeps a {type(item).__name__} as {key!r}, "
                            "which no checkpoint can hold: use tensors or numbers"
                        )
        return kept

    def restore(self, state: Parameters) -> None:
        """Set what the optimiser keeps to that of a checkpoint, which may have more.

        DataError if it is of another job.
        """
        found: dict[str, dict[str, Any]] = {name: {} for name in self._values}
        for label in state:
            kind, _, rest = label.partition("/")
            if f"{kind}/" not in (VELOCITY, STATE, NUMBER):
                continue
            name, _, key = rest.rpartition("/")
            if name not in found:
                raise DataError(f"the checkpoint has a {label!r}: it is of another job")
            item, value = state[label], self._values[name]
            on_it = item.to(value.device) if item.shape == value.shape else item
            is_number = f"{kind}/" == NUMBER
            found[name][key] = item.item() if is_number else on_it.clone()
        for name, kept in found.items():
            self._optimiser.state[self._values[name]] = kept
