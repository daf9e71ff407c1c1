import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melisma.maths.arrays import Floats, Ints
from melisma.maths.margins import with_margins

Case = tuple[Floats, Ints, Ints]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Logarithms of any spread, and sums of rows and columns that agree."""
    seed, spread = draw(st.integers(0, 2**32)), draw(st.floats(0, 1e6))
    shape = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 20, shape)
    return spread * rng.normal(size=shape), table.sum(axis=1), table.sum(axis=0)


@pytest.mark.slow
@given(cases())
def test_both_sums_are_right_whatever_is_asked_for(case: Case) -> None:
    logs, rows, columns = case
    parts = with_margins(logs, rows, columns, np.random.default_rng(0))
    assert (parts >= 0).all()
    assert parts.sum(axis=1).tolist() == rows.tolist()
    assert parts.sum(axis=0).tolist() == columns.tolist()


def test_scaling_keeps_the_odds() -> None:
    # Rows and columns are scaled alone, so x₁₁ x₂₂ / (x₁₂ x₂₁) stays what it was: 6.
    logs, sums = np.log([[1.0, 2.0], [3.0, 36.0]]), np.array([400_000, 600_000])
    x = with_margins(logs, sums, sums, np.random.default_rng(0))
    assert x[0, 0] * x[1, 1] / (x[0, 1] * x[1, 0]) == pytest.approx(6, rel=1e-4)


def test_rows_that_all_want_the_same_column_get_what_there_is() -> None:
    logs = np.tile([0.0, -1e6], (4, 1))
    parts = with_margins(
        logs, np.full(4, 5), np.array([8, 12]), np.random.default_rng(0)
    )
    assert parts.tolist() == [[2, 3]] * 4


def test_sums_that_differ_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="rows sum to 2, columns to 3"):
        with_margins(
            np.zeros((1, 1)), np.array([2]), np.array([3]), np.random.default_rng(0)
        )
