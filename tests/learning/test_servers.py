"""The orchestrator's steps along mean changes, against a few lines of numpy."""

import numpy as np
import pytest
import torch

from melisma.errors import ConfigError, DataError
from melisma.learning.servers import server_for
from melisma.learning.settings import Merging, ServerRule
from melisma.maths.arrays import Floats

CYCLES, VALUES = 6, 5


def reference(merging: Merging, changes: Floats) -> Floats:
    """θ after each cycle, from 0, as the papers' formulas have it."""
    rates = {"sgd": 1.0, "nesterov": 0.7}
    momenta = {"sgd": 0.0}
    eta = merging.rate or rates.get(merging.server, 0.01)
    beta = momenta.get(merging.server, 0.9)
    beta = beta if merging.momentum is None else merging.momentum
    theta, m = np.zeros(VALUES), np.zeros(VALUES)
    v = np.full(VALUES, merging.epsilon**2)
    found = []
    for delta in changes:
        match merging.server:
            case "sgd":
                m = beta * m + delta
                theta = theta + eta * m
            case "nesterov":
                m = beta * m + delta
                theta = theta + eta * (delta + beta * m)
            case kind:
                m = beta * m + (1 - beta) * delta
                if kind == "adagrad":
                    v = v + delta**2
                elif kind == "adam":
                    v = merging.beta2 * v + (1 - merging.beta2) * delta**2
                else:
                    v = v - (1 - merging.beta2) * delta**2 * np.sign(v - delta**2)
                theta = theta + eta * m / (np.sqrt(v) + merging.epsilon)
        found.append(theta)
    return np.array(found)


def settings() -> list[Merging]:
    usual = [Merging(server=rule) for rule in ServerRule]
    other = [
        Merging(server=rule, rate=0.3, momentum=0.5, beta2=0.8, epsilon=0.02)
        for rule in ServerRule
    ]
    return usual + other


@pytest.mark.parametrize("merging", settings(), ids=lambda m: f"{m.server}-{m.rate}")
def test_steps_are_those_of_the_papers(merging: Merging) -> None:
    rng = np.random.default_rng(3)
    changes = rng.normal(scale=0.1, size=(CYCLES, VALUES))
    server, again = server_for(merging), server_for(merging)
    model = {"w": torch.zeros(VALUES, dtype=torch.float64)}
    for cycle, (change, theta) in enumerate(
        zip(changes, reference(merging, changes), strict=True)
    ):
        if cycle == 3:  # as if the run had been cut short here
            again.restore({"w": model["w"]} | server.state())
            server = again
        mean = {"w": model["w"] + torch.from_numpy(change)}
        model = server.step(model, mean, ["w"])
        assert np.allclose(model["w"].numpy(), theta, rtol=0, atol=1e-12)


def test_without_momentum_the_model_is_the_mean_bit_for_bit() -> None:
    mean = {"w": torch.tensor([0.1, 0.2])}
    assert server_for(Merging()).step({"w": torch.zeros(2)}, mean, ["w"]) is mean


@pytest.mark.parametrize("rule", [r for r in ServerRule if r != ServerRule.SGD])
def test_what_is_not_trained_is_averaged(rule: ServerRule) -> None:
    model = {"w": torch.zeros(2), "statistic": torch.zeros(2)}
    mean = {"w": torch.ones(2), "statistic": torch.full((2,), 0.25)}
    after = server_for(Merging(server=rule)).step(model, mean, ["w"])
    assert torch.equal(after["statistic"], mean["statistic"])
    assert not torch.equal(after["w"], mean["w"])
    assert after["w"].dtype == torch.float32


def test_the_moments_of_another_job_are_refused() -> None:
    adam, nesterov = (
        server_for(Merging(server=ServerRule(n))) for n in ("adam", "nesterov")
    )
    adam.step({"w": torch.zeros(2)}, {"w": torch.ones(2)}, ["w"])
    with pytest.raises(DataError, match="it is of another job"):
        nesterov.restore(adam.state())


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"momentum": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="give a number"):
        Merging(server=ServerRule.ADAM, **wrong)  # type: ignore[arg-type]
