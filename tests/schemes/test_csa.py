from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.schemes.oracle import best, reached
from tests.schemes.problems import heterogeneous, small, twins

from melisma.errors import InfeasibleError
from melisma.schemes.csa import csa, csa_strict
from melisma.system import (
    Problem,
    cell,
    learner_s,
    max_staleness,
    mean_staleness,
)


def test_twins_share_equally() -> None:
    # 50 samples each: τ·50 ms + 50 ms ≤ 1 s, so τ = 19.
    allocation = csa(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [19, 19]


def test_spare_samples_are_a_step_more_for_someone() -> None:
    # h(19) = ⌊1000/20⌋ = 50 and h(20) = ⌊1000/21⌋ = 47: a 20th step costs 3 samples.
    assert csa(replace(twins(), samples=98)).steps.tolist() == [19, 19]
    assert sorted(csa(replace(twins(), samples=97)).steps.tolist()) == [19, 20]


def test_strict_prefers_equal_steps_to_more_of_them() -> None:
    assert csa_strict(replace(twins(), samples=97)).steps.tolist() == [19, 19]


def test_a_bound_forces_a_wider_window() -> None:
    # Learner 0 may take 20 samples: ⌊(1000 − 20)/20⌋ = 49 steps. Learner 1 has 80 left:
    # ⌊(1000 − 80)/80⌋ = 11.
    allocation = csa(replace(twins(), most=np.array([20, 100])))
    assert allocation.samples.tolist() == [20, 80]
    assert allocation.steps.tolist() == [49, 11]


def test_fewer_steps_close_together_beat_more_that_are_apart() -> None:
    # In 64ths of a second, f = ⌊50.5/d⌋ − 1 and ⌊(46.5/d − 1)/7⌋: 10 and 1 samples make
    # 4 and 6 steps, 9 and 2 make 4 and 3, 8 and 3 make 5 and 2.
    problem = Problem(
        step_s=np.array([1.0, 7.0]) / 64,
        sample_s=np.array([1.0, 1.0]) / 64,
        fixed_s=np.array([13.5, 17.5]) / 64,
        samples=11,
        deadline_s=1.0,
    )
    assert csa(problem).steps.tolist() == [4, 3]


@pytest.mark.parametrize("least_steps", [0, 1])
@pytest.mark.parametrize("seed", range(2))
def test_no_allocation_is_better(seed: int, least_steps: int) -> None:
    scheme = partial(csa, least_steps=least_steps)
    for problem in small(seed, 300):
        merit = best(problem, enough=1, least_steps=least_steps)
        assert reached(scheme, problem, 1) == merit, problem


@pytest.mark.parametrize("least_steps", [0, 1])
@pytest.mark.parametrize("seed", range(2, 4))
def test_no_allocation_is_better_than_the_strict_one(
    seed: int, least_steps: int
) -> None:
    scheme = partial(csa_strict, least_steps=least_steps)
    for problem in small(seed, 300):
        merit = best(problem, enough=0, least_steps=least_steps)
        assert reached(scheme, problem, 0) == merit, problem


def test_the_small_problems_are_of_every_kind() -> None:
    merits = [best(problem, enough=0, least_steps=1) for problem in small(0, 400)]
    widths = [merit[0] for merit in merits if merit is not None]
    assert 50 < merits.count(None) < 150
    assert min(np.bincount(np.minimum(widths, 4))) > 10  # 0, 1, 2, 3, and 4 or more


@pytest.mark.parametrize("most", [None, 3100, 3300, 3600])
@pytest.mark.parametrize("seed", range(5))
def test_everyone_is_busy_to_the_deadline(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    allocation = csa(problem)
    d, tau = allocation.samples, allocation.steps
    assert d.sum() == problem.samples
    assert ((problem.low <= d) & (d <= problem.high)).all()
    assert (learner_s(problem, allocation) <= problem.deadline_s).all()
    assert (problem.seconds(d, tau + 1) > problem.deadline_s).all()


@pytest.mark.parametrize("learners", [12, 18, 24, 30])
@pytest.mark.parametrize("most", [3200, 3400, 3600])
def test_no_window_of_its_width_holds_more_steps(learners: int, most: int) -> None:
    problem = heterogeneous(learners, learners, most=most)
    tau = csa(problem).steps
    assert np.ptp(tau) >= 2
    assert tau.sum() == most_steps(problem, int(tau.min()), int(tau.max()))


def most_steps(problem: Problem, a: int, b: int) -> int:
    """Largest Σ τ with all τ from a to b, by HiGHS: one level each, Σ h(τ) ≥ D."""
    levels = np.arange(a, b + 1)
    h = np.stack([problem.samples_within(int(level)) for level in levels])
    after = np.stack([problem.samples_within(int(level) + 1) for level in levels])
    open_ = h >= np.maximum(problem.low, after + 1)
    K = problem.learners
    answer = milp(
        -np.repeat(levels, K),
        integrality=np.ones(h.size, dtype=np.int64),
        bounds=Bounds(0, open_.ravel().astype(float)),
        constraints=[
            LinearConstraint(np.tile(np.eye(K), levels.size), 1, 1),
            LinearConstraint(h.ravel(), lb=problem.samples),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert answer.success, answer.message
    return -round(answer.fun)


@pytest.mark.parametrize("learners", [12, 20, 30])
def test_learners_alike_are_no_harder(learners: int) -> None:
    # Two kinds only: the bound of the relaxation may be out of reach for everyone.
    problem = cell(learners, 15.0, samples=3000 * learners, most=3050)
    tau = csa(problem).steps
    assert np.ptp(tau) == 7
    assert tau.sum() == most_steps(problem, int(tau.min()), int(tau.max()))


def test_too_many_samples_are_counted() -> None:
    message = (
        r"100 samples do not fit in 0\.01 s, even for 1 step of each learner: 10 do; "
        r"use fewer samples, more learners or a deadline of 0\.1 s"
    )
    with pytest.raises(InfeasibleError, match=message):
        csa(twins(deadline_s=0.01))


def test_the_deadline_that_the_message_names_would_do() -> None:
    assert csa(twins(deadline_s=0.1)).steps.tolist() == [1, 1]
    with pytest.raises(InfeasibleError):
        csa(twins(deadline_s=0.0999))


def test_a_learner_too_slow_for_its_least_samples_is_named() -> None:
    slow = replace(twins(), least=np.array([1, 60]), deadline_s=0.1)
    message = (
        r"learner 1 needs 0\.12 s for 1 step over its least of 60, past .* 0\.12 s$"
    )
    with pytest.raises(InfeasibleError, match=message):
        csa(slow)


#: K, then at T = 7.5 s and T = 15 s: Σ τ and mean staleness (notes, 1.8).
FIGURE_2 = [
    (5, 4, 0.400, 9, 0.400),
    (6, 5, 0.333, 11, 0.333),
    (7, 10, 0.571, 19, 0.476),
    (8, 13, 0.536, 22, 0.429),
    (9, 16, 0.389, 31, 0.556),
    (10, 18, 0.356, 36, 0.533),
    (11, 21, 0.182, 43, 0.182),
    (12, 23, 0.167, 49, 0.167),
    (13, 33, 0.538, 61, 0.462),
    (14, 36, 0.527, 68, 0.264),
    (15, 41, 0.419, 83, 0.533),
    (16, 45, 0.325, 90, 0.500),
    (17, 50, 0.118, 101, 0.118),
    (18, 54, 0.000, 113, 0.425),
    (19, 67, 0.526, 128, 0.409),
    (20, 72, 0.505, 137, 0.268),
]


@pytest.mark.paper
@pytest.mark.parametrize(("K", "sum_7", "mean_7", "sum_15", "mean_15"), FIGURE_2)
def test_figure_2(
    K: int, sum_7: int, mean_7: float, sum_15: int, mean_15: float
) -> None:
    for deadline_s, total, mean in [(7.5, sum_7, mean_7), (15.0, sum_15, mean_15)]:
        # At T = 7.5 s, 5 or 6 learners cannot all do one step.
        tau = csa(cell(K, deadline_s), least_steps=0).steps
        assert tau.sum() == total
        assert max_staleness(tau) == (mean > 0)
        assert mean_staleness(tau) == pytest.approx(mean, abs=5e-4)


@pytest.mark.paper
@pytest.mark.parametrize("K", range(5, 21))
@pytest.mark.parametrize("deadline_s", [7.5, 15.0])
def test_figure_2_strictly_is_all_zero_but_for_one(K: int, deadline_s: float) -> None:
    tau = csa_strict(cell(K, deadline_s), least_steps=0).steps
    # Σ h(2) = 59,997 is 3 short of D, and Σ (h(2) + 1) is 3 over it.
    assert max_staleness(tau) == ((K, deadline_s) == (6, 15.0))
