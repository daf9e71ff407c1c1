from typing import Any

import pytest
import torch

from melisma.errors import ConfigError
from melisma.learning.losses import OwnTraining
from melisma.learning.optimisers import (
    BY_VALUE,
    OPTIMISERS,
    check_optimiser,
    goes_by_value,
    named,
    optimiser_for,
)
from melisma.learning.settings import OWN, Argument, Training

VALUE = [torch.zeros(2, requires_grad=True)]


@pytest.mark.parametrize("name", ["sgd", "SGD", "Sgd", "adamw", "RMSPROP"])
def test_names_are_torchs_in_any_case(name: str) -> None:
    made = optimiser_for(VALUE, Training(optimiser=name, rate=0.25))
    assert type(made).__name__ == named(name)
    assert made.param_groups[0]["lr"] == 0.25


def moved(made: torch.optim.Optimizer, values: list[torch.Tensor]) -> torch.Tensor:
    for step in range(1, 4):
        for value in values:
            value.grad = value.detach().sin() * step
        made.step()
    return torch.cat([value.flatten() for value in values])


@pytest.mark.parametrize("name", sorted(BY_VALUE))
def test_small_tensors_are_moved_together_as_alone(name: str) -> None:
    def values() -> list[torch.Tensor]:
        source = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=source) for shape in ((5, 3), (3,), ())]

    arguments: dict[str, Argument] = {} if name == "Rprop" else {"weight_decay": 0.1}
    together, alone = values(), values()
    made = optimiser_for(together, Training(optimiser=name, arguments=arguments))
    assert made.defaults["foreach"]
    kind: Any = OPTIMISERS[name]
    plain = kind(alone, lr=made.defaults["lr"], foreach=False, **arguments)
    rounding = 1e-6 if name in ("ASGD", "NAdam") else 0.0
    torch.testing.assert_close(
        moved(made, together), moved(plain, alone), rtol=rounding, atol=rounding
    )


def test_of_large_tensors_no_copies_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("melisma.learning.optimisers.TOGETHER", 1)
    assert not optimiser_for(VALUE, Training(optimiser="adamw")).defaults["foreach"]


def test_who_names_the_kernels_is_obeyed() -> None:
    training = Training(optimiser="adamw", arguments={"foreach": False})
    assert not optimiser_for(VALUE, training).defaults["foreach"]


def test_those_that_go_by_value_are_there() -> None:
    assert set(OPTIMISERS) >= BY_VALUE
    assert not {"LBFGS", "SparseAdam", "Optimizer"} & set(OPTIMISERS)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Optimizer", "adma", ""])
def test_what_is_no_optimiser_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="optimiser"):
        check_optimiser(Training(optimiser=name))


def test_arguments_are_torchs() -> None:
    training = Training(
        optimiser="adam", arguments={"betas": [0.8, 0.9], "amsgrad": True}
    )
    (group,) = optimiser_for(VALUE, training).param_groups
    assert (group["betas"], group["amsgrad"]) == ((0.8, 0.9), True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sgd", {"momentun": 0.9}),
        ("sgd", {"momentum": -0.9}),
        ("sgd", {"nesterov": True}),
        ("adam", {"betas": [2.0, 0.9]}),
        ("adam", {"betas": 0.9}),
        ("adam", {"betas": [0.9]}),
        ("adam", {"lr": 0.1}),
    ],
)
def test_arguments_that_torch_does_not_take_are_named(
    name: str, arguments: dict[str, Argument]
) -> None:
    with pytest.raises(ConfigError, match=f"optimiser '{name}'"):
        check_optimiser(Training(optimiser=name, arguments=arguments))


def test_an_optimiser_of_ones_own_is_taken_and_not_shared() -> None:
    own = OwnTraining(
        optimiser=OWN,
        own_optimiser=torch.optim.Adagrad,
        rate=0.5,
        arguments={"eps": 0.25},
    )
    made = optimiser_for(VALUE, own)
    assert isinstance(made, torch.optim.Adagrad)
    assert (made.param_groups[0]["lr"], made.param_groups[0]["eps"]) == (0.5, 0.25)
    assert not goes_by_value(own)
    assert not own.is_plain_sgd
    with pytest.raises(ConfigError, match="unknown optimiser 'own'"):
        check_optimiser(OwnTraining(optimiser=OWN))
    assert goes_by_value(OwnTraining(optimiser="adagrad"))


def test_plain_descent_has_no_arguments_and_no_bound() -> None:
    assert Training().is_plain_sgd
    assert Training(optimiser="SGD", arguments={"momentum": 0}).is_plain_sgd
    assert not Training(arguments={"momentum": 0.9}).is_plain_sgd
    assert not Training(arguments={"maximize": True}).is_plain_sgd
    assert not Training(clip=1.0).is_plain_sgd
    assert not Training(optimiser="adam").is_plain_sgd


@pytest.mark.parametrize("clip", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bound_that_is_none_is_named(clip: float) -> None:
    with pytest.raises(ConfigError, match=f"clip = {clip}"):
        Training(clip=clip)
