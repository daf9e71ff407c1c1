from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.oracle import best, reached
from tests.schemes.problems import heterogeneous, small, twins

from melisma.errors import InfeasibleError
from melisma.schemes.csa import csa
from melisma.schemes.csa_sai import csa_sai
from melisma.system import Problem, cell, max_staleness


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms ≤ 1 s, so τ = 19.
    allocation = csa_sai(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [19, 19]


def test_spare_samples_are_a_step_more_for_someone() -> None:
    # h(19) = ⌊1000/20⌋ = 50 and h(20) = ⌊1000/21⌋ = 47: a 20th step costs 3 samples.
    assert sorted(csa_sai(replace(twins(), samples=97)).steps.tolist()) == [19, 20]


def test_a_first_step_is_paid_by_those_ahead() -> None:
    # In 64ths of a second: 4·(12 + 4) = 64 ≤ 64.5 < 5·(12 + 1), 5·(9 + 3) = 60 ≤ 61.5,
    # 6·(9 + 1) = 60. The suggestion of 5 and 5 leaves the first without a step.
    problem = Problem(
        step_s=np.array([1.0, 1.0]) / 64,
        sample_s=np.array([12.0, 9.0]) / 64,
        fixed_s=np.array([39.5, 42.5]) / 64,
        samples=10,
        deadline_s=104 / 64,
        most=np.array([10, 6]),
    )
    assert csa_sai(problem).steps.tolist() == [4, 1]


@pytest.mark.parametrize("most", [None, 3300, 3600])
@pytest.mark.parametrize("seed", range(5))
def test_all_samples_are_within_bounds_and_time(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    allocation = csa_sai(problem)
    d = allocation.samples
    assert d.sum() == problem.samples
    assert ((problem.low <= d) & (d <= problem.high)).all()
    assert (allocation.steps == problem.steps_within(d)).all()


@pytest.mark.parametrize("seed", range(10))
def test_without_bounds_it_ends_one_step_apart(seed: int) -> None:
    assert max_staleness(csa_sai(heterogeneous(seed)).steps) <= 1


def test_it_finds_an_allocation_just_where_there_is_one() -> None:
    for problem in small(0, 200):
        found = reached(csa_sai, problem, 1)
        exact = best(problem, enough=1, least_steps=1)
        assert (found is None) == (exact is None), problem
        assert found is None or exact is None or found >= exact, problem


def test_an_impossible_deadline_is_named() -> None:
    with pytest.raises(InfeasibleError, match=r"100 samples do not fit in 0\.01 s"):
        csa_sai(twins(deadline_s=0.01))


@pytest.mark.paper
@pytest.mark.parametrize("deadline_s", [7.5, 15.0])
@pytest.mark.parametrize("K", range(7, 21))
def test_it_reaches_the_optimum_of_figure_2(K: int, deadline_s: float) -> None:
    problem = cell(K, deadline_s)
    assert (np.sort(csa_sai(problem).steps) == np.sort(csa(problem).steps)).all()
