"""Freeze: the first layers stay as they came, and only the others are trained.

    freeze s     ⌊s·L⌋ of the L layers, one at least, in the order in which they run

No gradient goes further back than to the first layer that is trained, and only what is
trained is sent back. The whole model still travels to a learner, and all of it computes
outputs: at best a third of the operations is left, where width leaves a square. So
freezing is for models that cannot be cut, or that were trained before.

The statistics of batch norm are renewed in frozen layers, too, as torch does it.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from melisma.errors import ConfigError
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.submodels.part import Part, everything, shapes_in
from melisma.learning.submodels.submodel import (
    Example,
    Submodel,
    share_of,
    tried,
    written,
)


@dataclass(frozen=True, slots=True)
class Freeze(Submodel):
    """All but the first layers."""

    share: float  #: s, of the layers that stay as they came

    example: ClassVar[str] = "freeze 0.5"

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it for a share of the layers."""
        return cls(share_of(setting, cls.example, below=True))

    def __str__(self) -> str:
        return f"freeze {written(self.share)}"

    def part(self, model: nn.Module, example: Example) -> Part:
        """Return the model with its first layers frozen; ConfigError if it has one."""
        layers = _layers(model, example)
        if len(layers) < 2:
            raise ConfigError(
                f"{self} of a model with {len(layers)} layer that is trained: leave "
                "submodel out"
            )
        frozen = max(1, math.floor(self.share * len(layers) + 1e-9))
        still = {name for layer in layers[frozen:] for name in layer}
        small = copy.deepcopy(model)
        for name, parameter in trained(small).items():
            parameter.requires_grad_(name in still)
        like = parameters_of(model)
        all_places = everything(like)
        kept = {name: all_places[name] for name in parameters_of(small)}
        part = Part(str(self), small, all_places, kept, shapes_in(like))
        example.check(part)
        return part


def _layers(model: nn.Module, example: Example) -> list[list[str]]:
    """Return the trained parameters of each layer, in the order in which layers run.

    A layer whose tensors another one uses belongs to that one; a tensor of several
    layers belongs to the last of them, since it is trained as long as one of them is.
    """
    order: dict[str, int] = {}

    def see(name: str) -> Callable[[nn.Module, Any], None]:
        def note(_: nn.Module, __: Any) -> None:
            order.setdefault(name, len(order))

        return note

    with tried(model) as probe:
        for name, layer in probe.named_modules():
            layer.register_forward_pre_hook(see(name))
        example.loss(probe, example.batch)
    found: dict[int, list[str]] = {}
    owners: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(tensor), []).append(name.rpartition(".")[0])
    for name, tensor in trained(model).items():
        place = max(order[_running(owner, order)] for owner in owners[id(tensor)])
        found.setdefault(place, []).append(name)
    return [found[place] for place in sorted(found)]


def _running(name: str, order: dict[str, int]) -> str:
    """Return the innermost module that runs and has this one in it."""
    while name and name not in order:
        name = name.rpartition(".")[0]
    return name
