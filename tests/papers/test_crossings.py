import math

import numpy as np
import pytest
from papers.crossings import crossing


@pytest.mark.parametrize("seed", range(10))
def test_a_crossing_is_where_a_fine_walk_along_the_curve_finds_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.uniform(0.5, 2.0, 8)), rng.uniform(0.0, 1.0, 8)
    target = float(rng.uniform(y[0], 1.2))
    fine = np.linspace(x[0], x[-1], 200_001)
    there = np.interp(fine, x, y) >= target
    found = crossing(x, y, target)
    assert math.isinf(found) == (not (y >= target).any())
    if there.any():
        assert found == pytest.approx(fine[there.argmax()], abs=1e-3)


def test_a_hair_s_breadth_moves_a_crossing_by_a_hair_s_breadth() -> None:
    # Counted in whole cycles it would be 3 or 4.
    below, above = ([0.5, 0.9, 0.95 + hair, 0.97] for hair in (-1e-9, 1e-9))
    times = [crossing([1, 2, 3, 4], curve, 0.95) for curve in (below, above)]
    assert times == pytest.approx([3.0, 3.0], abs=1e-6)


def test_who_begins_at_the_target_has_it_at_once() -> None:
    assert crossing([2.0, 3.0], [0.9, 0.5], 0.9) == 2.0
    assert crossing([2.0, 3.0], [0.1, 0.5], 0.9, never=7.0) == 7.0
