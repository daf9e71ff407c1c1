from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import InfeasibleError
from melisma.schemes.eta import eta
from melisma.system import Problem, cell, learner_s, max_staleness, mean_staleness


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms ≤ 1 s, so τ = 19.
    allocation = eta(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [19, 19]


def test_a_remainder_goes_to_the_first() -> None:
    assert eta(replace(twins(), samples=101)).samples.tolist() == [51, 50]


def test_bounds_bend_the_equal_split() -> None:
    allocation = eta(replace(twins(), most=np.array([20, 100])))
    assert allocation.samples.tolist() == [20, 80]


@pytest.mark.parametrize("seed", range(5))
def test_nobody_could_do_one_step_more(seed: int) -> None:
    problem = heterogeneous(seed)
    allocation = eta(problem)
    d, tau = allocation.samples, allocation.steps
    assert np.ptp(d) <= 1
    assert (learner_s(problem, allocation) <= problem.deadline_s).all()
    assert (problem.seconds(d, tau + 1) > problem.deadline_s).all()


def test_a_learner_too_slow_for_its_samples_is_late_with_no_steps() -> None:
    problem = Problem(
        step_s=np.full(2, 0.1),
        sample_s=np.array([0.01, 1.0]),
        fixed_s=np.zeros(2),
        samples=20,
        deadline_s=5.0,
    )
    # 10 samples: (5 − 0.1)/1 = 4 steps; the second needs 10 s to receive its own.
    allocation = eta(problem)
    assert allocation.steps.tolist() == [4, 0]
    assert learner_s(problem, allocation)[1] == 10.0


def test_more_samples_than_may_be_taken_are_named() -> None:
    message = r"100 samples are more than the 60 that 2 learners may take at most"
    with pytest.raises(InfeasibleError, match=message):
        eta(replace(twins(), most=30))


def test_fewer_samples_than_must_be_taken_are_named() -> None:
    message = r"100 samples are fewer than the 120 that 2 learners need at least"
    with pytest.raises(InfeasibleError, match=message):
        eta(replace(twins(), least=60))


def test_a_learner_that_cannot_fetch_the_model_is_named() -> None:
    problem = replace(twins(), fixed_s=np.array([0.1, 2.5]))
    message = r"learner 1 needs 2\.5 s to exchange the model alone, past .* 1 s"
    with pytest.raises(InfeasibleError, match=message):
        eta(problem)


@pytest.mark.paper
@pytest.mark.parametrize(
    ("K", "deadline_s", "most", "mean"),
    [
        (20, 7.5, 4, 2.105),
        (20, 15.0, 7, 3.684),
        (18, 7.5, 3, 1.588),
        (14, 15.0, 5, 2.692),
        (5, 7.5, 1, 0.600),
    ],
)
def test_figure_2(K: int, deadline_s: float, most: int, mean: float) -> None:
    tau = eta(cell(K, deadline_s)).steps
    assert max_staleness(tau) == most
    assert mean_staleness(tau) == pytest.approx(mean, abs=5e-4)
