"""Weighted sums."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from melisma.coding import combine
from melisma.coding.combine import CACHED


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 1000, CACHED + 17])
def test_it_is_the_weighted_sum(kind: type, size: int) -> None:
    rng = np.random.default_rng(0)
    rows: NDArray[Any] = rng.standard_normal((3, size)).astype(kind)
    weights = rng.standard_normal(3)
    total = combine(weights, list(rows))
    assert total.dtype == kind
    exact = weights @ rows.astype(np.float64)
    assert np.abs(total - exact).max() <= 2.0 * np.finfo(kind).eps * np.abs(rows).max()


def test_float32_rows_lose_no_digit_more_than_their_own() -> None:
    # Large weights of both signs: the sums are small, their terms are not.
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    y = (1.001 * x).astype(np.float32)
    weights = np.array([1e5 / 3.0, -1e5 / 3.0])
    exact = weights[0] * (y.astype(np.float64) - x.astype(np.float64))
    a, b = weights.astype(np.float32)
    lost = np.abs(a * y + b * x - exact) / np.abs(exact)
    kept = np.abs(combine(weights, [y, x]) - exact) / np.abs(exact)
    assert kept.max() < 1e-7
    assert np.median(lost) > 1e-6


def test_shapes_are_kept_and_counts_must_agree() -> None:
    assert combine(np.ones(2), [np.ones((2, 3)), np.ones((2, 3))]).shape == (2, 3)
    with pytest.raises(ValueError, match="1 weights for 2 rows"):
        combine(np.ones(1), [np.ones(3), np.ones(3)])
