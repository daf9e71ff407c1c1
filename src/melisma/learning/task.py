"""A task: what is trained, on what, by which loss, and by what it is judged.

    def sentiment() -> mel.Task:
        return mel.Task(
            model=lambda: Net(),
            train={"x": tokens, "y": labels},
            test=lambda: read("test.npz"),
            loss="cross-entropy",
            metrics=["accuracy"],
            optimiser="AdamW",
            rate=1e-3,
        )

A job names it (``task = "my_tasks:sentiment"``). Learners make it too, for its model
and its loss; they never load its data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import nn

from melisma.errors import ConfigError, DataError, unknown
from melisma.learning import models
from melisma.learning.data import Dataset
from melisma.learning.losses import LOSSES, Loss, OwnTraining, numbers
from melisma.learning.metrics import Metric, metrics_for
from melisma.learning.samples import Samples, Transform, samples_of
from melisma.learning.settings import OWN, Argument, Buffers, Schedule, Training
from melisma.learning.validation import check_arrays
from melisma.registry import imported, own_code, register

#: Arrays by name, or a map-style data set; or a function that returns one of them.
Given = Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What is trained. Samples are named arrays of any type, a row a sample."""

    model: Callable[[], nn.Module] | nn.Module | str
    train: Given = None
    test: Given = None
    loss: Loss | str = "cross-entropy"  #: one value for each sample of a batch
    metrics: Sequence[Metric | str] = ()  #: the first is *the* metric
    transform: Transform = numbers  #: of a batch as it is stored, before the model
    optimiser: Callable[..., torch.optim.Optimizer] | str = "sgd"
    arguments: Mapping[str, Argument] = field(default_factory=dict)  #: the optimiser's
    rate: float = 0.05
    batch: int = 32
    clip: float | None = None  #: largest norm of a batch's gradient
    schedule: Schedule = Schedule.CONSTANT  #: of the rate, over cycles
    warmup: int = 0  #: cycles over which the rate rises to its full value
    floor: float = 0.0  #: share of the rate that is left in the end
    decay: float = 0.95  #: factor of each cycle, where it falls exponentially
    buffers: Buffers | str = Buffers.AVERAGE  #: or "local": each learner has its own

    def training(self) -> Training:
        """Return how learners train it; ConfigError if that cannot be."""
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise unknown("loss", self.loss, LOSSES)
        if self.buffers not in list(Buffers):
            raise unknown("buffers", str(self.buffers), Buffers)
        return OwnTraining(
            optimiser=self.optimiser if isinstance(self.optimiser, str) else OWN,
            arguments=dict(self.arguments),
            rate=self.rate,
            batch=self.batch,
            clip=self.clip,
            schedule=Schedule(self.schedule),
            warmup=self.warmup,
            floor=self.floor,
            decay=self.decay,
            buffers=Buffers(self.buffers),
            loss=self.loss if isinstance(self.loss, str) else "cross-entropy",
            own_loss=None if isinstance(self.loss, str) else self.loss,
            own_transform=None if self.transform is numbers else self.transform,
            own_optimiser=None if isinstance(self.optimiser, str) else self.optimiser,
        )

    def build(self, seed: int) -> nn.Module:
        """Make the model, the same for the same seed; ConfigError if that fails."""
        return models.build(self.model, seed)

    def judges(self) -> tuple[Metric, ...]:
        """Return the metrics; ConfigError for an unknown one."""
        return metrics_for(self.metrics, self.training())

    def dataset(self, name: str) -> Dataset:
        """Load the samples; ConfigError or DataError if that fails."""
        train = _loaded(self.train, f"train of {name}")
        test = _loaded(self.test, f"test of {name}")
        for samples, part in ((train, "train"), (test, "test")):
            if not len(samples):
                raise DataError(f"{name}: there are no samples in {part}")
        return Dataset(name, train, test)


def _loaded(given: Given, what: str) -> Samples:
    if given is None:
        raise ConfigError(f"{what}: there are no samples: give arrays by name")
    with own_code("samples of", what):
        try:
            found = given() if callable(given) else given
        except OSError as error:
            raise DataError(f"{what}: {error}") from error
    if isinstance(found, Mapping):
        check_arrays(found, what)
    return samples_of(found)


#: Tasks that were given a name, each as the function that makes it.
TASKS: dict[str, Callable[[], Task]] = {}


def task(name: str) -> Callable[[Callable[[], Task]], Callable[[], Task]]:
    """Give a function that makes a task a name, for jobs of this process."""

    def named(function: Callable[[], Task]) -> Callable[[], Task]:
        register(TASKS, "task", name, function)
        return function

    return named


def find(name: str) -> Task:
    """Make a task by its name, or by its ``module:function``; ConfigError if wrong."""
    if name not in TASKS and ":" not in name:
        raise unknown("task", name, [*TASKS, "module:function"])
    make = TASKS[name] if name in TASKS else imported("task", name)
    with own_code("task", name):
        made = make()
    if not isinstance(made, Task):
        raise ConfigError(
            f"task {name!r} returned {type(made).__name__}: return a mel.Task"
        )
    return made


def plain(training: Training) -> Training:
    """Return the part of a training that can be sent: no functions of one's own."""
    return Training(**{f.name: getattr(training, f.name) for f in fields(Training)})


def merged(own: Training, sent: Training) -> Training:
    """Return a training with one's own functions, and the numbers that were sent."""
    numbers = {f.name: getattr(sent, f.name) for f in fields(Training)}
    own_only = {
        f.name: getattr(own, f.name) for f in fields(own) if f.name not in numbers
    }
    return type(own)(**numbers, **own_only)
