"""Modules that are no chain of layers, trained with AdamW: ours beside a plain loop."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melisma.learning.batched import engine_for, train_many
from melisma.learning.engines import Lesson
from melisma.learning.kernels import fast_kernels
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import Arrays, Batch
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Ints

RATE, DECAY = 1e-3, 0.01
LEAST, MOST = 40, 160  #: samples of a learner
POOL = 2048  #: samples from which those of all learners are drawn


class Residual(nn.Module):
    """The sum of what goes in and what comes out."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + f(x)."""
        within: Tensor = self.layers(x)
        return x + within


class Attention(nn.Module):
    """A transformer block over 16 tokens, and the class of their mean."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, width)
        self.places = nn.Parameter(torch.randn(16, width) / 10)
        self.norm = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.block = Residual(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.classes = nn.Linear(width, 10)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of 10 classes."""
        a = self.tokens(x) + self.places
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for part in self.mixed(self.norm(a)).chunk(3, dim=-1)
        )
        seen = F.scaled_dot_product_attention(q, k, v)
        a = self.block(a + self.joined(seen.transpose(-3, -2).flatten(-2)))
        logits: Tensor = self.classes(a.mean(dim=-2))
        return logits


class Tied(nn.Module):
    """An autoencoder that decodes by the transpose of what it encodes with."""

    def __init__(self, inputs: int = 196, code: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, code)
        self.bias = nn.Parameter(torch.zeros(inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return x again."""
        return F.linear(torch.tanh(self.encoder(x)), self.encoder.weight.T, self.bias)


class Recurrent(nn.Module):
    """Reads 14 rows of 14 numbers, and names their class."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.rows = nn.GRU(14, width, batch_first=True)
        self.classes = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of 10 classes."""
        _, last = self.rows(x.view(-1, 14, 14))
        logits: Tensor = self.classes(last[0])
        return logits


def residual_mlp() -> nn.Module:
    """Return a perceptron with two residual blocks."""

    def block() -> nn.Module:
        return Residual(
            nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)
        )

    return nn.Sequential(nn.Linear(196, 64), block(), block(), nn.Linear(64, 10))


def normalised() -> nn.Module:
    """Return a perceptron with batch normalisation."""
    return nn.Sequential(
        *(nn.Linear(196, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()),
        nn.Linear(32, 10),
    )


def residual_convolutions() -> nn.Module:
    """Return two convolutions, one of them residual."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 14, 14)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()),
        Residual(nn.Conv2d(8, 8, 3, padding=1), nn.GELU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 10)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A module, and how it is trained."""

    title: str
    build: Callable[[], nn.Module]
    loss: str = "cross-entropy"
    tokens: bool = False  #: whether inputs are whole numbers

    def samples(self) -> Batch:
        """Return samples drawn by a fixed seed."""
        generator = torch.Generator().manual_seed(1)
        if self.tokens:
            x = torch.randint(64, (POOL, 16), generator=generator)
        else:
            x = torch.randn(POOL, 196, generator=generator)
        if self.loss == "mse":
            return {"x": x}
        return {"x": x, "y": torch.randint(10, (POOL,), generator=generator)}


CASES = (
    Case(title="transformer block", build=Attention, tokens=True),
    Case(title="residual perceptron", build=residual_mlp),
    Case(title="batch normalisation", build=normalised),
    Case(title="tied autoencoder", build=Tied, loss="mse"),
    Case(title="residual convolutions", build=residual_convolutions),
    Case(title="recurrent", build=Recurrent),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One module, trained by us and by a plain loop; processor time, the best."""

    engine: str  #: ours
    ours_s: float
    loop_s: float
    fast_loop_s: float  #: of the loop with our choice of torch's kernels
    difference: float  #: of any weight of any learner, in double precision

    @property
    def gain(self) -> float:
        """How many times as fast as the loop we are."""
        return self.loop_s / self.ours_s


def compare(case: Case, learners: int, repeats: int) -> Beside:
    """Train every learner for one epoch in each way, in turn."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, samples = case.build(), case.samples()
    training = Training(
        optimiser="AdamW",
        rate=RATE,
        arguments={"weight_decay": DECAY},
        loss=case.loss,
        shuffle=False,
    )
    lesson = Lesson(model, parameters_of(model), Arrays(samples), training)
    plans = _plans(learners, training)

    def ours() -> None:
        for _ in train_many(lesson, plans):
            pass

    def loop() -> None:
        plain_loop(model, case.loss, samples, plans)

    def fast_loop() -> None:
        with fast_kernels(model):
            loop()

    ways = (ours, loop, fast_loop)
    rounds = [[_seconds(way) for way in ways] for _ in range(repeats + 1)]
    ours_s, loop_s, fast_loop_s = np.min(rounds[1:], 0)
    return Beside(
        engine=engine_for(lesson).__name__,
        ours_s=ours_s,
        loop_s=loop_s,
        fast_loop_s=fast_loop_s,
        difference=_difference_in_double(case, model, training, plans),
    )


def _difference_in_double(
    case: Case, model: nn.Module, training: Training, plans: Sequence[Ints]
) -> float:
    """Return how far any weight of any learner is from the loop's, both in double.

    Adam divides a gradient by its own size: in single precision, where rounding is all
    there is of it, a weight may go either way.
    """
    model = copy.deepcopy(model).double()
    samples = {
        n: v.double() if v.is_floating_point() else v for n, v in case.samples().items()
    }
    expected = plain_loop(model, case.loss, samples, plans)
    lesson = Lesson(model, parameters_of(model), Arrays(samples), training)
    return max(
        float((values[row] - expected[k][name]).abs().max())
        for chunk in train_many(lesson, plans)
        for row, k in enumerate(chunk.learners)
        for name, values in chunk.parameters.items()
    )


def plain_loop(
    model: nn.Module, loss: str, samples: Batch, plans: Sequence[Ints]
) -> list[Parameters]:
    """Train one learner after another, as it is usually written."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    compare = F.mse_loss if loss == "mse" else F.cross_entropy
    x, y = samples["x"], samples.get("y", samples["x"])
    found = []
    model.train()
    for plan in plans:
        model.load_state_dict(start)
        step = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
        for batch in plan:
            rows = torch.from_numpy(batch[batch >= 0])
            step.zero_grad()
            mean: Tensor = compare(model(x[rows]), y[rows])
            mean.backward()  # type: ignore[no-untyped-call]
            step.step()
        found.append(parameters_of(model))
    model.load_state_dict(start)
    return found


def _plans(learners: int, training: Training) -> list[Ints]:
    rng = np.random.default_rng(2)
    sizes = rng.integers(LEAST, MOST + 1, learners)
    sizes += sizes % training.batch == 1  # one sample has no variance
    return [
        batch_plan(rng.choice(POOL, size, replace=False), 1, training, rng)
        for size in sizes
    ]


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
