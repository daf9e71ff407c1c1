"""On a GPU learners learn what they learn on the CPU; skipped where there is none."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from melisma.jobs.schema import AggregationTable, Job, TrainingTable
from melisma.launch.simulate import build
from melisma.learning import models
from melisma.learning.batched import Chunk, choice_for, train_many
from melisma.learning.engines import Lesson, functional, one_by_one
from melisma.learning.parameters import parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import (
    Hardware,
    Precision,
    Rule,
    Training,
)
from melisma.learning.training import batch_plan
from melisma.maths.arrays import Ints
from melisma.system.law import Mode
from melisma.views.history import history

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch sees no GPU"
)

X = torch.rand(3000, 1, 28, 28, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 10, (3000,), generator=torch.Generator().manual_seed(2))

MODELS = {
    **{name: models.build(name, 0) for name in ("TwoNN", "ConvNet", "FogCNN")},
    "functional": nn.Sequential(
        nn.Flatten(), nn.Linear(784, 8), nn.Tanh(), nn.Linear(8, 10)
    ),
    "mapped convolutions": nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.GELU(), nn.MaxPool2d(4), nn.Flatten()),
        nn.Linear(144, 10),
    ),
    "one by one": nn.Sequential(
        nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16, eps=1.0), nn.Linear(16, 10)
    ),
}


def plans_of(training: Training, learners: int) -> list[Ints]:
    rng = np.random.default_rng(3)
    return [
        batch_plan(rng.permutation(3000)[: 10 + 2 * k], 1 + k % 3, training, rng)
        for k in range(learners)
    ]


def lesson(model: nn.Module, training: Training, device: str) -> Lesson:
    model = copy.deepcopy(model).to(device)
    samples = pairs(X.to(device), Y.to(device))
    return Lesson(model, parameters_of(model), samples, training)


def by_learner(chunks: list[Chunk]) -> dict[int, dict[str, torch.Tensor]]:
    return {
        k: {name: value[row].cpu() for name, value in chunk.parameters.items()}
        for chunk in chunks
        for row, k in enumerate(chunk.learners)
    }


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_cpu(name: str) -> None:
    training = Training(rate=0.05)
    plans = plans_of(training, 60)
    here, there = (
        by_learner(list(train_many(lesson(MODELS[name], training, device), plans)))
        for device in ("cpu", "cuda")
    )
    assert here.keys() == there.keys()
    for k, weights in here.items():
        for part, value in weights.items():
            torch.testing.assert_close(there[k][part], value, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(
    "training",
    [
        Training(rate=0.02),
        Training(rate=0.02, arguments={"momentum": 0.9, "weight_decay": 1e-3}),
        Training(optimiser="Adam", rate=1e-4),
        Training(optimiser="Adagrad", rate=1e-3, arguments={"lr_decay": 0.1}),
        Training(rate=0.02, proximal=0.1),
    ],
)
@pytest.mark.parametrize("name", ["TwoNN", "ConvNet"])
def test_steps_that_are_replayed_are_those_of_the_cpu(
    name: str, training: Training
) -> None:
    rng = np.random.default_rng(4)
    # Lengths that differ by few batches and by many, short last batches among them.
    sizes = [601, 590, 402, 395, 33]
    plans = [batch_plan(rng.permutation(3000)[:d], 2, training, rng) for d in sizes]
    here, there = (
        by_learner(list(train_many(lesson(MODELS[name], training, device), plans)))
        for device in ("cpu", "cuda")
    )
    start = parameters_of(MODELS[name])
    for k, weights in here.items():
        apart = [(there[k][part] - value).norm() for part, value in weights.items()]
        way = [(value - start[part]).norm() for part, value in weights.items()]
        assert torch.stack(apart).norm() < 2e-3 * torch.stack(way).norm()


def test_half_precision_goes_nearly_the_same_way() -> None:
    training = Training(rate=0.05)
    plans = plans_of(training, 40)
    full = lesson(MODELS["ConvNet"], training, "cuda")
    half = replace(full, precision=Precision.BF16)
    exact, near = (
        by_learner(list(train_many(lesson, plans))) for lesson in (full, half)
    )
    for k, weights in exact.items():
        apart = [(near[k][part] - value).norm() for part, value in weights.items()]
        way = [(v - full.parameters[part].cpu()).norm() for part, v in weights.items()]
        assert torch.stack(apart).norm() < 0.1 * torch.stack(way).norm()


@pytest.mark.parametrize("rule", Rule)
def test_a_run_on_the_gpu_learns_as_one_on_the_cpu(rule: Rule) -> None:
    job = Job(
        cycles=3,
        noise=0.1,
        aggregation=AggregationTable(rule=rule, clip=5.0),
        training=TrainingTable(rate=0.1),
    )
    here, there = (
        history(build(job, hardware).run()).metric
        for hardware in (Hardware(), Hardware(device="cuda"))
    )
    np.testing.assert_allclose(there, here, atol=0.01)


def test_convolutions_are_mapped_on_the_gpu_alone() -> None:
    model = MODELS["mapped convolutions"]
    assert choice_for(lesson(model, Training(), "cuda")).engine is functional
    assert choice_for(lesson(model, Training(), "cpu")).engine is one_by_one


@pytest.mark.parametrize(
    "training", [TrainingTable(), TrainingTable(optimiser="Adam", rate=1e-3)]
)
def test_coded_training_on_the_gpu_goes_the_way_of_the_cpu(
    training: TrainingTable,
) -> None:
    job = Job(scheme="coded", cycles=3, mode=Mode.PARALLEL, training=training)
    here, there = (
        history(build(job, hardware).run()).metric
        for hardware in (Hardware(), Hardware(device="cuda"))
    )
    np.testing.assert_allclose(there, here, atol=0.002)
