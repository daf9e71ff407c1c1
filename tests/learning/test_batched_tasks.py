"""Learners of any task side by side: optimisers, losses, frozen and tied weights."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from melisma.learning import batched, devices, engines
from melisma.learning.batched import choice_for, train_many
from melisma.learning.engines import Engine, Lesson
from melisma.learning.layers import is_chain
from melisma.learning.losses import LOSSES, OwnTraining
from melisma.learning.optimisers import BY_VALUE
from melisma.learning.parameters import parameters_of, put
from melisma.learning.samples import Arrays, Batch, Items, Samples, pairs
from melisma.learning.settings import OWN, Argument, Precision, Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints

#: In double precision: optimisers make much of how the smallest gradients round.
X = torch.rand(
    60, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64
)
Y = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(2))
IMAGES = pairs(X, Y)
SEED = 5


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(SEED)
    return make().double()


def perceptron() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(36, 5), nn.ReLU()),
        *(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 4)),
    )


def smooth() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 4)
    )


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4)
    )


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)
    )


class Tied(nn.Module):
    """A weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 5), nn.Linear(5, 4)
        self.inner, self.again = nn.Linear(5, 5), nn.Linear(5, 5)
        self.again.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(self.first(x.flatten(1)).tanh()).relu()
        out: Tensor = self.last(self.again(inner).relu())
        return out


def tied_perceptron() -> nn.Module:
    model: Any = perceptron()
    model.add_module("6", nn.ReLU())
    model.add_module("7", nn.Linear(4, 5))
    model.add_module("8", nn.ReLU())
    model.add_module("9", nn.Linear(5, 4))
    model[9].weight = model[5].weight
    return nn.Sequential(*model)


def lesson(model: nn.Module, training: Training, samples: Samples = IMAGES) -> Lesson:
    return Lesson(model, parameters_of(model), samples, training)


def unlike_plans(training: Training, learners: int = 5, most: int = 60) -> list[Ints]:
    """Unequal numbers of batches, the most first; one has none, most end short."""
    rng = np.random.default_rng(3)
    plans = [
        batch_plan(
            rng.permutation(most)[: rng.integers(1, 20)],
            int(rng.integers(1, 4)),
            training,
            rng,
        )
        for _ in range(learners)
    ]
    return sorted([*plans, plans[0][:0]], key=len, reverse=True)


def assert_as_one_by_one(engine: Engine, shared: Lesson) -> None:
    plans = unlike_plans(shared.training, most=len(shared.samples))
    assert len({len(plan) for plan in plans}) > 2
    found, loss = engine(shared, plans)
    expected, expected_loss = engines.one_by_one(shared, plans)
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-7, rtol=1e-6)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)


#: Arguments that change what an optimiser does, or what it keeps in mind.
ARGUMENTS: dict[str, list[dict[str, Argument]]] = {
    "SGD": [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "dampening": 0.5},
        {"weight_decay": 0.1},
        {"maximize": True},
    ],
    "Adam": [{"amsgrad": True, "weight_decay": 0.1}, {"betas": [0.8, 0.9]}],
    "AdamW": [{"amsgrad": True, "weight_decay": 0.1}],
    "Adamax": [{"weight_decay": 0.1}],
    "NAdam": [{"weight_decay": 0.1, "momentum_decay": 0.01}],
    "RAdam": [{"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "Adagrad": [{"lr_decay": 0.1, "weight_decay": 0.1}],
    "Adadelta": [{"rho": 0.8, "weight_decay": 0.1}],
    "RMSprop": [{"momentum": 0.9, "centered": True, "weight_decay": 0.1}],
    "Rprop": [{"etas": [0.4, 1.3]}],
    "ASGD": [{"t0": 2, "weight_decay": 0.1}],
}
TRAININGS = [
    Training(optimiser=name, arguments=arguments, clip=clip, rate=0.01, batch=8)
    for name, several in ARGUMENTS.items()
    for arguments in ({}, *several)
    for clip in (None, 0.05)
]
TRAININGS += [
    Training(proximal=0.5, rate=0.1, batch=8),
    Training(proximal=0.5, optimiser="Adam", clip=0.05, rate=0.01, batch=8),
]


def told(training: Training) -> str:
    clip = "" if training.clip is None else "-clip"
    pull = "-proximal" if training.proximal else ""
    return f"{training.optimiser}-{','.join(training.arguments)}{clip}{pull}"


def test_every_optimiser_that_goes_by_value_is_tried() -> None:
    assert ARGUMENTS.keys() == BY_VALUE


@pytest.mark.parametrize("training", TRAININGS, ids=told)
def test_every_optimiser_moves_learners_together_as_alone(training: Training) -> None:
    assert_as_one_by_one(engines.functional, lesson(seeded(smooth), training))
    chain = seeded(convolution)
    assert is_chain(chain)
    assert_as_one_by_one(engines.layered, lesson(chain, training))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_each_learners_gradients_are_corrected_by_its_own(momentum: float) -> None:
    training = Training(rate=0.1, batch=8, arguments={"momentum": momentum})
    for make, engine in ((smooth, engines.functional), (convolution, engines.layered)):
        shared = lesson(seeded(make), training)
        source = torch.Generator().manual_seed(1)
        corrections = [
            {n: torch.randn(v.shape, generator=source) for n, v in start.items()}
            for start in [shared.parameters] * len(unlike_plans(training))
        ]
        assert_as_one_by_one(engine, replace(shared, corrections=corrections))


@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_each_learner_may_start_from_a_model_of_its_own(proximal: float) -> None:
    training = Training(rate=0.1, batch=8, proximal=proximal)
    plain = [(perceptron, engines.perceptrons)] if not proximal else []
    for make, engine in (
        *plain,
        (smooth, engines.functional),
        (convolution, engines.layered),
    ):
        shared = lesson(seeded(make), training)
        source = torch.Generator().manual_seed(1)
        starts = [
            {
                n: v + 0.1 * torch.randn(v.shape, generator=source)
                for n, v in shared.parameters.items()
            }
            for _ in unlike_plans(training)
        ]
        assert_as_one_by_one(engine, replace(shared, starts=starts))


def test_a_correction_is_added_to_every_gradient() -> None:
    # A constant slope h beside the loss: F(w) + h·w.
    model, twin = seeded(smooth), seeded(smooth)
    training = Training(rate=0.1, batch=8, arguments={"momentum": 0.9})
    slope = {n: torch.full_like(p, 0.3) for n, p in parameters_of(model).items()}
    plan = batch_plan(np.arange(40), 2, training, np.random.default_rng(0))
    train(model, IMAGES, plan, training, correction=slope)
    step = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for rows in plan:
        batch = IMAGES[rows[rows >= 0]]
        step.zero_grad()
        beside = sum((0.3 * p).sum() for p in twin.parameters())
        loss = nn.functional.cross_entropy(twin(batch["x"]), batch["y"]) + beside
        loss.backward()  # type: ignore[no-untyped-call]
        step.step()
    for found, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_bound_on_gradients_is_torchs() -> None:
    training = Training(clip=0.05, rate=1.0, batch=60, shuffle=False)
    model = seeded(smooth)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    plan = batch_plan(np.arange(60), 1, training, np.random.default_rng(0))
    train(model, IMAGES, plan, training)
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert float((after - before).norm()) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("name", ["Adafactor", "own"])
def test_others_train_one_by_one(name: str) -> None:
    training = (
        OwnTraining(optimiser=OWN, own_optimiser=torch.optim.SGD)
        if name == "own"
        else Training(optimiser=name)
    )
    chosen = choice_for(lesson(seeded(smooth), training))
    assert chosen.engine is engines.one_by_one
    assert "does not go value by value" in str(chosen)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_learners_together_as_alone(loss: str) -> None:
    training = Training(loss=loss, rate=0.05, batch=8)
    y = Y if loss == "cross-entropy" else torch.rand(60, 2, 2, dtype=torch.float64)
    chain, other = seeded(convolution), seeded(smooth)
    samples = pairs(X, y)
    assert_as_one_by_one(engines.functional, lesson(other, training, samples))
    assert_as_one_by_one(engines.layered, lesson(chain, training, samples))


def table() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def repeated() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(36, 5), relu, nn.Linear(5, 5), relu, nn.Linear(5, 4)
    )


def fully_convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 4, 3))


@pytest.mark.parametrize(
    ("make", "samples", "loss"),
    [
        (table, pairs(X.flatten(1)[:, :3], X.flatten(1)[:, 3]), "mse"),
        (repeated, IMAGES, "cross-entropy"),
        (
            fully_convolutional,
            pairs(X, (4 * X[:, 0, :2, :2]).long()),
            "cross-entropy",
        ),
        (fully_convolutional, pairs(X, X[:, :, :2, :2].expand(-1, 4, -1, -1)), "mse"),
        (
            lambda: nn.Sequential(nn.Linear(6, 2)),
            pairs(X[:, 0], X[:, 0, :, :2]),
            "mse",
        ),
    ],
    ids=["table", "a ReLU twice", "classes of pixels", "images", "rows"],
)
def test_chains_take_samples_of_any_shape(
    make: Callable[[], nn.Module], samples: Arrays, loss: str
) -> None:
    chain = seeded(make)
    assert is_chain(chain)
    training = Training(loss=loss, batch=8, optimiser="adam", rate=0.01)
    assert_as_one_by_one(engines.layered, lesson(chain, training, samples))


def test_samples_of_several_axes_are_not_flattened_where_the_model_does_not() -> None:
    classes = torch.randint(6, (60, 4), generator=torch.Generator().manual_seed(4))
    model, training = seeded(lambda: nn.Sequential(nn.Linear(6, 4))), Training(batch=8)
    shared = lesson(model, training, pairs(X[:, 0], classes))
    assert_as_one_by_one(batched.engine_for(shared), shared)


class Centred(nn.Module):
    """Has a buffer of real numbers, which is not to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.centre = nn.Linear(36, 4), nn.Buffer(torch.full((36,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x.flatten(1) - self.centre)
        return out


@pytest.mark.parametrize(
    "training",
    [
        Training(batch=8),
        Training(batch=8, optimiser="AdamW"),
        Training(batch=8, clip=0.05, arguments={"weight_decay": 0.1}),
    ],
    ids=told,
)
def test_buffers_are_not_trained(training: Training) -> None:
    model = seeded(Centred)
    assert_as_one_by_one(engines.functional, lesson(model, training))
    for chunk in train_many(lesson(model, training), unlike_plans(training)):
        for row in chunk.parameters["centre"]:
            assert torch.equal(row, model.get_buffer("centre"))


def frozen(make: Callable[[], nn.Module], *names: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model = make()
        for name, value in model.named_parameters():
            value.requires_grad_(name not in names)
        return model

    return made


PARTLY: dict[str, tuple[Callable[[], nn.Module], Engine]] = {
    "perceptron": (frozen(perceptron, "1.weight", "1.bias"), engines.functional),
    "its bias": (frozen(perceptron, "3.bias"), engines.functional),
    "functional": (frozen(smooth, "1.weight", "3.weight"), engines.functional),
    "convolution": (frozen(convolution, "0.weight", "0.bias"), engines.one_by_one),
    "statistics": (frozen(normalised, "1.weight", "2.weight"), engines.one_by_one),
    "tied": (Tied, engines.functional),
    "tied perceptron": (tied_perceptron, engines.functional),
    "tied and frozen": (frozen(Tied, "inner.weight"), engines.functional),
}
SOME = [
    Training(batch=8),
    Training(batch=8, optimiser="adam", rate=0.01, clip=0.05),
    Training(batch=8, arguments={"momentum": 0.9, "weight_decay": 0.1}),
    Training(batch=8, proximal=0.5),
]


@pytest.mark.parametrize("training", SOME, ids=told)
@pytest.mark.parametrize("name", PARTLY)
def test_frozen_parts_stay_and_tied_ones_stay_tied(
    name: str, training: Training
) -> None:
    make, engine = PARTLY[name]
    model, plans = seeded(make), unlike_plans(training)
    shared = lesson(model, training)
    assert choice_for(shared).engine is engine
    kept = {n: p.detach().clone() for n, p in model.named_parameters()}
    for chunk in train_many(shared, plans):
        for row, k in enumerate(chunk.learners):
            alone, together = copy.deepcopy(model), copy.deepcopy(model)
            train(alone, IMAGES, plans[k], training)
            put({n: v[row] for n, v in chunk.parameters.items()}, together)
            for key, value in parameters_of(together).items():
                expected = parameters_of(alone)[key]
                torch.testing.assert_close(value, expected, atol=1e-8, rtol=1e-6)
            for key, parameter in together.named_parameters():
                if not parameter.requires_grad:
                    assert torch.equal(parameter, kept[key])
                    assert key not in chunk.parameters
    for key, parameter in model.named_parameters():
        assert torch.equal(parameter, kept[key])


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *((engines.one_by_one, name) for name in PARTLY),
        *((engine, name) for name, (_, engine) in PARTLY.items()),
    ],
)
def test_learners_start_from_the_values_that_are_sent(
    engine: Engine, name: str
) -> None:
    training = Training(batch=8)
    model, plans = seeded(PARTLY[name][0]), unlike_plans(training)
    sent = {n: v + 0.1 for n, v in parameters_of(model).items()}
    shared = replace(lesson(model, training), parameters=sent)
    stack, _ = engine(shared, plans)
    alone = copy.deepcopy(model)
    put(sent, alone)
    train(alone, IMAGES, plans[0], training)
    for key, expected in parameters_of(alone).items():
        torch.testing.assert_close(stack[key][0], expected, atol=1e-9, rtol=1e-6)


def test_tied_weights_are_sent_once_and_reach_both_places() -> None:
    model = seeded(Tied)
    parameters = parameters_of(model)
    assert "inner.weight" in parameters
    assert "again.weight" not in parameters
    put({**parameters, "inner.weight": torch.ones(5, 5)}, model)
    assert torch.equal(model.get_parameter("again.weight"), torch.ones(5, 5))


@pytest.mark.parametrize(
    "make",
    [frozen(convolution, "0.weight"), tied_perceptron, frozen(perceptron, "3.bias")],
    ids=["frozen", "tied", "bias"],
)
def test_in_bfloat16_what_is_frozen_or_tied_trains_one_by_one(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)
    half = replace(lesson(seeded(make), Training()), precision=Precision.BF16)
    assert choice_for(half).engine is engines.one_by_one


def test_in_bfloat16_a_loss_of_ones_own_trains_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)
    own = OwnTraining(own_loss=lambda model, batch: model(batch["x"]).sum(dim=1))
    half = replace(lesson(seeded(perceptron), own), precision=Precision.BF16)
    assert choice_for(half).engine is engines.one_by_one


def contrast(model: nn.Module, batch: Batch) -> Tensor:
    """A loss of one's own, of values by other names than x and y."""
    apart: Tensor = model(batch["one"]) - model(batch["other"])
    return apart.square().sum(dim=1) * batch["weight"]


def test_a_loss_of_ones_own_is_mapped() -> None:
    samples = Arrays({"one": X, "other": X.flip(0), "weight": X[:, 0, 0, 0]})
    shared = lesson(seeded(smooth), OwnTraining(own_loss=contrast, batch=8), samples)
    assert choice_for(shared).engine is engines.functional
    assert_as_one_by_one(engines.functional, shared)


def test_a_loss_that_cannot_be_mapped_trains_one_by_one() -> None:
    def stubborn(model: nn.Module, batch: Batch) -> Tensor:
        out = model(batch["x"])
        each: Tensor = out.square().sum(dim=1)
        return each if float(each.detach().sum()) > 0 else 2 * each

    shared = lesson(seeded(smooth), OwnTraining(own_loss=stubborn))
    chosen = choice_for(shared)
    assert chosen.engine is engines.one_by_one
    assert "torch.func cannot map this model" in str(chosen)


def test_samples_that_are_read_when_asked_for_train_the_same() -> None:
    training = Training(batch=8)
    read = Items([(X[i], Y[i]) for i in range(60)])
    plans = unlike_plans(training)
    for make in (perceptron, smooth, convolution):
        model = seeded(make)
        (whole,) = train_many(lesson(model, training), plans)
        (parts,) = train_many(lesson(model, training, read), plans)
        for name, value in whole.parameters.items():
            torch.testing.assert_close(
                parts.parameters[name], value, atol=1e-9, rtol=1e-6
            )
