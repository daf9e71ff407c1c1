"""Along which axes the tensors of a model are cut, as layer after layer is followed."""

from dataclasses import dataclass

from torch import Tensor, nn

from melisma.learning.submodels.channels import (
    Channels,
    Pieces,
    joined,
    keep_whole,
    places,
)
from melisma.learning.submodels.part import Places


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor between layers: its shape, and the one axis that may be cut."""

    shape: tuple[int, ...]
    axis: int = -1
    pieces: Pieces = None

    def along(self, axis: int) -> Pieces:
        """Return the pieces of an axis; another one that is cut stays whole."""
        if axis % len(self.shape) == self.axis:
            return self.pieces
        keep_whole(self.pieces)
        return None

    def cut_at(self, axis: int, pieces: Pieces) -> "Value":
        """Return it with another axis that may be cut."""
        if pieces is None:
            return Value(self.shape)
        return Value(self.shape, axis % len(self.shape), pieces)

    def cut_shape(self, share: float) -> tuple[int, ...]:
        """Return the shape that is left."""
        if self.pieces is None:
            return self.shape
        size = self.shape[self.axis]
        kept = len(places(self.pieces, size, share))
        return (*self.shape[: self.axis], kept, *self.shape[self.axis + 1 :])


class Cuts:
    """Pieces of every axis of a model's tensors; those never seen stay whole."""

    def __init__(self) -> None:
        self._axes: dict[int, dict[int, Pieces]] = {}  # by the tensor's id
        #: What layers take in, where cutting it changes more than tensors.
        self.inputs: dict[nn.Module, Pieces] = {}

    def bind(self, tensor: Tensor | None, axis: int, pieces: Pieces) -> None:
        """Cut an axis of a tensor as these pieces; one that is tied, as all of them."""
        if tensor is None:
            return
        known = self._axes.setdefault(id(tensor), {})
        known[axis] = joined(known[axis], pieces) if axis in known else pieces
        if known[axis] is None:
            keep_whole(pieces)

    def outputs(self, tensor: Tensor, axis: int) -> Pieces:
        """Return the pieces of a layer's outputs: new ones, unless it was seen."""
        known = self._axes.setdefault(id(tensor), {})
        if axis not in known:
            known[axis] = ((Channels(tensor.shape[axis]), 1),)
        return known[axis]

    def takes(self, layer: nn.Module, pieces: Pieces) -> None:
        """Note what a layer takes in; the same each time that it is called."""
        known = self.inputs
        known[layer] = joined(known[layer], pieces) if layer in known else pieces
        if known[layer] is None:
            keep_whole(pieces)

    def places(self, tensor: Tensor, share: float) -> Places:
        """Return the places of a tensor that are kept."""
        known = self._axes.get(id(tensor), {})
        return tuple(
            places(known.get(axis), size, share)
            for axis, size in enumerate(tensor.shape)
        )
