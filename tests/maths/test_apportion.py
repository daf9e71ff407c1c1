from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.maths.apportion import between, level, nearest
from melisma.maths.arrays import Ints

Bounds = tuple[Ints, Ints, int]


@st.composite
def bounds(draw: st.DrawFn, largest: int = 50) -> Bounds:
    """Lower bounds, upper bounds, and a sum that is within both."""
    pairs = st.tuples(st.integers(0, largest), st.integers(0, largest)).map(sorted)
    low, high = np.array(draw(st.lists(pairs, min_size=1, max_size=8))).T
    return low, high, draw(st.integers(int(low.sum()), int(high.sum())))


@given(bounds())
def test_between_is_within_bounds_and_sums_up(case: Bounds) -> None:
    low, high, total = case
    parts = between(low, high, total)
    assert parts.sum() == total
    assert ((low <= parts) & (parts <= high)).all()


@given(bounds())
def test_between_goes_the_same_share_of_the_way(case: Bounds) -> None:
    low, high, total = case
    way = (total - low.sum()) / max(high.sum() - low.sum(), 1)
    assert (np.abs(between(low, high, total) - low - way * (high - low)) < 1).all()


@given(bounds(largest=2**50))
def test_between_is_exact_where_products_pass_64_bits(case: Bounds) -> None:
    low, high, total = case
    parts = between(low, high, total)
    assert parts.sum() == total
    assert ((low <= parts) & (parts <= high)).all()


@given(bounds())
def test_level_is_as_equal_as_bounds_allow(case: Bounds) -> None:
    low, high, total = case
    parts = level(low, high, total)
    assert parts.sum() == total
    assert ((low <= parts) & (parts <= high)).all()
    # No giver has two more than a taker.
    givers, takers = parts[parts > low], parts[parts < high]
    assert not givers.size or not takers.size or givers.max() - takers.min() <= 1


@given(bounds(), st.data())
def test_nearest_is_within_bounds_and_sums_up(
    case: Bounds, data: st.DataObject
) -> None:
    low, high, total = case
    values = data.draw(
        st.lists(st.floats(-10, 60), min_size=low.size, max_size=low.size)
    )
    parts = nearest(np.array(values), low, high, total)
    assert parts.sum() == total
    assert ((low <= parts) & (parts <= high)).all()


@pytest.mark.parametrize("split", [between, level])
def test_a_sum_outside_the_bounds_is_refused(
    split: Callable[[Ints, Ints, int], Ints],
) -> None:
    with pytest.raises(ValueError, match="a sum of 9 is not between 2 and 8"):
        split(np.array([1, 1]), np.array([4, 4]), 9)
