"""The work that every engine does, and the local training that two of them share."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from melisma.learning.models import build
from melisma.maths.arrays import Ints

ROWS, FEATURES, CLASSES = 60_000, 784, 10  #: of the pool that all learners draw on
SAMPLES, BATCH, RATE = 100, 32, 0.1  #: of each learner: 32, 32, 32 and 4 samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One epoch of SGD on each learner's own samples a cycle, then their mean."""

    learners: int
    cycles: int


@cache
def pool() -> tuple[Tensor, Tensor]:
    """Samples and labels, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    return x, torch.randint(CLASSES, (ROWS,), generator=generator)


@cache
def _order() -> Ints:
    return np.random.default_rng(0).permutation(ROWS)


def rows(learner: int) -> Ints:
    """Where a learner's samples are in the pool; from learner 600 on they recur."""
    return _order()[np.arange(learner * SAMPLES, (learner + 1) * SAMPLES) % ROWS]


def samples(learner: int) -> tuple[Tensor, Tensor]:
    """A learner's own samples and labels."""
    (x, y), mine = pool(), torch.from_numpy(rows(learner))
    return x[mine], y[mine]


def initial_model() -> nn.Module:
    """The perceptron 784-50-20-10, with the same parameters every time."""
    return build("TwoNN", seed=0)


def train(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """One epoch of SGD, in order, as it is usually written."""
    step = torch.optim.SGD(model.parameters(), lr=RATE)
    batches = zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True)
    for xs, ys in batches:
        step.zero_grad()
        cross_entropy(model(xs), ys).backward()  # type: ignore[no-untyped-call]
        step.step()
