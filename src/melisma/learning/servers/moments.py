"""Moments of mean changes, one tensor of float64 for each parameter."""

from abc import ABC, abstractmethod
from collections.abc import Collection

import torch
from torch import Tensor

from melisma.errors import DataError
from melisma.learning.parameters import Parameters

#: Before the name of a moment and a parameter in a checkpoint.
PREFIX = "server/"


class Moments(ABC):
    """A server whose step of a parameter follows from its change and its moments.

    ``first`` has their names, and the values with which they begin.
    """

    def __init__(self, **first: float) -> None:
        self._first, self._kept = first, Parameters()

    @abstractmethod
    def move(self, name: str, change: Tensor) -> Tensor:
        """Return how far a parameter moves; renew its moments."""

    def renewed(self, kind: str, name: str, change: Tensor) -> Tensor:
        """Return a moment to be changed in place."""
        key = f"{PREFIX}{kind}/{name}"
        if key not in self._kept:
            self._kept[key] = torch.full_like(change, self._first[kind])
        return self._kept[key]

    def step(
        self, model: Parameters, mean: Parameters, moving: Collection[str]
    ) -> Parameters:
        """Return the next model; what is not ``moving``, as statistics, is the mean."""
        after = dict(mean)
        for name in moving:
            before = model[name].double()
            moved = before + self.move(name, mean[name].double() - before)
            after[name] = moved.to(mean[name])
        return after

    def state(self) -> Parameters:
        """Return the moments, for a checkpoint."""
        return {key: moment.cpu().clone() for key, moment in self._kept.items()}

    def restore(self, saved: Parameters) -> None:
        """Go on with those of a checkpoint, which may have more."""
        kept = {key: t for key, t in saved.items() if key.startswith(PREFIX)}
        for key in kept:
            kind = key.removeprefix(PREFIX).partition("/")[0]
            if kind not in self._first:
                raise DataError(f"the checkpoint has a {key!r}: it is of another job")
        self._kept = {key: t.double().clone() for key, t in kept.items()}
