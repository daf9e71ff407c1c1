"""Steps along mean gradients: torch's own, kept in a checkpoint and gone on with."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from melisma.errors import ConfigError, DataError
from melisma.learning.descent import Descent, OptimiserDescent, descent_for
from melisma.learning.losses import OwnTraining
from melisma.learning.optimisers import OPTIMISERS
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.settings import OWN, Training

GRADIENTS = np.random.default_rng(0).normal(size=(6, 12))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False))


class Counting(torch.optim.Optimizer):
    """Keeps a number and a tensor with each parameter."""

    def __init__(self, values: Any, lr: float) -> None:
        super().__init__(values, {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for value in group["params"]:
                    kept = self.state[value]
                    kept["count"] = kept.get("count", 0) + 1
                    kept["sum"] = kept.get("sum", 0.0) + value.grad
                    value -= group["lr"] / kept["count"] * kept["sum"]


TRAININGS = {
    **{name: Training(optimiser=name, rate=0.01) for name in OPTIMISERS},
    "momentum": Training(rate=0.01, arguments={"momentum": 0.9}),
    "nesterov": Training(rate=0.01, arguments={"momentum": 0.9, "nesterov": True}),
    "own": OwnTraining(optimiser=OWN, own_optimiser=Counting, rate=0.01),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(name: str) -> None:
    training = TRAININGS[name]
    whole = descent_for(model(), training)
    w = start = parameters_of(model())
    states = [w]
    for step, gradient in enumerate(GRADIENTS, start=1):
        w = whole.step(w, gradient, 0.01 / step)
        states.append(w)
    for stopped in (0, 1, 3):
        before, after = (descent_for(model(), training) for _ in range(2))
        v: Parameters = start
        for step in range(stopped):
            v = before.step(v, GRADIENTS[step], 0.01 / (step + 1))
        after.restore(v | before.state())
        for step in range(stopped, 6):
            v = after.step(v, GRADIENTS[step], 0.01 / (step + 1))
            for key, value in v.items():
                assert torch.equal(value, states[step + 1][key]), (stopped, step, key)
    assert any(not torch.equal(w[key], start[key]) for key in w)


def test_only_what_is_more_than_momentum_is_torchs() -> None:
    assert isinstance(descent_for(model(), Training()), Descent)
    assert isinstance(descent_for(model(), TRAININGS["momentum"]), Descent)
    for training in (
        Training(clip=1.0),
        Training(arguments={"weight_decay": 0.1}),
        Training(optimiser="Adam"),
        TRAININGS["own"],
    ):
        assert isinstance(descent_for(model(), training), OptimiserDescent)


def test_a_checkpoint_without_the_velocity_is_of_another_job() -> None:
    descent = Descent(torch.nn.Linear(2, 1), rate=0.1, momentum=0.5)
    descent.restore(descent.state())
    wrong = descent.state() | {"velocity/bias": torch.zeros(2)}
    for state in ({}, wrong):
        with pytest.raises(DataError, match="it is of another job"):
            descent.restore(state)


@pytest.mark.parametrize(
    "label", ["velocity/0.weight", "optimiser/2.weight/step", "optimiser-number/step"]
)
def test_a_checkpoint_with_what_is_not_the_optimisers_is_of_another_job(
    label: str,
) -> None:
    descent = OptimiserDescent(model(), Training(optimiser="Adam"))
    with pytest.raises(DataError, match=f"{label}.*it is of another job"):
        descent.restore({label: torch.zeros(())})


def test_what_no_checkpoint_can_hold_is_named() -> None:
    class Listing(Counting):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for value in group["params"]:
                    self.state[value]["past"] = [1.0]

    own = OwnTraining(optimiser=OWN, own_optimiser=Listing)
    descent = OptimiserDescent(model(), own)
    descent.step(parameters_of(model()), GRADIENTS[0])
    with pytest.raises(ConfigError, match="keeps a list as 'past'"):
        descent.state()
