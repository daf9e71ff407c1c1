"""What updates count: by samples, data, learners, and per step (FedNova)."""

import numpy as np
import pytest
import torch

from melisma.learning.settings import Training, Weights
from melisma.learning.training import Trained
from melisma.learning.weights import weighting


def done(samples: int, batches: int = 1) -> Trained:
    return Trained(samples=samples, batches=batches, loss=0.0, halted=False)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (Weights.SAMPLES, [10.0, 0.0]),
        (Weights.DATA, [70.0, 0.0]),
        (Weights.LEARNERS, [1.0, 0.0]),
        (Weights.FEDNOVA, [70.0, 0.0]),
    ],
)
def test_who_trained_nothing_counts_nothing(
    weights: Weights, expected: list[float]
) -> None:
    rule = weighting(weights, Training())
    assert [rule.weight(done(n), own=70) for n in (10, 0)] == expected


ARGUMENTS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "dampened": {"momentum": 0.7, "dampening": 0.3},
    "nesterov": {"momentum": 0.8, "nesterov": True},
}


@pytest.mark.parametrize("proximal", [0.0, 0.5])
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_length_is_how_far_torch_goes_along_a_constant_gradient(
    kind: str, proximal: float
) -> None:
    training = Training(rate=0.05, arguments=dict(ARGUMENTS[kind]), proximal=proximal)
    value = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    step = torch.optim.SGD([value], lr=training.rate, **ARGUMENTS[kind])  # type: ignore[arg-type]
    rule = weighting(Weights.FEDNOVA, training)
    for batches in range(1, 30):
        value.grad = 1.0 + proximal * value.detach()
        step.step()
        length = rule.length(done(1, batches))
        assert length == pytest.approx(-value.item() / training.rate, rel=1e-12)


@pytest.mark.parametrize(
    ("training", "length"),
    [
        # τ
        (Training(), 8.0),
        # (τ − ρ(1 − ρ^τ)/(1 − ρ))/(1 − ρ)
        (Training(arguments={"momentum": 0.9}), (8 - 9 * (1 - 0.9**8)) / 0.1),
        # (1 − (1 − ημ)^τ)/(ημ)
        (Training(rate=0.1, proximal=2.0), (1 - 0.8**8) / 0.2),
        (Training(optimiser="adam"), 8.0),
    ],
)
def test_lengths_are_those_that_the_paper_prints(
    training: Training, length: float
) -> None:
    found = weighting(Weights.FEDNOVA, training).length(done(1, 8))
    assert found == pytest.approx(length, rel=1e-12)


def test_lengths_do_not_depend_on_the_order_in_which_they_are_asked_for() -> None:
    training = Training(arguments={"momentum": 0.9})
    one, other = (weighting(Weights.FEDNOVA, training) for _ in range(2))
    asked = np.random.default_rng(0).permutation(20).tolist()
    found = {n: one.length(done(1, n)) for n in asked}
    assert found == {n: other.length(done(1, n)) for n in range(20)}
