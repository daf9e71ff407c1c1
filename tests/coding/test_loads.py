"""Whole loads of least makespan, groups, and how many partitions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma.coding.loads import fewest, groups, loads, makespan
from melisma.maths.arrays import Floats

some_speeds = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=4).map(np.array)


@settings(deadline=None)
@given(speeds=some_speeds, total=st.integers(1, 8), most=st.integers(2, 8))
def test_no_split_at_all_is_done_sooner(speeds: Floats, total: int, most: int) -> None:
    total = min(total, most * speeds.size)
    parts = loads(speeds, total, most)
    assert parts.sum() == total
    assert ((parts >= 0) & (parts <= most)).all()
    splits = product(range(min(total, most) + 1), repeat=speeds.size)
    best = min(
        makespan(speeds, np.array(split)) for split in splits if sum(split) == total
    )
    assert makespan(speeds, parts) == pytest.approx(best)


@given(
    st.lists(st.floats(0.01, 100.0), min_size=1, max_size=60).map(np.array),
    st.integers(0, 10_000),
)
def test_one_partition_less_would_not_have_been_late(
    speeds: Floats, total: int
) -> None:
    # Least makespan: nobody could have taken the last partition sooner.
    parts = loads(speeds, total, max(total, 1))
    assert parts.sum() == total
    assert makespan(speeds, parts) <= ((parts + 1) / speeds).min() * (1 + 1e-9)


def test_more_than_everybody_can_take_is_refused() -> None:
    with pytest.raises(ValueError, match="9 are more than 4 for each of 2"):
        loads(np.ones(2), 9, 4)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20).map(np.array), st.data())
def test_groups_are_all_workers_once_and_none_is_empty(
    speeds: Floats, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, speeds.size))
    shares = data.draw(st.lists(st.floats(0.1, 9.0), min_size=count, max_size=count))
    found = groups(speeds, shares)
    assert len(found) == count
    assert all(group.size for group in found)
    assert sorted(np.concatenate(found).tolist()) == list(range(speeds.size))


@pytest.mark.parametrize("seed", range(5))
def test_many_workers_make_groups_of_the_wanted_shares(seed: int) -> None:
    speeds = np.random.default_rng(seed).uniform(1.0, 4.0, 200)
    shares = np.array([0.6, 0.3, 0.1])
    totals = [speeds[group].sum() for group in groups(speeds, shares)]
    assert totals / speeds.sum() == pytest.approx(shares, rel=0.05)


def test_the_fewest_partitions_that_are_even_enough() -> None:
    # 14 = 1 + 1 + 2 + 2 + 4 + 4 is even; no smaller number is within 2 %.
    speeds = np.array([2.0, 2.0, 4.0, 4.0, 8.0, 8.0])

    def time(K: int) -> float:
        return makespan(speeds, loads(speeds, K, K))

    assert fewest(time, 6, 192) == 14
    assert all(time(K) / K > 1.02 / 28 for K in range(6, 14))
