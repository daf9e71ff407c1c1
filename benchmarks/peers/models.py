"""Melisma's own engines beside one another, for the papers' networks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from melisma.learning.engines import (
    Engine,
    Lesson,
    functional,
    linear_layers,
    one_by_one,
    perceptrons,
)
from melisma.learning.kernels import fast_kernels
from melisma.learning.models import build
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Training

LEARNERS, BATCHES = 16, 4
NETWORKS = ("TwoNN", "ThreeNN", "ConvNet", "FashionNet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One network, trained in each way; the best time of each."""

    network: str
    one_by_one_s: float
    functional_s: float
    perceptrons_s: float | None  #: None: the network has other layers
    difference: float  #: of any weight from those trained one by one


def compare(network: str, repeats: int) -> Comparison:
    """Train 16 learners for 4 batches of 32 in each way, in turn."""
    torch.set_num_threads(1)
    model, training = build(network, seed=0), Training(shuffle=False)
    generator = torch.Generator().manual_seed(0)
    rows = LEARNERS * BATCHES * training.batch
    x = torch.randn(rows, 1, 28, 28, generator=generator)
    y = torch.randint(10, (rows,), generator=generator)
    plans = np.arange(rows).reshape(LEARNERS, BATCHES, training.batch)
    engines: list[Engine] = [one_by_one, functional]
    if linear_layers(model):
        engines.append(perceptrons)
    lesson = Lesson(model, parameters_of(model), pairs(x, y), training)
    calls = [partial(engine, lesson, list(plans)) for engine in engines]
    with fast_kernels(model):  # as `train_many` calls them
        stacks = [call()[0] for call in calls]
        rounds = [[_seconds(call) for call in calls] for _ in range(repeats)]
    seconds = np.min(rounds, 0)
    return Comparison(
        network=network,
        one_by_one_s=seconds[0],
        functional_s=seconds[1],
        perceptrons_s=seconds[2] if len(seconds) > 2 else None,
        difference=max(_difference(stack, stacks[0]) for stack in stacks),
    )


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _difference(a: Parameters, b: Parameters) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in b)
