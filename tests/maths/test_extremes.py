from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.maths.arrays import Floats
from melisma.maths.extremes import mean_max


def by_enumeration(values: Floats, probability: Floats) -> float:
    total = 0.0
    for states in product(*(range(values.shape[1]) for _ in values)):
        chosen = list(enumerate(states))
        chance = np.prod([probability[j, k] for j, k in chosen])
        total += float(chance) * max(values[j, k] for j, k in chosen)
    return total


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_it_is_what_enumeration_finds(variables: int, states: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, (variables, states)).astype(float)  # with ties
    probability = rng.dirichlet(np.ones(states), variables)
    assert mean_max(values, probability) == pytest.approx(
        by_enumeration(values, probability)
    )


def test_of_certain_numbers_it_is_the_largest() -> None:
    assert mean_max(np.array([[3.0], [7.0]]), np.ones((2, 1))) == 7.0


def test_of_nothing_it_is_nothing() -> None:
    assert mean_max(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0
