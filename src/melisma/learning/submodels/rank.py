"""Rank: the first r of the R rows and columns that adapters have in between (LoRA).

    y = W·x + B·A·x,    A: R × inputs, B: outputs × R;    of A the first r rows, of B
                                                          the first r columns

An adapter says where its ranks are, by the names of its parameters and an axis each:

    class Adapted(nn.Module):
        rank_axes = {"down": 0, "up": 1}

Each rank adds its own to the outputs, and B begins with zeros, so nothing is scaled: if
the adapter multiplies by α/R, it still does. The frozen base is as large as ever, so a
smaller rank saves bytes and memory, and hardly any operations.

Paper: Y. J. Cho et al., "Heterogeneous LoRA for Federated Fine-tuning of On-Device
Foundation Models", arXiv:2401.06432.

Differences from the paper:
1. A rank counts in the mean of those who trained it; the paper weighs updates by their
   norms, and takes those who lack a rank for zeros.
2. Ranks are not pruned as training goes on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from melisma.errors import ConfigError
from melisma.learning.parameters import parameters_of
from melisma.learning.submodels.part import Part, Places, cut_out, shapes_in
from melisma.learning.submodels.submodel import Example, Submodel

#: Attribute of an adapter, with the axis of each parameter along which its ranks are.
AXES = "rank_axes"


@dataclass(frozen=True, slots=True)
class Rank(Submodel):
    """The first ranks of every adapter."""

    rank: int  #: r

    example: ClassVar[str] = "rank 4"

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it for a rank."""
        if not setting.isdecimal() or int(setting) < 1:
            raise ConfigError(
                f"rank {setting!r} is no whole number from 1 up: write for example "
                f"{cls.example!r}"
            )
        return cls(int(setting))

    def __str__(self) -> str:
        return f"rank {self.rank}"

    def part(self, model: nn.Module, example: Example) -> Part:
        """Return the model with adapters of lower rank; ConfigError if it has none."""
        axes = _axes(model)
        if not any(t.shape[a] > self.rank for t, a in axes.values()):
            raise ConfigError(
                f"{self} of a model that has no adapter of a higher rank, or none that "
                f"says so by {AXES} = {{'down': 0, 'up': 1}}: leave submodel out"
            )

        def at(tensor: Tensor) -> Places:
            _, cut = axes.get(id(tensor), (tensor, None))
            return tuple(
                torch.arange(min(self.rank, size) if axis == cut else size)
                for axis, size in enumerate(tensor.shape)
            )

        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        like = parameters_of(model)
        places = {name: at(tensors[name]) for name in like}
        small = cut_out(model, at)
        part = Part(str(self), small, places, places, shapes_in(like))
        example.check(part)
        return part


def _axes(model: nn.Module) -> dict[int, tuple[Tensor, int]]:
    """Return the parameters of adapters by their ids, and the axis of their ranks."""
    found: dict[int, tuple[Tensor, int]] = {}
    for name, layer in model.named_modules():
        said = getattr(layer, AXES, None)
        if said is None:
            continue
        own = dict(layer.named_parameters(recurse=False))
        fits = isinstance(said, Mapping) and all(
            key in own and type(axis) is int and 0 <= axis < own[key].ndim
            for key, axis in said.items()
        )
        ranks = {own[key].shape[axis] for key, axis in said.items()} if fits else set()
        if len(ranks) != 1:
            raise ConfigError(
                f"{AXES} = {said!r} of {name or 'the model'}: give an axis of each of "
                "its parameters that has one, all of them as long"
            )
        found |= {id(own[key]): (own[key], axis) for key, axis in said.items()}
    return found
