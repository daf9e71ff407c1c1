"""Training side by side gives what training in turn gives."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from melisma.learning import batched, models
from melisma.learning.batched import Lesson, linear_layers, train_many
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Optimiser, Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints

X = torch.rand(300, 1, 28, 28, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 10, (300,), generator=torch.Generator().manual_seed(2))

TANH = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.Tanh(), nn.Linear(8, 10))


def lesson(model: nn.Module, training: Training) -> Lesson:
    return Lesson(model, parameters_of(model), X, Y, training)


def unlike_plans(training: Training, learners: int = 7) -> list[Ints]:
    """Plans of unequal d and τ, one of them empty, most with a short last batch."""
    rng = np.random.default_rng(3)
    plans = [
        batch_plan(
            rng.permutation(300)[: rng.integers(1, 50)],
            int(rng.integers(1, 4)),
            training,
            rng,
        )
        for _ in range(learners)
    ]
    plans[learners // 2] = plans[learners // 2][:0]
    return plans


@pytest.mark.parametrize("optimiser", Optimiser)
@pytest.mark.parametrize(
    "model",
    [models.build("TwoNN", 0), TANH, models.build("ConvNet", 0)],
    ids=["perceptron", "functional", "convolution"],
)
def test_learners_side_by_side_learn_what_they_learn_alone(
    model: nn.Module, optimiser: Optimiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "CHUNK_LEARNERS", 3)
    rate = 0.1 if optimiser == Optimiser.SGD else 0.001
    training = Training(optimiser=optimiser, rate=rate, batch=16)
    plans = unlike_plans(training)
    seen = []
    for chunk in train_many(lesson(model, training), plans):
        for row, k in enumerate(chunk.learners):
            alone = copy.deepcopy(model)
            trained = train(alone, X, Y, plans[k], training)
            for name, value in parameters_of(alone).items():
                together = chunk.parameters[name][row]
                torch.testing.assert_close(together, value, atol=2e-6, rtol=2e-5)
            assert chunk.loss[row] == pytest.approx(trained.loss, rel=1e-5)
            seen.append(k)
    assert sorted(seen) == list(range(len(plans)))


def test_chunks_come_in_the_order_of_the_plans() -> None:
    training, model = Training(), models.build("TwoNN", 0)
    plans = unlike_plans(training, learners=150)
    chunks = list(train_many(lesson(model, training), plans))
    firsts = [min(chunk.learners) for chunk in chunks]
    assert len(chunks) > 1
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("model", [models.build("TwoNN", 0), TANH])
def test_threads_change_nothing(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "CHUNK_LEARNERS", 2)
    training = Training()
    plans = unlike_plans(training)
    one = list(train_many(lesson(model, training), plans))
    two = list(train_many(lesson(model, training), plans, threads=2))
    assert [a.learners for a in one] == [b.learners for b in two]
    for a, b in zip(one, two, strict=True):
        assert all(map(torch.equal, a.parameters.values(), b.parameters.values()))


def test_the_start_is_left_as_it_was() -> None:
    shared = lesson(models.build("TwoNN", 0), Training())
    before = copy.deepcopy(shared.parameters)
    list(train_many(shared, unlike_plans(Training())))
    assert all(map(torch.equal, shared.parameters.values(), before.values()))


def test_dropout_and_batch_normalisation_train_one_by_one() -> None:
    normal = nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4))
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(784, 10))
    for model in (normal, dropping, models.build("ConvNet", 0)):
        assert batched.engine_for(lesson(model, Training())) is batched.one_by_one


def test_only_plain_perceptrons_are_taken_for_perceptrons() -> None:
    assert linear_layers(models.build("CsaNet", 0)) == ["1", "3", "5", "7"]
    assert linear_layers(nn.Sequential(nn.Linear(4, 2))) == ["0"]
    assert linear_layers(nn.Sequential(nn.Linear(4, 2), nn.ReLU())) == []
    assert linear_layers(nn.Sequential(nn.Linear(4, 2, bias=False))) == []
    assert linear_layers(models.build("ConvNet", 0)) == []
    assert linear_layers(nn.Linear(4, 2)) == []
