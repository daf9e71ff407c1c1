"""A part of a model: which entries of each tensor it has, and a module that has them.

Indices are kept for each axis of a tensor, not for each entry: a part of a matrix is
some rows and some columns of it.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from melisma.errors import DataError
from melisma.learning.parameters import Parameters, trained

#: Places along each axis of a tensor, one array an axis.
Places = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one learner trains of a model.

    ``model`` has the part's own tensors and names, and computes no more than them.
    """

    submodel: str  #: as a job writes it
    model: nn.Module
    down: Mapping[str, Places]  #: what travels to a learner
    up: Mapping[str, Places]  #: what it trains and sends back
    shapes: Mapping[str, tuple[int, ...]]  #: of the whole model's tensors

    def sent(self, parameters: Parameters) -> Parameters:
        """Return copies of what travels to a learner, of the whole model's."""
        return {n: _taken(parameters[n], at) for n, at in self.down.items()}

    def kept(self, parameters: Parameters) -> Parameters:
        """Return copies of what a learner trains, of the whole model's."""
        return {n: _taken(parameters[n], at) for n, at in self.up.items()}

    def owned(self, tensors: Parameters) -> Parameters:
        """Return copies of the part's entries of those of the whole's that there are.

        Names of a part that have none are left out.
        """
        return {n: _taken(t, self.up[n]) for n, t in tensors.items() if n in self.up}

    def renewed(self, values: Parameters, tensors: Parameters) -> Parameters:
        """Return tensors of the whole with the part's entries put in their places.

        Those that there are not yet are 0 elsewhere; all others stay.
        """
        found = dict(tensors)
        for name, value in values.items():
            whole = tensors.get(name, value.new_zeros(self.shapes[name])).clone()
            whole[_grid(self.up[name])] = value.to(whole)
            found[name] = whole
        return found

    def spread(self, update: Parameters, before: Parameters) -> Parameters:
        """Return the whole model with an update put in; all else is as before.

        DataError unless the update has the part's own names and shapes.
        """
        self.check(update)
        whole = {name: tensor.clone() for name, tensor in before.items()}
        for name, at in self.up.items():
            whole[name][_grid(at)] = update[name].to(whole[name])
        return whole

    def check(self, update: object) -> None:
        """Raise DataError unless this has the part's own names and shapes."""
        found = update if isinstance(update, dict) else {}
        shapes = {
            name: tuple(t.shape) for name, t in found.items() if isinstance(t, Tensor)
        }
        expected = {n: tuple(map(len, at)) for n, at in self.up.items()}
        if shapes != expected or len(found) != len(expected):
            raise DataError(f"the update is not one of {self.submodel!r} of this model")

    def mask(self, like: Parameters) -> Parameters:
        """Return which entries of the whole model a learner trains."""
        masks = {n: torch.zeros_like(t, dtype=torch.bool) for n, t in like.items()}
        for name, at in self.up.items():
            masks[name][_grid(at)] = True
        return masks

    def add(self, values: Mapping[str, Tensor | float], into: Parameters) -> None:
        """Add the part's values, or the same for all of a tensor, to the whole's."""
        for name in self.up:
            into[name][self.at(name)] += values[name]

    @property
    def travels_whole(self) -> bool:
        """Whether all of the model travels to a learner."""
        return all(
            tuple(map(len, self.down.get(name, ()))) == shape
            for name, shape in self.shapes.items()
        )

    def at(self, name: str) -> Places:
        """Return the index of its entries in a tensor of the whole model."""
        return _grid(self.up[name])

    def moving(self) -> dict[str, nn.Parameter]:
        """Return what a learner trains, without buffers."""
        return trained(self.model)


def shapes_in(like: Parameters) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors."""
    return {name: tuple(tensor.shape) for name, tensor in like.items()}


def everything(like: Parameters) -> dict[str, Places]:
    """Return all places of all tensors."""
    return {
        name: tuple(torch.arange(n) for n in tensor.shape)
        for name, tensor in like.items()
    }


def cut_out(model: nn.Module, at: Callable[[Tensor], Places]) -> nn.Module:
    """Return a copy with some places of each tensor; tied tensors stay tied."""
    small, made = copy.deepcopy(model), dict[int, Tensor]()

    def cut(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            kept = _taken(tensor.detach(), at(tensor))
            if isinstance(tensor, nn.Parameter):
                kept = nn.Parameter(kept, requires_grad=tensor.requires_grad)
            made[id(tensor)] = kept
        return made[id(tensor)]

    for name, layer in model.named_modules():
        mine = small.get_submodule(name)
        for own, tensor in layer._parameters.items():
            if tensor is not None:
                mine._parameters[own] = cut(tensor)  # type: ignore[assignment]
        for own, buffer in layer._buffers.items():
            if buffer is not None:
                mine._buffers[own] = cut(buffer)
    return small


def _taken(tensor: Tensor, at: Places) -> Tensor:
    return tensor[_grid(at)].clone() if at else tensor.clone()


def _grid(at: Places) -> Places:
    """Return places that select rows and columns and so on, each with each."""
    return tuple(
        places.view(*[-1 if i == axis else 1 for i in range(len(at))])
        for axis, places in enumerate(at)
    )
