from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.system import (
    Allocation,
    cell,
    cycle_s,
    learner_s,
    max_staleness,
    mean_staleness,
    truancy,
    utilisation,
)

STEPS = st.lists(st.integers(0, 50), min_size=2, max_size=12)


@given(STEPS)
def test_staleness_is_over_all_pairs(steps: list[int]) -> None:
    apart = [abs(a - b) for a, b in combinations(steps, 2)]
    assert max_staleness(np.array(steps)) == max(apart)
    assert mean_staleness(np.array(steps)) == pytest.approx(np.mean(apart))


def test_one_learner_is_never_stale() -> None:
    assert max_staleness(np.array([7])) == 0
    assert mean_staleness(np.array([7])) == 0.0


def test_a_cycle_ends_with_its_last_learner() -> None:
    assert cycle_s(np.array([3.0, 9.0, 4.0])) == 9.0
    assert cycle_s(np.array([])) == 0.0


def test_nobody_is_truant_before_the_deadline() -> None:
    assert truancy(np.array([3.0, 9.0]), 10.0) == 0.0


def test_time_after_the_deadline_is_not_use() -> None:
    # (5 + 10) of 20 s.
    assert utilisation(np.array([5.0, 30.0]), 10.0) == 0.75


def test_a_learner_that_sits_out_takes_no_time() -> None:
    problem = cell(2, 15.0)
    allocation = Allocation(samples=np.array([1000, 0]), steps=np.array([2, 0]))
    # 2·468.2 ms + 31.6 ms + 90.5 ms
    assert learner_s(problem, allocation) == pytest.approx([1.0585, 0.0], abs=2e-4)
