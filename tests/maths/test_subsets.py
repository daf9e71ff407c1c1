from itertools import product

import numpy as np
import pytest

from melisma.maths.subsets import Division, masks, split, sums


@pytest.mark.parametrize("members", range(6))
def test_every_split_of_a_set_is_looked_at(members: int) -> None:
    size = 2**members
    f, g = np.random.default_rng(members).random((2, size))
    best = [
        min(f[R] + g[S ^ R] for R in range(size) if R & S == R) for S in range(size)
    ]
    assert split(f, g).tolist() == best


def test_sums_are_those_of_the_masks() -> None:
    values = np.random.default_rng(0).integers(9, size=(3, 5)).astype(float)
    assert (sums(values) == values @ masks(5).T).all()


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("tasks", [1, 2, 3, 4])
def test_no_division_is_better(tasks: int, every: bool) -> None:
    members = 4
    worth = np.random.default_rng(tasks).normal(size=(tasks, 2**members))
    division = Division(list(worth), every)
    places = range(tasks if every else tasks + 1)
    values = []
    for owner in product(places, repeat=members):
        sets = [
            sum(2**j for j in range(members) if owner[j] == i) for i in range(tasks)
        ]
        values.append(sum(worth[i, S] for i, S in enumerate(sets)))
    assert division.best == pytest.approx(min(values))
    assert sum(worth[i, S] for i, S in enumerate(division.sets())) == pytest.approx(
        min(values)
    )
