import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from melisma.errors import ConfigError
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.learning.training import Session, batch_plan, train

X = torch.linspace(-1, 1, 20 * 3).view(20, 3).sin()
Y = torch.arange(20) % 2
SAMPLES = pairs(X, Y)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@given(st.integers(1, 40), st.integers(0, 4), st.integers(1, 12), st.booleans())
def test_every_pass_of_a_plan_holds_every_row_once(
    d: int, steps: int, batch: int, shuffle: bool
) -> None:
    training = Training(batch=batch, shuffle=shuffle)
    plan = batch_plan(np.arange(d), steps, training, np.random.default_rng(0))
    assert plan.shape == (steps * -(-d // batch), batch)
    for a_pass in plan.reshape(steps, -(-d // batch) * batch):
        assert sorted(a_pass[a_pass >= 0]) == list(range(d))


def test_passes_come_in_different_orders() -> None:
    plan = batch_plan(np.arange(100), 2, Training(), np.random.default_rng(0))
    assert plan[:4].tolist() != plan[4:].tolist()


def test_one_sgd_step_is_the_gradient_times_the_rate() -> None:
    model, twin = small_model(), small_model()
    loss = cross_entropy(twin(X[:5]), Y[:5])
    loss.backward()  # type: ignore[no-untyped-call]
    trained = train(model, SAMPLES, np.arange(5)[None], Training(rate=0.5))
    for moved, before in zip(model.parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        torch.testing.assert_close(moved, before - 0.5 * before.grad)
    assert trained.loss == pytest.approx(loss.item())


def test_a_proximal_term_is_part_of_the_loss() -> None:
    # FedProx minimises F(w) + μ/2·‖w − w⁰‖²: here by autograd, in two calls of halves.
    model, twin = small_model(), small_model()
    training = Training(rate=0.5, proximal=0.3, arguments={"momentum": 0.9})
    start = [p.detach().clone() for p in twin.parameters()]
    step = torch.optim.SGD(twin.parameters(), lr=0.5, momentum=0.9)
    plan = np.arange(20).reshape(4, 5)
    for rows in plan:
        step.zero_grad()
        away = sum(
            (p - p0).square().sum()
            for p, p0 in zip(twin.parameters(), start, strict=True)
        )
        loss = cross_entropy(twin(X[rows]), Y[rows]) + 0.3 / 2 * away
        loss.backward()  # type: ignore[no-untyped-call]
        step.step()
    session = Session(model, training)
    session.train(SAMPLES, plan[:2])
    session.train(SAMPLES, plan[2:])
    for moved, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(moved, expected)
    assert np.isfinite(session.trained().loss)  # which is F's alone


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "AdamW", "RMSprop"])
def test_training_lowers_the_loss(optimiser: str) -> None:
    model, training = small_model(), Training(optimiser=optimiser, batch=5, rate=0.05)
    plan = batch_plan(np.arange(20), 30, training, np.random.default_rng(0))
    before = cross_entropy(model(X), Y)
    train(model, SAMPLES, plan, training)
    assert cross_entropy(model(X), Y) < before


def test_halting_keeps_what_was_trained_and_says_how_much() -> None:
    plan = np.arange(20).reshape(4, 5)
    halted, short = small_model(), small_model()
    asked = iter([False, False, True])
    trained = train(halted, SAMPLES, plan, Training(), lambda: next(asked))
    train(short, SAMPLES, plan[:2], Training())
    assert (trained.batches, trained.samples) == (2, 10)
    assert all(map(torch.equal, halted.parameters(), short.parameters()))


def test_halting_at_once_trains_nothing() -> None:
    trained = train(
        small_model(), SAMPLES, np.arange(4)[None], Training(), lambda: True
    )
    assert (trained.batches, trained.samples, trained.loss) == (0, 0, 0.0)


def test_a_sample_seen_twice_counts_once() -> None:
    plan = np.array([[0, 1], [2, -1], [1, 0]])
    assert train(small_model(), SAMPLES, plan, Training()).samples == 3


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_not_positive_is_named(rate: float) -> None:
    with pytest.raises(ConfigError, match=f"learning rate {rate}"):
        Training(rate=rate)


def test_an_empty_batch_is_named() -> None:
    with pytest.raises(ConfigError, match="batch of 0 samples"):
        Training(batch=0)
