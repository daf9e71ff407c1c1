from dataclasses import replace

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system import Assignment, MultiTaskProblem, Solved


def pair(**changes: object) -> MultiTaskProblem:
    """Two tasks of 4 and 2 shards for three learners."""
    problem = MultiTaskProblem(
        shard_s=np.array([[1.0, 2.0, 4.0], [2.0, 1.0, 1.0]]),
        fixed_s=np.full((2, 3), 0.5),
        shards=np.array([4, 2]),
        deadline_s=np.array([10.0, 8.0]),
        price=np.array([1.0, 0.5, 2.0]),
        budget=7.0,
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


SPLIT = Assignment(np.array([[3, 1, 0], [0, 0, 2]]))


def test_a_task_takes_as_long_as_its_slowest_learner() -> None:
    # 0.5 + 3·1 and 0.5 + 1·2; 0.5 + 2·1.
    assert pair().task_s(SPLIT).tolist() == [3.5, 2.5]
    assert pair().objective_s(SPLIT) == 6.0


def test_cost_is_shards_times_price_and_idle_learners_cost_nothing() -> None:
    assert pair().cost(SPLIT) == 3 * 1.0 + 1 * 0.5 + 2 * 2.0
    assert pair().seconds(SPLIT.shards)[1].tolist() == [0.0, 0.0, 2.5]


def test_the_association_names_the_task_of_each_learner() -> None:
    assert SPLIT.association.tolist() == [0, 0, 1]
    assert Assignment(np.array([[4, 0], [0, 0]])).association.tolist() == [0, -1]


def test_capacities_are_exact_at_their_levels() -> None:
    problem = pair(shard_s=np.full((2, 3), 0.1), fixed_s=np.zeros((2, 3)), shards=99)
    d = np.arange(1, 100)
    assert (problem.within(0, 0.1 * d) == d[:, None]).all()
    assert (problem.within(0, np.nextafter(0.1 * d, 0.0)) == d[:, None] - 1).all()


def test_fewer_than_the_least_are_none() -> None:
    # 0.5 + d·(1, 2, 4) ≤ 4.5 s: 4, 2 and 1 shards.
    assert pair(least=2).within(0, 4.5).tolist() == [4, 2, 0]


@pytest.mark.parametrize(
    ("shards", "changes", "broken"),
    [
        ([[3, 1, 0], [0, 0, 2]], {"budget": 7.5}, []),
        ([[3, 1, 0], [0, 0, 2]], {}, ["budget"]),
        ([[4, 1, 0], [0, 0, 2]], {"budget": 9.0}, ["coverage"]),
        ([[0, 1, 3], [2, 0, 0]], {"budget": 9.0}, ["deadline"]),
        ([[3, 1, 0], [0, 0, 2]], {"budget": 9.0, "least": 2}, ["least"]),
        ([[3, 1, 0], [0, 1, 1]], {}, ["one task per learner"]),
        ([[4, 0, 0], [0, 2, 0]], {}, ["every learner serves"]),
        ([[4, 0, 0], [0, 2, 0]], {"every": False}, []),
    ],
)
def test_what_is_broken_is_named(
    shards: list[list[int]], changes: dict[str, object], broken: list[str]
) -> None:
    assert pair(**changes).violations(Assignment(np.array(shards))) == broken


def test_one_number_stands_for_all() -> None:
    problem = pair(deadline_s=9.0, price=1.0, shards=5)
    assert problem.deadline_s.tolist() == [9.0, 9.0]
    assert problem.price.tolist() == [1.0, 1.0, 1.0]
    assert problem.shards.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shard_s": np.ones(3)},
            r"shard_s has shape \(3,\): give a row for each task",
        ),
        ({"shard_s": np.zeros((2, 3))}, r"shard_s\[0, 0\] is 0: .* above 0"),
        ({"fixed_s": np.ones((3, 2))}, r"fixed_s has shape \(3, 2\): .* \(2, 3\)"),
        ({"fixed_s": -1.0}, r"fixed_s is -1: give finite numbers of at least 0"),
        ({"deadline_s": np.inf}, r"deadline_s is inf: give finite numbers above 0"),
        ({"price": [1.0, -2.0, 1.0]}, r"price of learner 1 is -2"),
        ({"shards": 0}, r"shards is 0: .* at least 1"),
        ({"shards": 1.5}, r"shards is 1\.5: give whole numbers"),
        ({"budget": -1.0}, r"budget of -1\.0: give a number of at least 0"),
        ({"budget": np.nan}, r"budget of nan"),
        ({"least": 0}, r"least is 0: give at least 1 shard"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pair(**changes)


def test_the_arrays_of_a_problem_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        pair().shard_s[0, 0] = 2.0


def test_the_gap_is_part_of_the_objective() -> None:
    assert Solved(assignment=SPLIT, objective_s=8.0, bound_s=6.0).gap == 0.25
