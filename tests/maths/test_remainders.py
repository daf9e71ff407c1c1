"""Whole numbers near real ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from melisma.maths.arrays import Floats, Ints
from melisma.maths.remainders import handed_out


def drawn(seed: int) -> tuple[Floats, Ints, Ints, Floats, Floats]:
    """Amounts of 4 sources in 3 sinks with room and one without end, whole in sum."""
    rng = np.random.default_rng(seed)
    source, sink = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    share = rng.dirichlet(np.full(4, rng.choice([0.2, 1.0, 5.0])), 4)
    amounts = (share * rng.integers(0, 9, (4, 1))).ravel()
    most = np.where(rng.random(16) < 0.5, amounts + rng.random(16), np.inf)
    most[sink == 3] = np.inf
    used = np.bincount(sink, amounts, 4)
    free = np.where(rng.random(3) < 0.3, np.inf, used[:3] + rng.random(3))
    room = np.append(free, np.inf)
    return amounts, source, sink, room, most


@given(st.integers(0, 100_000))
def test_sums_stay_and_room_is_kept(seed: int) -> None:
    amounts, source, sink, room, most = drawn(seed)
    whole = handed_out(amounts, source=source, sink=sink, room=room, most=most)
    assert (whole == np.round(whole)).all()
    assert (whole >= 0).all()
    assert np.allclose(np.bincount(source, whole), np.bincount(source, amounts))
    assert (np.bincount(sink, whole, 4) <= room + 1e-6).all()
    assert (whole <= most + 1e-6).all()


@given(st.integers(0, 100_000))
def test_what_has_an_end_moves_by_less_than_one(seed: int) -> None:
    amounts, source, sink, room, most = drawn(seed)
    whole = handed_out(amounts, source=source, sink=sink, room=room, most=most)
    assert (np.abs(whole - amounts)[sink < 3] < 1 + 1e-9).all()


def test_whole_numbers_stay_as_they_are() -> None:
    amounts = np.array([3.0, 1.0 - 1e-9, 2.0])
    whole = handed_out(
        amounts,
        source=np.zeros(3, dtype=np.int64),
        sink=np.arange(3),
        room=np.array([3.0, 1.0, np.inf]),
        most=np.full(3, np.inf),
    )
    assert whole.tolist() == [3.0, 1.0, 2.0]
