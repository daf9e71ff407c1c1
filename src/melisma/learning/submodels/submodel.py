"""What all submodels have in common: a value that makes a part of any model."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.losses import Loss, checked
from melisma.learning.samples import Batch, length
from melisma.learning.submodels.part import Part


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Arguments with which a model is called."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A few samples, as the model takes them, and the loss that calls it."""

    loss: Loss
    batch: Batch

    def call(self, model: nn.Module) -> Call:
        """Return the arguments with which the loss calls the model first."""
        calls: list[Call] = []

        def see(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls.append(Call(args, kwargs))

        with tried(model) as probe:
            probe.register_forward_pre_hook(see, with_kwargs=True)
            self.loss(probe, self.batch)
        if not calls:
            raise ConfigError(
                "the loss does not call the model itself, so that no part of it can "
                "be found: let it call model(…), or leave submodel out"
            )
        return calls[0]

    def check(self, part: Part) -> None:
        """Raise ConfigError unless the part really runs, with losses that are finite.

        The user's own code may raise anything.
        """
        try:
            with tried(part.model) as probe:
                each = checked(self.loss(probe, self.batch), length(self.batch))
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            raise ConfigError(
                f"{part.submodel!r} of this model does not run: "
                f"{type(error).__name__}: {reason[:200]}"
            ) from error
        if not each.isfinite().all():
            raise ConfigError(
                f"the loss of {part.submodel!r} of this model is {each.tolist()}: it "
                "has to be finite"
            )


@contextmanager
def tried(model: nn.Module) -> Iterator[nn.Module]:
    """Give a copy to try, as it is in training; draws of others stay as they are."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        yield copy.deepcopy(model).train()


class Submodel(ABC):
    """Says which part of a model a learner trains."""

    __slots__ = ()

    #: How a job may write it.
    example: ClassVar[str]

    @classmethod
    @abstractmethod
    def of(cls, setting: str) -> Self:
        """Return it with what a job writes after its name; or ConfigError."""

    @abstractmethod
    def part(self, model: nn.Module, example: Example) -> Part:
        """Return its part of a model; ConfigError if that has none."""


def written(share: float) -> str:
    """Return a share as a job writes it, exactly.

    >>> written(0.5), written(1.0)
    ('0.5', '1')
    """
    return repr(share).removesuffix(".0")


def share_of(setting: str, example: str, *, below: bool) -> float:
    """Return the share that a job writes; ConfigError unless from 0 to 1.

    >>> share_of("0.5", "width 0.5", below=False)
    0.5
    """
    try:
        share = float(setting)
    except ValueError:
        share = -1.0
    if not (0 < share < 1 or (share == 1 and not below)):
        raise ConfigError(
            f"{example.split()[0]} {setting!r} has no share above 0 and "
            f"{'below' if below else 'up to'} 1: write for example {example!r}"
        )
    return share
