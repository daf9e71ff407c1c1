from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from melisma.maths.arrays import Ints
from melisma.maths.rays import Rays
from melisma.maths.rays_core import close


@st.composite
def some_rays(draw: st.DrawFn) -> Rays:
    """Up to 4 items and 3 rays; some are not to be taken. The total is in reach."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items, rays = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    low = rng.integers(1, 4, items).astype(float)
    reach = low + rng.integers(0, 8, (rays, items)).astype(float)
    slope = rng.integers(1, 9, (rays, items)).astype(float)
    shut = rng.random(slope.shape) < 0.2
    shut[0] = False
    reach, slope = np.where(shut, low, reach), np.where(shut, -np.inf, slope)
    total = rng.integers(low.sum(), reach.max(axis=0).sum() + 1)
    return Rays(slope, reach, low, int(total))


def most(rays: Rays) -> float:
    """Largest sum of gains, by trying all rays: on given ones steep ones are full."""
    found = -np.inf
    for chosen in product(range(len(rays.slope)), repeat=rays.low.size):
        ray = np.array(chosen)
        slope, reach = rays.at(ray)
        if not np.isfinite(slope).all() or reach.sum() < rays.total:
            continue
        left, gain = float(rays.total - rays.low.sum()), float(slope @ rays.low)
        for k in np.argsort(-slope):
            taken = min(left, float(reach[k] - rays.low[k]))
            left, gain = left - taken, gain + float(slope[k]) * taken
        found = max(found, gain)
    return float(found)


def answer(rays: Rays) -> tuple[Ints, float, bool]:
    relaxed = rays.relax()
    ray = rays.between(relaxed)
    ray, proven = close(rays, relaxed, ray, rays.gain(ray, rays.filled(ray)))
    return ray, relaxed.bound, proven


@settings(max_examples=300, deadline=None)
@given(some_rays())
def test_nothing_is_better_than_what_is_proven(rays: Rays) -> None:
    ray, bound, proven = answer(rays)
    size = rays.filled(ray)
    assert size.sum() == rays.total
    assert ((rays.low <= size) & (size <= rays.at(ray)[1])).all()
    assert proven
    best = most(rays)
    assert rays.gain(ray, size) == pytest.approx(best, rel=1e-9)
    assert bound >= best - 1e-9


@pytest.mark.parametrize("items", [50, 20_000])
def test_the_gap_is_part_of_one_item(items: int) -> None:
    rng = np.random.default_rng(items)
    low = np.ones(items)
    reach = low + rng.integers(0, 100, (4, items))
    rays = Rays(rng.uniform(1, 2, (4, items)), reach, low, 60 * items)
    relaxed = rays.relax()
    ray = rays.between(relaxed)
    gain = rays.gain(ray, rays.filled(ray))
    assert gain <= relaxed.bound <= gain + 2 * 100
    closed = close(rays, relaxed, ray, gain)
    assert rays.gain(closed.ray, rays.filled(closed.ray)) >= gain


def test_equal_slopes_are_filled_alike() -> None:
    rays = Rays(np.ones((1, 3)), np.array([[10.0, 20.0, 30.0]]), np.zeros(3), 30)
    assert rays.filled(np.zeros(3, dtype=np.int64)).tolist() == [5, 10, 15]


def test_a_total_out_of_reach_is_told() -> None:
    slope, reach = np.array([[1.0, -np.inf]]), np.array([[5.0, 1.0]])
    assert not Rays(slope, reach, np.ones(2), 3).reachable
    assert not Rays(np.ones((1, 2)), reach, np.ones(2), 7).reachable
    assert Rays(np.ones((1, 2)), reach, np.ones(2), 6).reachable
