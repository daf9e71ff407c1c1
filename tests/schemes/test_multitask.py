"""The multi-task problem, its exact solver, the method of prices and HiGHS."""

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.schemes.multitasks import alike, ladder, small, thesis

from melisma.errors import InfeasibleError, SolverError
from melisma.schemes.multitask import exact, ilp, prices, solve
from melisma.schemes.multitask.dual import bound_s
from melisma.system import Assignment, MultiTaskProblem


def test_each_task_gets_the_learners_that_are_good_at_it() -> None:
    # Learners 0 and 1 share task 0: 6 shards at 1 s, 3 each. Learner 2 does task 1
    # alone: 4 shards at 1 s. Any other association has a learner at 3 s a shard.
    solved = exact(ladder())
    assert solved.assignment.shards.tolist() == [[3, 3, 0], [0, 0, 4]]
    assert (solved.objective_s, solved.bound_s, solved.gap) == (7.0, 7.0, 0.0)


def test_a_budget_moves_shards_to_the_cheap_and_takes_longer() -> None:
    # Learner 0 costs 2 a shard, the others 1: (3, 3) and 4 cost 13. With 12 learner 0
    # does 2 and learner 1 does 4: one second more; with 11, (1, 5): another.
    assert exact(ladder(budget=12.0)).assignment.shards.tolist() == [
        [2, 4, 0],
        [0, 0, 4],
    ]
    assert exact(ladder(budget=12.0)).objective_s == 8.0
    assert exact(ladder(budget=11.0)).objective_s == 9.0


def test_who_need_not_serve_may_be_left_out() -> None:
    # Without learner 0 task 0 takes 6 s, and all cost 10; with it, it has a shard.
    free = ladder(budget=10.0, every=False)
    assert exact(free).assignment.shards.tolist() == [[0, 6, 0], [0, 0, 4]]
    with pytest.raises(InfeasibleError, match=r"budget of 10 is below 11"):
        exact(ladder(budget=10.0))


def test_the_least_of_each_learner_counts() -> None:
    # 6 shards in two parts of at least 3: as before. At least 4 does not go twice.
    assert exact(ladder(least=3)).objective_s == 7.0
    assert exact(ladder(least=4, every=False)).assignment.shards[0].max() == 6


def best_of_all(problem: MultiTaskProblem) -> float:
    """Least Σz of all assignments, one by one."""
    D, m, n = problem.shards, problem.tasks, problem.learners
    choices = [(-1, 0), *((i, d) for i in range(m) for d in range(1, D[i] + 1))]
    best = inf
    for each in product(choices, repeat=n):
        shards = np.zeros((m, n), dtype=np.int64)
        for j, (i, d) in enumerate(each):
            if d:
                shards[i, j] = d
        if not problem.violations(assignment := Assignment(shards)):
            best = min(best, problem.objective_s(assignment))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_assignment_at_all_is_better(seed: int) -> None:
    problem = small(seed, learners=3, most=4)
    best = best_of_all(problem)
    if best == inf:
        with pytest.raises(InfeasibleError):
            exact(problem)
    else:
        assert exact(problem).objective_s == pytest.approx(best)


def objective_s(solver: object, problem: MultiTaskProblem) -> float:
    """What a solver reaches; inf where it proves that there is nothing."""
    try:
        solved = solver(problem)  # type: ignore[operator]
    except InfeasibleError:
        return inf
    assert problem.violations(solved.assignment) == []
    assert solved.bound_s <= solved.objective_s
    return float(solved.objective_s)


@pytest.mark.parametrize("seed", range(100))
def test_the_objective_is_that_of_highs(seed: int) -> None:
    problem = small(seed)
    assert objective_s(exact, problem) == pytest.approx(objective_s(ilp, problem))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 500))
def test_the_objective_is_that_of_highs_on_many_more(seed: int) -> None:
    problem = small(seed)
    assert objective_s(exact, problem) == pytest.approx(objective_s(ilp, problem))


def test_the_small_problems_are_of_every_kind() -> None:
    problems = [small(seed) for seed in range(100)]
    reached = np.array([objective_s(exact, problem) for problem in problems])
    free = [objective_s(exact, replace(problem, budget=inf)) for problem in problems]
    assert 10 < (reached == inf).sum() < 50
    assert ((reached < inf) & (reached > np.array(free) + 1e-9)).sum() > 15
    assert 30 < sum(problem.every for problem in problems) < 70
    assert sum(problem.least > 1 for problem in problems) > 30


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    learners=st.integers(2, 9),
    tasks=st.integers(1, 3),
    every=st.booleans(),
    least=st.integers(1, 3),
    part=st.one_of(st.none(), st.floats(0.5, 1.2)),
)
def test_constraints_hold_and_bounds_are_below(
    seed: int, learners: int, tasks: int, every: bool, least: int, part: float | None
) -> None:
    problem = replace(
        small(seed, learners=learners, tasks=tasks), every=every, least=least
    )
    if part is None:
        problem = replace(problem, budget=inf)
    else:
        problem = replace(problem, budget=part * float(problem.shards.sum()))
    best = objective_s(exact, problem)
    try:
        solved = prices(problem)
    except SolverError:
        return
    except InfeasibleError:
        assert best == inf
        return
    assert problem.violations(solved.assignment) == []
    assert solved.bound_s <= best * (1.0 + 1e-9)
    assert best <= solved.objective_s * (1.0 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("part", [None, 0.9, 0.8])
@pytest.mark.parametrize(("learners", "tasks"), [(30, 3), (60, 5)])
def test_prices_are_near_the_optimum_and_prove_it(
    learners: int, tasks: int, part: float | None
) -> None:
    problem = thesis(learners, tasks)
    solved = prices(problem)
    if part is not None:
        problem = replace(problem, budget=part * problem.cost(solved.assignment))
        solved = prices(problem)
    assert problem.violations(solved.assignment) == []
    assert solved.gap < (0.02 if part is None else 0.05)


def test_the_bound_holds_for_any_prices() -> None:
    problem = thesis(8, 3)
    best = exact(problem).objective_s
    dear = replace(problem, budget=0.8 * problem.cost(exact(problem).assignment))
    best_dear = exact(dear).objective_s
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.5, 1.0, 2.0, 10.0):
        rent = scale * rng.random(8)
        assert bound_s(problem, rent, 0.0) <= best * (1.0 + 1e-9)
        assert bound_s(dear, rent, 0.1 * scale) <= best_dear * (1.0 + 1e-9)


@pytest.mark.parametrize("part", [0.95, 0.85, 0.75])
def test_a_binding_budget_at_thesis_size_is_solved_exactly(part: float) -> None:
    problem = thesis(7, 3)
    cost = problem.cost(exact(problem).assignment)
    problem = replace(problem, budget=part * cost)
    solved = exact(problem)
    assert problem.violations(solved.assignment) == []
    reference = ilp(problem, limit_s=30.0)
    assert reference.bound_s <= solved.objective_s * (1.0 + 1e-9)
    assert solved.objective_s <= reference.objective_s * (1.0 + 1e-9)


def test_the_same_seed_gives_the_same_answer() -> None:
    problem = thesis(30, 3)
    once, again = prices(problem, seed=3), prices(problem, seed=3)
    assert (once.assignment.shards == again.assignment.shards).all()
    assert once.bound_s == again.bound_s


def test_few_learners_are_solved_exactly_and_many_by_prices() -> None:
    assert solve(thesis(8, 3)).gap == 0.0
    assert 0.0 < solve(thesis(30, 3)).gap < 0.02


@pytest.mark.parametrize("solver", [exact, ilp, prices])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shards": np.array([6, 40]), "deadline_s": 13.0},
            r"task 1 cannot do its 40 shards by its deadline of 13 s, not even with "
            r"all 3 learners: 21 fit; give it 24 s, fewer shards or more learners",
        ),
        (
            {"least": 5, "shards": np.array([6, 4])},
            r"task 1 has 4 shards, fewer than the least of 5 .*: lower 'least' to 4",
        ),
        (
            {"least": 4},
            r"3 learners with at least 4 shards each are too many for tasks of "
            r"\[6, 4\] shards: leave 1 out, lower 'least' or let learners be idle",
        ),
        (
            {"fixed_s": np.array([[0.0, 0.0, 9.0], [0.0, 0.0, 8.0]])},
            r"learner 2 meets no task's deadline .* or give task 1 9 s",
        ),
    ],
)
def test_the_constraint_that_cannot_be_met_is_named(
    solver: object, changes: dict[str, object], message: str
) -> None:
    problem = replace(ladder(), **changes)  # type: ignore[arg-type]
    with pytest.raises(InfeasibleError, match=message):
        solver(problem)  # type: ignore[operator]


@pytest.mark.parametrize("solver", [exact, ilp, prices])
def test_more_tasks_than_learners_need_more_learners(solver: object) -> None:
    problem = alike(tasks=3, learners=1, shards=1, deadline_s=9.0)
    message = r"3 tasks for 1 learners.*: use 2 more learners or fewer tasks"
    with pytest.raises(InfeasibleError, match=message):
        solver(problem)  # type: ignore[operator]


@pytest.mark.parametrize("solver", [exact, prices])
def test_learners_too_few_for_all_tasks_are_counted(solver: object) -> None:
    # In 4 s each does 4 shards of either task: 8 of 12 by two learners, in whole
    # learners or not. One more would do.
    problem = alike(tasks=2, learners=2, shards=6, deadline_s=4.0)
    message = r"2 learners cover no more than 66\.7% .*: use about 1 more"
    with pytest.raises(InfeasibleError, match=message):
        solver(problem)  # type: ignore[operator]


def test_deadlines_that_would_do_are_named() -> None:
    # One learner each: 6 s.
    problem = alike(tasks=2, learners=2, shards=6, deadline_s=4.0)
    with pytest.raises(InfeasibleError, match=r"later deadlines \(6, 6 s would do\)"):
        exact(problem)
    assert exact(replace(problem, deadline_s=np.full(2, 6.0))).objective_s == 12.0


@pytest.mark.parametrize("solver", [exact, ilp, prices])
def test_the_budget_that_the_message_names_would_do(solver: object) -> None:
    # By 8 s learner 1 can do 5 of task 0, learner 0 the least of 1; 2 + 5 + 4.
    with pytest.raises(InfeasibleError, match=r"the budget of 9 is below 11, the cost"):
        solver(ladder(budget=9.0))  # type: ignore[operator]
    assert exact(ladder(budget=11.0)).objective_s == 9.0


def test_a_solver_without_time_says_so() -> None:
    with pytest.raises(SolverError, match=r"HiGHS found no assignment of 60 learners"):
        ilp(thesis(60, 5), limit_s=0.001)


@pytest.mark.slow
def test_where_prices_lead_nowhere_branching_does() -> None:
    rng = np.random.default_rng(43)
    n, m = int(rng.integers(13, 17)), int(rng.integers(2, 4))
    problem = MultiTaskProblem(
        shard_s=rng.uniform(0.5, 3.0, (m, n)),
        fixed_s=rng.uniform(0.0, 2.0, (m, n)),
        shards=rng.integers(n // m + 1, 3 * n // m + 2, m),
        deadline_s=np.full(m, 1e3),
        price=rng.uniform(0.2, 2.0, n).round(1),
    )
    ample = prices(problem).assignment.shards
    times = (problem.fixed_s + problem.shard_s * ample) * (ample > 0)
    tight = replace(
        problem,
        deadline_s=1.02 * times.max(axis=1),
        budget=0.97 * float(ample.sum(axis=0) @ problem.price),
    )
    with pytest.raises(SolverError):
        prices(tight)
    solved = solve(tight)
    assert tight.violations(solved.assignment) == []
    assert solved.gap == pytest.approx(0.0, abs=1e-6)
