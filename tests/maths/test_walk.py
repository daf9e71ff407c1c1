from collections.abc import Callable

import numpy as np
import pytest

from melisma.maths.arrays import Floats
from melisma.maths.walk import Walk, in_disc, on_ring

RADIUS_M = 50.0


def goals(walkers: int, seed: int = 0) -> Callable[[int], Floats]:
    return lambda leg: in_disc(walkers, RADIUS_M, np.random.default_rng([seed, leg]))


def walk(walkers: int = 200, *, speed_mps: float = 2.0, pause_s: float = 3.0) -> Walk:
    start = in_disc(walkers, RADIUS_M, np.random.default_rng(99))
    return Walk(start, goals(walkers), speed_mps=speed_mps, pause_s=pause_s)


def test_every_place_of_a_disc_is_as_likely() -> None:
    places = in_disc(40_000, RADIUS_M, np.random.default_rng(0))
    far = np.hypot(*places.T)
    assert far.max() <= RADIUS_M
    # The area within r is (r/R)² of the disc; 0.01 is four standard deviations.
    for share in (0.1, 0.5, 0.9):
        within = (far <= RADIUS_M * np.sqrt(share)).mean()
        assert within == pytest.approx(share, abs=0.01)
    assert np.abs(places.mean(axis=0)).max() < 1.0


def test_a_place_on_a_ring_is_that_far() -> None:
    places = on_ring(np.array([5.0, 50.0]), np.array([0.25, 0.7]))
    assert np.hypot(*places.T) == pytest.approx([5.0, 50.0])


def test_walkers_stay_in_the_disc_and_never_go_faster_than_they_can() -> None:
    walkers = walk()
    places = np.array([walkers.at(float(t)) for t in range(300)])
    assert np.hypot(places[..., 0], places[..., 1]).max() <= RADIUS_M
    moved = np.diff(places, axis=0)
    assert np.hypot(moved[..., 0], moved[..., 1]).max() <= 2.0 + 1e-9


def test_a_way_is_straight_and_ends_in_a_pause() -> None:
    # From 0 to 10 m at 2 m/s: 5 s; a pause of 3 s; then back, 5 s.
    ways = [np.array([[10.0, 0.0]]), np.zeros((1, 2))]
    walker = Walk(np.zeros((1, 2)), lambda n: ways[n % 2], speed_mps=2.0, pause_s=3.0)
    at = [float(walker.at(t)[0, 0]) for t in (0.0, 2.5, 5.0, 7.9, 8.0, 10.5, 13.0)]
    assert at == pytest.approx([0.0, 5.0, 10.0, 10.0, 10.0, 5.0, 0.0])


def test_where_one_is_does_not_depend_on_who_looked_before() -> None:
    often, once = walk(), walk()
    for t in range(1, 500):
        seen = often.at(float(t))
    assert seen == pytest.approx(once.at(499.0), abs=1e-6)
