import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.checks import (
    FALSE_FROM,
    Gap,
    Losses,
    check_repeatable,
    distance,
    gap,
    honest,
    is_redone,
    losses,
    redo_chance,
    redone,
    samples_seen,
    suspicion,
    usual,
)
from melisma.learning.losses import LOSSES
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.learning.samples import Part, Samples, pairs
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Ints

STEPS, OWN = 3, np.arange(200)
LOSS = LOSSES["cross-entropy"]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A learner's work on the first 200 of 400 samples, whose classes are noisy."""

    model: nn.Module
    before: Parameters
    samples: Samples
    plan: Ints
    training: Training

    def trained(self, plan: Ints) -> Parameters:
        put(self.before, self.model)
        train(self.model, self.samples, plan, self.training)
        return parameters_of(self.model)

    def redone(self, plan: Ints | None = None) -> Parameters:
        plan = self.plan if plan is None else plan
        return redone(self.model, self.before, self.samples, plan, self.training)

    def on(self, rows: Ints) -> Parameters:
        rng = np.random.default_rng(9)
        return self.trained(batch_plan(rows, STEPS, self.training, rng))

    def gap(self, update: Parameters) -> Gap:
        def of(rows: Ints) -> Losses:
            some = Part(self.samples, rows)
            return Losses(
                losses(self.model, self.before, some, LOSS),
                losses(self.model, update, some, LOSS),
            )

        return gap(of(OWN), of(OWN + 200), STEPS)


def job_of(optimiser: str = "sgd") -> Job:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(400, 30, generator=source)
    noise = torch.randn(400, generator=source)
    y = (x[:, 0] + noise > 0).long()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2))
    rate = 0.1 if optimiser == "sgd" else 0.01
    training = Training(rate=rate, batch=16, optimiser=optimiser)
    plan = batch_plan(OWN, STEPS, training, np.random.default_rng(2))
    return Job(model, parameters_of(model), pairs(x, y), plan, training)


def noisy(job: Job) -> Parameters:
    source, own = torch.Generator().manual_seed(5), job.redone()
    return {
        name: value
        + (own[name] - value).std() * torch.randn(value.shape, generator=source)
        for name, value in job.before.items()
    }


LIES: dict[str, Callable[[Job], Parameters]] = {
    "old": lambda job: job.before,
    "noise": noisy,
    "tenth": lambda job: job.on(OWN[:20]),
    "half": lambda job: job.on(OWN[:100]),
    "one step": lambda job: job.trained(job.plan[: len(job.plan) // STEPS]),
    "other data": lambda job: job.on(OWN + 200),
}


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_same_machine_redoes_honest_work_bit_for_bit(optimiser: str) -> None:
    job = job_of(optimiser)
    assert distance(job.trained(job.plan), job.redone(), job.before) == 0


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_rounding_does_not_convict(optimiser: str) -> None:
    # The sums of a batch taken in another order.
    job = job_of(optimiser)
    reordered = np.random.default_rng(0).permuted(job.plan, axis=1)
    away = distance(job.trained(reordered), job.redone(), job.before)
    assert 0 < away < FALSE_FROM / 10


def test_double_precision_does_not_convict() -> None:
    job = job_of()
    twin = Job(
        job_of().model.double(),
        {name: value.double() for name, value in job.before.items()},
        pairs(job.samples[:]["x"].double(), job.samples[:]["y"]),
        job.plan,
        job.training,
    )
    away = distance(twin.redone(), job.redone(), job.before)
    assert 0 < away < FALSE_FROM / 10


def test_a_redo_leaves_the_model_its_mode_and_the_generator_alone() -> None:
    job = job_of()
    put({name: value + 1 for name, value in job.before.items()}, job.model)
    job.model.eval()
    before, state = parameters_of(job.model), torch.get_rng_state()
    job.redone()
    losses(job.model, job.before, job.samples, LOSS)
    assert not job.model.training
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in parameters_of(job.model).items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("lie", LIES)
def test_a_redo_convicts(lie: str, optimiser: str) -> None:
    job = job_of(optimiser)
    assert not honest(distance(LIES[lie](job), job.redone(), job.before))


def test_the_update_of_the_cycle_before_is_convicted() -> None:
    job = job_of()
    sent = job.trained(job.plan)
    again = redone(job.model, sent, job.samples, job.plan, job.training)
    assert not honest(distance(sent, again, sent))


def test_halted_work_is_redone_as_far_as_it_went() -> None:
    job = job_of()
    batches = iter(range(20))
    put(job.before, job.model)
    did = train(
        job.model, job.samples, job.plan, job.training, lambda: next(batches) == 7
    )
    claimed, part = parameters_of(job.model), job.plan[: did.batches]
    assert did.batches == 7
    assert distance(claimed, job.redone(part), job.before) == 0
    assert not honest(distance(claimed, job.redone(), job.before))
    assert samples_seen(part) == did.samples == 7 * 16


def test_samples_are_counted_once_and_fillers_never() -> None:
    assert samples_seen(np.array([[3, 4], [5, -1], [4, 3]])) == 3
    assert samples_seen(np.empty((0, 2), dtype=np.int64)) == 0


def at(*values: float) -> Parameters:
    return {"weight": torch.tensor(values[:1]), "bias": torch.tensor(values[1:])}


def test_distance_is_the_share_of_the_work_that_is_not_there() -> None:
    # The work goes 5 far, (3, 4); what is claimed is (0, 4) instead.
    assert distance(at(1, 5), at(4, 5), at(1, 1)) == pytest.approx(3 / 5)
    assert distance(at(1, 1), at(4, 5), at(1, 1)) == 1
    assert distance(at(4, 5), at(4, 5), at(1, 1)) == 0


def test_where_no_work_was_none_may_be_claimed() -> None:
    assert distance(at(1, 1), at(1, 1), at(1, 1)) == 0
    assert distance(at(1, 2), at(1, 1), at(1, 1)) == math.inf


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_infinitely_far(odd: float) -> None:
    assert distance(at(odd, 1), at(2, 1), at(1, 1)) == math.inf
    assert not honest(math.inf)
    assert not honest(math.nan)


@pytest.mark.parametrize("lie", ["old", "noise", "other data"])
def test_suspicion_falls_on_who_did_not_train_on_its_own_samples(lie: str) -> None:
    job = job_of()
    honestly, claimed = job.gap(job.redone()), job.gap(LIES[lie](job))
    peers = usual([honestly, honestly, claimed])
    assert suspicion(honestly, peers) < 0.5 < suspicion(claimed, peers)


def test_losses_are_the_cross_entropy_of_each_sample() -> None:
    job = job_of()
    x, y = job.samples[:].values()
    logits = job.model(x).detach().double()
    expected = logits.logsumexp(1) - logits[torch.arange(400), y]
    np.testing.assert_allclose(
        losses(job.model, job.before, job.samples, LOSS), expected, rtol=1e-5, atol=1e-6
    )


def test_a_gap_is_what_the_loss_before_does_not_explain() -> None:
    # Drops of a tenth of the loss everywhere, 0.3 more on one's own: 0.1 a pass.
    rng = np.random.default_rng(0)
    own, others = rng.uniform(1, 5, 50), rng.uniform(0, 2, 80)
    found = gap(Losses(own, 0.9 * own - 0.3), Losses(others, 0.9 * others), passes=3)
    assert found.mean == pytest.approx(0.1)
    assert found.error == pytest.approx(0, abs=1e-9)


def test_an_update_that_is_not_finite_is_surely_suspicious() -> None:
    before, after = np.ones(3), np.array([1.0, np.nan, np.inf])
    found = gap(Losses(before, after), Losses(before, before), passes=1)
    assert suspicion(found, usual=0.1) == 1


def test_a_gap_needs_samples_on_both_sides() -> None:
    three, single = (Losses(np.ones(n), np.ones(n)) for n in (3, 1))
    with pytest.raises(ValueError, match="two samples or more"):
        gap(three, single, passes=1)


def test_suspicion_is_even_at_half_the_usual_gap() -> None:
    # Φ(0) = 1/2 there, and Φ(−2) = 0.0228 two errors above.
    assert suspicion(Gap(mean=0.5, error=0.1), usual=1.0) == 0.5
    assert suspicion(Gap(mean=0.7, error=0.1), usual=1.0) == pytest.approx(
        0.02275, 1e-3
    )
    assert suspicion(Gap(mean=0.0, error=0.0), usual=0.0) == 1


def test_who_is_suspicious_is_redone_who_is_not_now_and_then() -> None:
    rng = np.random.default_rng(0)
    assert all(is_redone(0.1, 1.0, rng) for _ in range(100))
    drawn = sum(is_redone(0.1, 0.2, rng) for _ in range(2000))
    assert drawn == pytest.approx(200, abs=60)  # four standard deviations
    assert redo_chance(0.0, 0.5) == 0
    assert redo_chance(1.0, 0.0) == 1


def test_a_model_that_draws_random_numbers_cannot_be_checked() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    with pytest.raises(ConfigError, match="layer '1' of the model is Dropout"):
        check_repeatable(model)
    check_repeatable(model[0])
