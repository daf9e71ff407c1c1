from itertools import product

import numpy as np
import pytest

from melisma.maths.arrays import Floats, Ints
from melisma.schemes.multitask.exact import exact
from melisma.schemes.multitask.rmed import Risk, rmed
from melisma.system.multitask import MultiTaskProblem
from melisma.system.states import States, heated


def cluster(seed: int, learners: int = 5, tasks: int = 2) -> States:
    rng = np.random.default_rng(seed)
    shard_s = rng.uniform(0.2, 0.5, (tasks, learners, 1)) * np.array([1.0, 6.0, 1.2])
    return States(
        probability=heated(rng.integers(3, size=learners), 3, 0.5),
        shard_s=shard_s,
        fixed_s=np.full_like(shard_s, 0.3),
    )


def problem_of(states: States, budget: float = np.inf) -> MultiTaskProblem:
    shard_s, fixed_s = states.expected()
    tasks, learners = shard_s.shape
    return MultiTaskProblem(
        shard_s=shard_s,
        fixed_s=fixed_s,
        shards=np.full(tasks, 20),
        deadline_s=np.full(tasks, 25.0),
        price=np.linspace(0.5, 1.5, learners),
        budget=budget,
    )


def by_enumeration(states: States, shards: Ints, deadline_s: float) -> Floats:
    """E[max] and E[share lost], state by state of every learner."""
    total = np.zeros(2)
    members = np.flatnonzero(shards)
    for drawn in product(range(3), repeat=len(members)):
        chance = np.prod(states.probability[members, drawn])
        work_s = states.shard_s[0, members, drawn] * shards[members]
        seconds = states.fixed_s[0, members, drawn] + work_s
        lost = np.clip((seconds - deadline_s) / work_s, 0, 1) @ shards[members]
        total += chance * np.array(
            [np.minimum(seconds, deadline_s).max(), lost / shards.sum()]
        )
    return total


@pytest.mark.parametrize("seed", range(5))
def test_the_risk_of_a_split_is_what_enumeration_finds(seed: int) -> None:
    states = cluster(seed, learners=4, tasks=1)
    shards = np.random.default_rng(seed).integers(0, 9, 4) + np.array([1, 0, 0, 0])
    longest_s, lost = by_enumeration(states, shards, 8.0)
    assert Risk(states, 8.0, 150.0)(shards) == pytest.approx(longest_s + 150.0 * lost)


def worth(states: States, problem: MultiTaskProblem, shards: Ints) -> float:
    total, everybody = 0.0, np.arange(problem.learners)
    for i, deadline_s in enumerate(problem.deadline_s.tolist()):
        one = states.only(np.array([i]), everybody)
        longest_s, lost = by_enumeration(one, shards[i], deadline_s).tolist()
        total += longest_s + 150.0 * lost
    return total


@pytest.mark.parametrize("seed", range(8))
def test_it_risks_no_more_than_med_and_keeps_its_constraints(seed: int) -> None:
    states = cluster(seed)
    problem = problem_of(states, budget=45.0)
    solved, med = rmed(problem, states), exact(problem)
    broken = problem.violations(solved.assignment)
    assert set(broken) <= {"deadline"}  # of the mean, which it does not go by
    ours, theirs = (worth(states, problem, s.assignment.shards) for s in (solved, med))
    assert ours <= theirs + 1e-9


def test_it_gains_where_speeds_are_uncertain() -> None:
    gains = []
    for seed in range(10):
        states = cluster(seed)
        problem = problem_of(states)
        solved, med = rmed(problem, states), exact(problem)
        ours = worth(states, problem, solved.assignment.shards)
        gains.append(ours / worth(states, problem, med.assignment.shards))
    assert np.mean(gains) < 0.97


def test_without_uncertainty_it_is_med() -> None:
    states = cluster(0)
    certain = States(
        probability=np.tile([1.0, 0.0, 0.0], (5, 1)),
        shard_s=np.repeat(states.shard_s[..., :1], 3, axis=-1),
        fixed_s=states.fixed_s,
    )
    problem = problem_of(certain)
    solved = rmed(problem, certain)
    assert solved.objective_s == pytest.approx(exact(problem).objective_s)
