"""Training side by side gives what training in turn gives."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning import batched, devices, engines, models
from melisma.learning.batched import choice_for, train_many
from melisma.learning.devices import multiplies_bfloat16
from melisma.learning.engines import Lesson, linear_layers
from melisma.learning.layers import is_chain
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Precision, Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Floats, Ints

X = torch.rand(300, 1, 28, 28, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 10, (300,), generator=torch.Generator().manual_seed(2))

TANH = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.Tanh(), nn.Linear(8, 10))


def lesson(model: nn.Module, training: Training) -> Lesson:
    return Lesson(model, parameters_of(model), pairs(X, Y), training)


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


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize(
    "model",
    [models.build("TwoNN", 0), TANH, models.build("ConvNet", 0)],
    ids=["perceptron", "functional", "convolution"],
)
def test_learners_side_by_side_learn_what_they_learn_alone(
    model: nn.Module, optimiser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "CHUNK_LEARNERS", 3)
    rate = 0.1 if optimiser == "sgd" else 0.001
    training = Training(optimiser=optimiser, rate=rate, batch=16)
    plans = unlike_plans(training)
    # In double precision: Adam makes much of how the smallest gradients round.
    model, samples = copy.deepcopy(model).double(), pairs(X.double(), Y)
    seen = []
    for chunk in train_many(replace(lesson(model, training), samples=samples), plans):
        for row, k in enumerate(chunk.learners):
            alone = copy.deepcopy(model)
            trained = train(alone, samples, plans[k], training)
            for name, value in parameters_of(alone).items():
                together = chunk.parameters[name][row]
                torch.testing.assert_close(together, value, atol=1e-7, rtol=1e-6)
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
    single = list(train_many(lesson(model, training), plans))
    double = list(train_many(lesson(model, training), plans, threads=2))
    assert [a.learners for a in single] == [b.learners for b in double]
    for a, b in zip(single, double, strict=True):
        assert all(map(torch.equal, a.parameters.values(), b.parameters.values()))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_caller_computes_on_one_core_whatever_the_threads(threads: int) -> None:
    # It evaluates what the learners trained, and kernels on two cores round otherwise.
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    plans = unlike_plans(Training())
    list(train_many(lesson(TANH, Training()), plans, threads))
    left = torch.get_num_threads()
    torch.set_num_threads(before)
    assert left == 1


#: All that a chain may consist of, with unlike heights and widths.
CHAIN = nn.Sequential(
    nn.Conv2d(1, 3, (3, 5), padding=(2, 1)),
    nn.ReLU(),
    nn.MaxPool2d((2, 3)),
    nn.Conv2d(3, 4, 2, padding=0),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(4 * 7 * 3, 10),
)
#: Strides that leave rows and columns over, or do not.
STRIDED = nn.Sequential(
    nn.Conv2d(1, 3, 5, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(3, 4, (2, 3), stride=(3, 4)),
    nn.Flatten(),
    nn.Linear(4 * 4 * 3, 10),
)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize(
    "model",
    [
        *(models.build(name, 0) for name in ("TwoNN", "ConvNet", "FogCNN")),
        CHAIN,
        STRIDED,
    ],
    ids=["TwoNN", "ConvNet", "FogCNN", "chain", "strides"],
)
def test_layer_by_layer_learners_learn_what_they_learn_alone(
    model: nn.Module, optimiser: str
) -> None:
    assert is_chain(model)
    training = Training(optimiser=optimiser, rate=0.001, batch=16)
    plans = sorted(unlike_plans(training), key=len, reverse=True)
    model = copy.deepcopy(model).double()
    shared = replace(lesson(model, training), samples=pairs(X.double(), Y))
    found, loss = engines.layered(shared, plans)
    expected, expected_loss = engines.one_by_one(shared, plans)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-7, rtol=1e-6)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)


def test_in_bfloat16_learners_go_nearly_the_same_way_or_are_refused() -> None:
    model, training = models.build("ConvNet", 0), Training(rate=0.1)
    plans = sorted(unlike_plans(training), key=len, reverse=True)
    half = replace(lesson(model, training), precision=Precision.BF16)
    if not multiplies_bfloat16(X.device):
        with pytest.raises(ConfigError, match="no bfloat16 products"):
            list(train_many(half, plans))
        return
    (chunk,) = train_many(half, plans)
    expected, loss = engines.one_by_one(lesson(model, training), plans)
    np.testing.assert_allclose(chunk.loss, loss, rtol=0.01)
    for name, value in expected.items():
        start = half.parameters[name]
        update, found = value - start, chunk.parameters[name] - start
        assert chunk.parameters[name].dtype == torch.float32
        assert (found - update).norm() < 0.15 * update.norm()


@pytest.mark.parametrize(
    "odd",
    [
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(1, 2, 3, dilation=2),
        nn.Conv2d(1, 2, 3, bias=False),
        nn.Conv2d(1, 2, 3, padding="same"),
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"),
        nn.MaxPool2d(3, stride=2),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(2),
        nn.Linear(4, 2, bias=False),
        nn.Tanh(),
        nn.Dropout(),
    ],
    ids=str,
)
def test_other_layers_make_no_chain_and_are_trained_in_half_one_by_one(
    odd: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)
    model = nn.Sequential(nn.ReLU(), odd)
    assert not is_chain(model)
    half = replace(lesson(model, Training()), precision=Precision.BF16)
    assert choice_for(half).engine is engines.one_by_one


def test_where_memory_does_not_suffice_chunks_are_smaller() -> None:
    # In double precision: kernels may round by the number of products in a batch.
    training, model = Training(), models.build("TwoNN", 0).double()
    shared = replace(lesson(model, training), samples=pairs(X.double(), Y))
    plans, sizes = unlike_plans(training, learners=9), []

    def cramped(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
        sizes.append(len(plans))
        if len(plans) > 4:
            raise torch.OutOfMemoryError
        return engines.perceptrons(lesson, plans)

    chunks = list(batched._on_gpu(shared, plans, cramped))
    assert max(sizes) == 9  # all at once was tried
    trained = [k for chunk in chunks for k in sorted(chunk.learners)]
    assert trained == list(range(9))
    (whole,) = train_many(shared, plans)
    for name, value in whole.parameters.items():
        rows = torch.cat([chunk.parameters[name] for chunk in chunks])
        places = [k for chunk in chunks for k in chunk.learners]
        order = [places.index(k) for k in whole.learners]
        torch.testing.assert_close(rows[order], value, atol=1e-7, rtol=1e-6)


def test_the_start_is_left_as_it_was() -> None:
    shared = lesson(models.build("TwoNN", 0), Training())
    before = copy.deepcopy(shared.parameters)
    list(train_many(shared, unlike_plans(Training())))
    assert all(map(torch.equal, shared.parameters.values(), before.values()))


def test_dropout_and_batch_normalisation_train_one_by_one() -> None:
    normal = nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4))
    dropping = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(784, 10))
    for model in (normal, dropping, models.build("ConvNet", 0)):
        assert batched.engine_for(lesson(model, Training())) is engines.one_by_one


def test_only_plain_perceptrons_are_taken_for_perceptrons() -> None:
    assert linear_layers(models.build("CsaNet", 0)) == ["1", "3", "5", "7"]
    assert linear_layers(nn.Sequential(nn.Linear(4, 2))) == ["0"]
    assert linear_layers(nn.Sequential(nn.Linear(4, 2), nn.ReLU())) == []
    assert linear_layers(nn.Sequential(nn.Linear(4, 2, bias=False))) == []
    assert linear_layers(models.build("ConvNet", 0)) == []
    assert linear_layers(nn.Linear(4, 2)) == []
