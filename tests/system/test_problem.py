from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.errors import ConfigError
from melisma.system import Problem, cell

#: Tenths and hundredths, as people write them: none is exact in binary.
DECIMALS = st.integers(1, 500).map(lambda n: n / 100)


def alone(step_s: float, sample_s: float, fixed_s: float, deadline_s: float) -> Problem:
    """One learner, with more samples than fit."""
    return Problem(
        step_s=np.array([step_s]),
        sample_s=np.array([sample_s]),
        fixed_s=np.array([fixed_s]),
        samples=10**6,
        deadline_s=deadline_s,
    )


@given(DECIMALS, DECIMALS, DECIMALS, DECIMALS, st.integers(0, 50), st.integers(1, 500))
def test_steps_and_samples_agree_on_what_fits(
    step_s: float, sample_s: float, fixed_s: float, more_s: float, tau: int, d: int
) -> None:
    problem = alone(step_s, sample_s, fixed_s, fixed_s + more_s)
    [h], [f] = problem.samples_within(tau), problem.steps_within([d])
    assert (d <= h) == (tau <= f)


@given(DECIMALS, DECIMALS, DECIMALS, DECIMALS, st.integers(0, 50))
def test_one_sample_more_would_be_late(
    step_s: float, sample_s: float, fixed_s: float, deadline_s: float, tau: int
) -> None:
    problem = alone(step_s, sample_s, fixed_s, deadline_s)
    h = problem.samples_within(tau)
    assert (problem.seconds(h, tau) <= deadline_s).all()
    assert (problem.seconds(h + 1, tau) > deadline_s).all()


@given(DECIMALS, DECIMALS, DECIMALS, DECIMALS, st.integers(1, 500))
def test_one_step_more_would_be_late(
    step_s: float, sample_s: float, fixed_s: float, deadline_s: float, d: int
) -> None:
    problem = alone(step_s, sample_s, fixed_s, deadline_s)
    [f] = problem.steps_within([d])
    assert f == -1 or problem.seconds([d], f) <= deadline_s
    assert problem.seconds([d], f + 1) > deadline_s


def test_a_time_that_is_just_the_deadline_fits() -> None:
    # 3 samples of 0.1 s make 0.30000000000000004 s in floats: just that much fits.
    problem = alone(0.1, 0.0, 0.0, deadline_s=0.1 * 3)
    assert problem.samples_within(1).tolist() == [3]
    assert problem.steps_within([3]).tolist() == [1]


def test_a_step_that_rounds_past_the_deadline_does_not_fit() -> None:
    # On paper 0.05·1043·4 + 1.35·4 + 2.66 = 216.66 s; in floats it is a hair more.
    problem = alone(0.05, 1.35, 2.66, deadline_s=216.66)
    assert problem.seconds([4], [1043]) > 216.66
    assert problem.steps_within([4]).tolist() == [1042]


def test_samples_within_takes_steps_of_each_learner() -> None:
    problem = cell(2, 15.0)
    both = problem.samples_within(np.array([3, 5]))
    assert both.tolist() == [problem.samples_within(3)[0], problem.samples_within(5)[1]]


def test_nothing_fits_a_learner_that_cannot_fetch_the_model() -> None:
    problem = alone(1.0, 0.0, fixed_s=2.0, deadline_s=1.0)
    assert problem.samples_within(0).tolist() == [0]
    assert problem.steps_within([1]).tolist() == [-1]


def test_no_samples_no_steps() -> None:
    assert cell(2, 15.0).steps_within([0, 0]).tolist() == [0, 0]


def test_nobody_takes_more_than_most_or_than_there_are() -> None:
    problem = alone(1e-9, 0.0, 0.0, deadline_s=1.0)
    assert problem.samples_within(1).tolist() == [10**6]
    assert replace(problem, most=7).samples_within(1).tolist() == [7]


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, np.nan, np.inf])
def test_a_deadline_that_is_none_is_named(deadline_s: float) -> None:
    with pytest.raises(ConfigError, match=rf"deadline of {deadline_s} s"):
        cell(2, deadline_s)


def test_a_problem_without_learners_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one learner"):
        Problem(
            step_s=np.ones(0),
            sample_s=np.ones(0),
            fixed_s=np.ones(0),
            samples=1,
            deadline_s=1.0,
        )


def test_a_problem_without_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 samples to train on"):
        cell(2, 15.0, samples=0)


def test_bounds_must_leave_room() -> None:
    with pytest.raises(ConfigError, match="least of 5 is above most of 4"):
        cell(2, 15.0, least=5, most=4)
    with pytest.raises(
        ConfigError, match="least is 0: give whole numbers of at least 1"
    ):
        cell(2, 15.0, least=0)


def test_bounds_are_one_for_all_or_one_each() -> None:
    with pytest.raises(
        ConfigError, match=r"most has shape \(3,\): give one number or \(2,\)"
    ):
        replace(cell(2, 15.0), most=np.array([1, 2, 3]))
