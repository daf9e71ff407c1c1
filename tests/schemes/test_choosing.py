"""The subset is compared with every subset there is."""

from itertools import combinations

import numpy as np
import pytest

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Bools
from melisma.maths.knapsack import most_items
from melisma.schemes.choosing import chosen
from melisma.schemes.common import common_steps
from melisma.schemes.csa import csa
from melisma.system.problem import Problem


def problem_of(rng: np.random.Generator, learners: int) -> Problem:
    return Problem(
        step_s=rng.uniform(0.002, 0.05, (learners,)),
        sample_s=rng.uniform(0.0, 0.01, (learners,)),
        fixed_s=rng.uniform(0.0, 0.9, (learners,)),
        samples=int(rng.integers(learners, 60)),
        deadline_s=1.0,
        least=int(rng.integers(1, 4)),
    )


def only(problem: Problem, who: Bools) -> Problem:
    law = problem.only(who)
    return Problem.of(
        law,
        samples=problem.samples,
        deadline_s=problem.deadline_s,
        least=problem.least,
    )


def worth(problem: Problem, who: Bools) -> tuple[int, int, int]:
    """Common steps, learners, and how many can do a step more; zeros if infeasible."""
    part = only(problem, who)
    try:
        a = common_steps(part, 1, part.samples_within)
    except InfeasibleError:
        return 0, 0, 0
    lower, upper = part.samples_within(a), part.samples_within(a + 1)
    spare = int(lower.sum()) - part.samples
    raised = most_items(np.where(upper >= part.low, lower - upper, spare + 1), spare)
    return a, int(who.sum()), int(raised.sum())


def best(problem: Problem, at_most: int) -> tuple[int, int, int]:
    found = (0, 0, 0)
    for size in range(1, at_most + 1):
        for members in combinations(range(problem.learners), size):
            who = np.isin(np.arange(problem.learners), members)
            found = max(found, worth(problem, who))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_subset_does_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(rng, int(rng.integers(2, 7)))
    for at_most in range(1, problem.learners + 1):
        expected = best(problem, at_most)
        if expected != (0, 0, 0):
            who = chosen(problem, at_most)
            assert 0 < who.sum() <= at_most
            assert worth(problem, who) == expected
        elif at_most == problem.learners:
            assert chosen(problem, at_most).all()
        else:
            with pytest.raises(InfeasibleError, match="do not fit into"):
                chosen(problem, at_most)


def test_who_holds_nobody_back_takes_part() -> None:
    problem = Problem(
        step_s=np.array([0.001, 0.002, 0.003]),
        sample_s=np.zeros(3),
        fixed_s=np.zeros(3),
        samples=100,
        deadline_s=1.0,
    )
    assert chosen(problem).all()


def test_who_would_only_hold_the_others_back_is_left_out() -> None:
    # The third exchanges its model for 0.9 s, and a sample takes it 0.09 s a step: with
    # it nobody can do more than one step alike; without it, the others do 19.
    problem = Problem(
        step_s=np.array([0.001, 0.001, 0.09]),
        sample_s=np.array([0.001, 0.001, 0.001]),
        fixed_s=np.array([0.0, 0.0, 0.9]),
        samples=100,
        deadline_s=1.0,
    )
    assert csa(problem).steps.min() == 1
    who = chosen(problem)
    assert who.tolist() == [True, True, False]
    assert csa(only(problem, who)).steps.min() == 19


def test_too_many_learners_for_the_samples_are_left_out() -> None:
    problem = Problem(
        step_s=np.array([0.003, 0.001, 0.002, 0.004]),
        sample_s=np.zeros(4),
        fixed_s=np.zeros(4),
        samples=10,
        deadline_s=1.0,
        least=5,
    )
    with pytest.raises(InfeasibleError):
        csa(problem)
    who = chosen(problem)
    assert who.tolist() == [False, True, True, False]
    assert csa(only(problem, who)).samples.sum() == 10


def test_a_hundred_thousand_are_chosen_from_at_once() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(
        step_s=rng.uniform(0.002, 0.05, (100_000,)),
        sample_s=rng.uniform(0.0, 0.01, (100_000,)),
        fixed_s=rng.uniform(0.0, 0.9, (100_000,)),
        samples=100_000,
        deadline_s=1.0,
    )
    who = chosen(problem, 1000)
    assert who.sum() == 1000
    a, _, _ = worth(problem, who)
    # No thousand of them can do one step more alike.
    more = np.sort(problem.samples_within(a + 1))[::-1][:1000]
    assert more.sum() < 100_000
