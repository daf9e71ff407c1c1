"""What a part costs beside the whole: operations, bytes, seconds.

In the delay law t = C²·τ·d + C¹·d + C⁰ a part changes C² as it does operations, and C⁰
as it does bytes; a sample takes as long to send.
"""

import copy
import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from melisma.errors import ConfigError
from melisma.learning.kernels import fast_kernels
from melisma.learning.losses import checked
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.samples import length
from melisma.learning.submodels.part import Part, everything, shapes_in
from melisma.learning.submodels.submodel import Example
from melisma.learning.way import Way
from melisma.learning.wire import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What it takes to train a model or a part of it."""

    parameters: int  #: that are trained
    down_bytes: int  #: to a learner, of its tensors
    up_bytes: int  #: back
    operations: float  #: of matrix products and convolutions, a sample

    def step(self, whole: "Cost") -> float:
        """Return the share of C² that is left, by operations."""
        if not whole.operations:
            raise ConfigError(
                "the model has no matrix product and no convolution, so that what a "
                "part of it costs cannot be told: leave submodel out"
            )
        return self.operations / whole.operations

    def fixed(self, whole: "Cost") -> float:
        """Return the share of C⁰ that is left, by bytes both ways."""
        both = whole.down_bytes + whole.up_bytes
        return (self.down_bytes + self.up_bytes) / both


def whole_of(model: nn.Module) -> Part:
    """Return the part that is all of a model."""
    like = parameters_of(model)
    places = everything(like)
    return Part("whole", model, places, places, shapes_in(like))


def cost_of(
    part: Part, model: nn.Module, example: Example, wire: Wire | None = None
) -> Cost:
    """Return what a part of a model costs, whose tensors travel by this wire."""
    way = Way(wire or Wire(), part)
    down, up = way.size_bytes(parameters_of(model), trained(model))
    return Cost(
        parameters=sum(p.numel() for p in part.moving().values()),
        down_bytes=down,
        up_bytes=up,
        operations=operations(part.model, example),
    )


def operations(model: nn.Module, example: Example) -> float:
    """Count floating-point operations to train on a sample, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        _step(copy.deepcopy(model).train(), example)
    return float(counter.get_total_flops()) / length(example.batch)


def measured_s(model: nn.Module, example: Example, repeats: int = 15) -> float:
    """Measure seconds to train on a sample of the example: the median of some steps."""
    probe, took_s = copy.deepcopy(model).train(), list[float]()
    with fast_kernels(probe):
        for _ in range(repeats + 2):  # two to warm up
            began = time.perf_counter()
            _step(probe, example)
            took_s.append(time.perf_counter() - began)
    return statistics.median(took_s[2:]) / length(example.batch)


def _step(model: nn.Module, example: Example) -> None:
    with torch.random.fork_rng(devices=[]):
        each = checked(example.loss(model, example.batch), length(example.batch))
        each.mean().backward()  # type: ignore[no-untyped-call]
