"""Width: the first channels of every layer, so that it has fewer units and filters.

    width s     ⌈s·n⌉ of a layer's n outputs, and as many inputs of the next

The first layer keeps its inputs, the last its outputs. Narrower parts are parts of
wider ones, so that what all learners train is trained by the narrowest, too. A width of
½ has about a quarter of the parameters and of the operations.

A unit that sums over fewer inputs gives smaller numbers, and the next layer would learn
to make up for it, which the whole model then has too much of. So inputs of a cut layer
count n/⌈s·n⌉ times, as under dropout: what a part and the whole give is of one size,
and the whole's weights are what a part's are. The paper does the same with outputs
(*Scaler*), which is the same for all activations that are straight lines through 0.

Paper: E. Diao, J. Ding, V. Tarokh, "HeteroFL: Computation and Communication Efficient
Federated Learning for Heterogeneous Clients", arXiv:2010.01264.

Differences from the paper:
1. Inputs are scaled where they are cut, by the exact ratio; the paper scales the
   outputs of all layers but the last by 1/s.
2. Any model is cut, by following its graph; the paper writes each model anew.
3. Statistics of batch norm are averaged as others are; the paper's are static.
4. Outputs of classes that a learner lacks are trained like others (no masked loss).
"""

import copy
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import nn

from melisma.errors import ConfigError
from melisma.learning.parameters import parameters_of
from melisma.learning.submodels.graph import Followed, Misfit
from melisma.learning.submodels.layers import refit
from melisma.learning.submodels.part import Part, cut_out, shapes_in
from melisma.learning.submodels.submodel import (
    Call,
    Example,
    Submodel,
    share_of,
    written,
)


@dataclass(frozen=True, slots=True)
class Width(Submodel):
    """The first channels of every layer."""

    share: float  #: s

    example: ClassVar[str] = "width 0.5"

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it for a share of the channels."""
        return cls(share_of(setting, cls.example, below=False))

    def __str__(self) -> str:
        return f"width {written(self.share)}"

    def part(self, model: nn.Module, example: Example) -> Part:
        """Return the narrow model; ConfigError if it is not smaller, or cannot be."""
        call = example.call(model)
        probe = copy.deepcopy(model).train()
        try:
            followed, small = self._tried(probe, call, sizes=False)
        except Misfit:
            followed, small = self._tried(probe, call, sizes=True)
        tensors = dict(probe.named_parameters()) | dict(probe.named_buffers())
        like = parameters_of(model)
        places = {n: followed.cuts.places(tensors[n], self.share) for n in like}
        part = Part(str(self), small, places, places, shapes_in(like))
        example.check(part)
        sizes = [sum(t.numel() for t in m.parameters()) for m in (small, model)]
        if sizes[0] == sizes[1] and self.share < 1:
            raise ConfigError(
                f"{self} of this model is the whole of it: no layer can be cut, so "
                "leave submodel out"
            )
        return part

    def _tried(
        self, model: nn.Module, call: Call, *, sizes: bool
    ) -> tuple[Followed, nn.Module]:
        """Follow and cut a model; Misfit if the result is not as it was meant."""
        followed = Followed(model, call, sizes=sizes)
        small = self._cut(model, followed)
        followed.check(small, self.share)
        return followed, small

    def _cut(self, model: nn.Module, followed: Followed) -> nn.Module:
        """Return a narrow copy, whose layers know how wide they are."""
        cuts = followed.cuts
        small = cut_out(model, lambda tensor: cuts.places(tensor, self.share))
        for name, layer in model.named_modules():
            refit(small.get_submodule(name), cuts.inputs.get(layer), self.share)
        return small
