"""A model as a list of layers: what an engine without PyTorch needs to train it.

A chain: each layer takes what the one before gives. `torch.fx` traces the model, in
whichever way it is written; two samples of zeros tell the shape between the layers.
Shapes that depend on the batch's size, branches and layers that `chains` does not know
are refused, by the layer's name and type.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from melisma.errors import ConfigError, unknown
from melisma.learning.chains import (
    SUPPORTED,
    Layer,
    Unfit,
    called_of,
    first_line,
    told_function,
    told_module,
)
from melisma.learning.losses import LOSSES
from melisma.learning.optimisers import check_optimiser, named
from melisma.learning.parameters import trained
from melisma.learning.settings import Training

Shape = Sequence[int]

__all__ = ["Layer", "check_training", "outline_of"]

_ADAM = frozenset(("betas", "eps", "weight_decay", "amsgrad", "maximize"))
#: Optimisers that engines without PyTorch have, and what of each may be given.
OPTIMISERS: Mapping[str, frozenset[str]] = {
    "SGD": frozenset(("momentum", "dampening", "weight_decay", "nesterov", "maximize")),
    "Adam": _ADAM,
    "AdamW": _ADAM,
}
#: How PyTorch is to compute, which changes no result.
HOW = frozenset(("foreach", "fused", "capturable", "differentiable"))


def check_training(training: Training) -> None:
    """Raise ConfigError unless engines without PyTorch can train like this."""
    if training.loss not in LOSSES:
        raise unknown("loss", training.loss, LOSSES)
    check_optimiser(training)
    name = named(training.optimiser)
    if name not in OPTIMISERS:
        raise unknown("optimiser of a browser", training.optimiser, OPTIMISERS)
    for argument in training.arguments.keys() - OPTIMISERS[name] - HOW:
        raise unknown(f"argument of {name} in a browser", argument, OPTIMISERS[name])


def outline_of(model: nn.Module, sample_shape: Shape) -> list[Layer]:
    """Return a model's layers; ConfigError naming the first that cannot be told.

    Samples are whole numbers where the first layer is an embedding.
    """
    with torch.random.fork_rng(devices=[]):  # dropout draws
        probe = copy.deepcopy(model).cpu().train()
        layers = [layer for step in _steps(probe, sample_shape) for layer in step]
    told = {layer.name for layer in layers}
    for name, parameter in model.named_parameters():
        owner = name.rpartition(".")[0]
        if not parameter.requires_grad:
            raise _refused(owner, model, f"its {name!r} is frozen")
        if owner not in told:
            raise _refused(owner, model, f"its {name!r} is used in a way of its own")
    if not trained(model):
        raise ConfigError(f"{type(model).__name__} has nothing to train")
    return layers


def _steps(probe: nn.Module, sample_shape: Shape) -> list[list[Layer]]:
    """Return the layers of each step of a model that may be changed."""
    try:
        traced = fx.symbolic_trace(probe)
    except Exception as error:  # the model's own code may raise anything
        raise ConfigError(
            f"{type(probe).__name__} is no chain of layers: {first_line(error)}; "
            "write it as an nn.Sequential, without decisions that depend on values"
        ) from error
    walk = _Walk(traced, probe)
    first = next((n for n in traced.graph.nodes if n.op == "call_module"), None)
    whole = first is not None and isinstance(
        probe.get_submodule(str(first.target)), nn.Embedding
    )
    zeros = torch.zeros(2, *sample_shape, dtype=torch.int64 if whole else torch.float32)
    try:
        walk.run(zeros)
    except ConfigError:
        raise
    except Exception as error:  # as above
        raise ConfigError(
            f"{type(probe).__name__} does not take samples of {tuple(sample_shape)}: "
            f"{first_line(error)}"
        ) from error
    return walk.steps


class _Walk(fx.Interpreter):
    """Computes a traced model step by step, and notes each as a layer."""

    def __init__(self, traced: fx.GraphModule, probe: nn.Module) -> None:
        super().__init__(traced)
        self.extra_traceback = False
        self._probe, self._last = probe, ""  # the node whose tensor comes next
        self._used: set[str] = set()
        self.steps: list[list[Layer]] = []

    def run_node(self, n: fx.Node) -> Any:
        """Compute one step; ConfigError if it is no layer of a chain."""
        inputs = [i for i in n.all_input_nodes if isinstance(self.env[i], Tensor)]
        before = self.env[inputs[0]] if inputs else None
        result = super().run_node(n)
        if n.op == "placeholder":
            if self._last or not isinstance(result, Tensor):
                raise _refused(n.name, self._probe, "it takes more than its samples")
            self._last = n.name
        elif isinstance(result, Tensor) or n.op == "output":
            if [i.name for i in inputs] != [self._last] or before is None:
                name = n.target if isinstance(n.target, str) else n.name
                raise _refused(name, self._probe, "it is not in a chain")
            if n.op != "output":
                self.steps.append(self._told(n, before, result))
                self._last = n.name
            elif not isinstance(result, Tensor):
                raise _refused("output", self._probe, "it gives more than one tensor")
        elif n.op == "call_module":
            raise _refused(str(n.target), self._probe, "it gives more than one tensor")
        return result

    def _told(self, n: fx.Node, before: Tensor, after: Tensor) -> list[Layer]:
        name = str(n.target) if n.op == "call_module" else ""
        layer: Any = None
        try:
            if n.op == "call_module":
                layer = self._probe.get_submodule(name)
                return self._module(name, layer, before, after)
            return told_function(n, before, after)
        except Unfit as unfit:
            what = type(layer).__name__ if name else called_of(n)
            raise ConfigError(
                f"layer {name or n.name!r} ({what}) cannot be outlined: {unfit}; "
                f"supported are {', '.join(SUPPORTED)}"
            ) from None

    def _module(
        self, name: str, layer: nn.Module, before: Tensor, after: Tensor
    ) -> list[Layer]:
        has_state = bool(layer.state_dict())
        if has_state and name in self._used:
            raise Unfit("it is used twice, and has parameters")
        self._used.add(name)
        return told_module(layer, before, after, name if has_state else "")


def _refused(name: str, model: nn.Module, why: str) -> ConfigError:
    try:
        kind = type(model.get_submodule(name)).__name__
    except AttributeError:
        kind = type(model).__name__
    return ConfigError(
        f"layer {name!r} ({kind}) cannot be outlined: {why}; a chain of "
        f"{', '.join(SUPPORTED)} can"
    )
