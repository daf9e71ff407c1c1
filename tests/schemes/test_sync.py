from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import InfeasibleError
from melisma.schemes.sync import sync
from melisma.system import cell, learner_s


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms ≤ 1 s, so τ = 19.
    allocation = sync(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [19, 19]


def test_a_faster_learner_gets_more_samples() -> None:
    # h(9) = ⌊1000/(1 + 9)⌋ = 100 and ⌊1000/(1 + 9·3)⌋ = 35, together 135 ≥ 130;
    # h(10) = 90 and 32, together 122. Everyone takes (130 − 2)/(135 − 2) of the way.
    problem = replace(twins(), step_s=np.array([1e-3, 3e-3]), samples=130)
    allocation = sync(problem)
    assert allocation.steps.tolist() == [9, 9]
    assert allocation.samples.tolist() == [96, 34]


@pytest.mark.parametrize("seed", range(10))
def test_all_work_is_done_within_the_deadline(seed: int) -> None:
    problem = heterogeneous(seed, most=3500)
    allocation = sync(problem)
    assert allocation.samples.sum() == problem.samples
    assert (allocation.samples <= 3500).all()
    assert (learner_s(problem, allocation) <= problem.deadline_s).all()


@pytest.mark.parametrize("seed", range(10))
def test_nobody_could_do_one_step_more(seed: int) -> None:
    problem = heterogeneous(seed)
    tau = sync(problem).steps.max() + 1
    slack_s = problem.deadline_s - problem.fixed_s
    fits = np.floor(slack_s / (tau * problem.step_s + problem.sample_s))
    assert fits.sum() < problem.samples


def test_the_slowest_learner_sets_the_pace_of_its_least_samples() -> None:
    # 60 samples of the second: ⌊(1000 − 60)/60⌋ = 15 steps, though D would allow 19.
    problem = replace(twins(), least=np.array([1, 60]))
    assert sync(problem).steps.tolist() == [15, 15]


def test_an_impossible_deadline_is_named() -> None:
    with pytest.raises(InfeasibleError, match=r"100 samples do not fit in 0\.01 s"):
        sync(twins(deadline_s=0.01))


@pytest.mark.paper
@pytest.mark.parametrize(
    ("K", "deadline_s", "total"),
    [(20, 7.5, 60), (20, 15.0, 120), (18, 7.5, 54), (12, 15.0, 48), (7, 7.5, 7)],
)
def test_figure_2(K: int, deadline_s: float, total: int) -> None:
    assert sync(cell(K, deadline_s)).steps.sum() == total
