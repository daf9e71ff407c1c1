"""Spot instances: the same market whenever it is asked, and times as they should be."""

import numpy as np
import pytest

from melisma.maths.arrays import Bools
from melisma.system.spot import SpotInstances


def market(learners: int = 50, seed: int = 3) -> SpotInstances:
    each = np.ones(learners)
    return SpotInstances(30.0 * each, 10.0 * each, seed)


def test_all_are_there_at_first_and_the_market_is_the_same_however_it_is_asked() -> (
    None
):
    often, seldom = market(), market()
    assert often.there(0.0).all()
    seen: list[Bools] = [often.there(time_s) for time_s in np.arange(0, 200, 0.25)]
    for time_s in (100.0, 150.0, 199.75):
        assert (seldom.there(time_s) == seen[int(time_s * 4)]).all()
    assert not (market(seed=4).there(100.0) == seen[400]).all()


def test_who_is_there_is_taken_just_when_it_says() -> None:
    spot = market()
    there, taken_s, back_s = spot.there(60.0), spot.taken_s(), spot.returns_s()
    assert np.isfinite(taken_s[there]).all()
    assert np.isinf(taken_s[~there]).all()
    assert (np.isfinite(back_s) == ~there).all()
    k = int(np.argmin(np.minimum(taken_s, back_s)))
    change_s = float(min(taken_s[k], back_s[k]))
    assert change_s > 60.0
    assert (spot.there(change_s - 1e-9) == there).all()
    assert spot.there(change_s)[k] != there[k]


def test_times_are_exponential() -> None:
    spot = market(3000)
    # Of Exp(1/30), e⁻¹ are left after 30 s: 5 standard deviations are 4.4 %.
    taken_s = spot.taken_s()
    assert taken_s.mean() == pytest.approx(30.0, rel=0.1)
    assert (taken_s > 30.0).mean() == pytest.approx(np.exp(-1), abs=0.044)
    # In the long run each is there for 30 of 40 s, and it does not matter since when.
    there = spot.there(200.0)
    assert there.mean() == pytest.approx(0.75, abs=0.04)
    left_s = spot.taken_s()[there] - 200.0
    assert left_s.mean() == pytest.approx(30.0, rel=0.1)


def test_who_is_never_reclaimed_stays_and_who_never_returns_is_gone() -> None:
    spot = SpotInstances(np.array([np.inf, 1.0]), np.full(2, np.inf), 0)
    assert spot.there(1e6).tolist() == [True, False]
    assert np.isinf(spot.returns_s()).all()
    assert np.isinf(spot.taken_s()).all()
