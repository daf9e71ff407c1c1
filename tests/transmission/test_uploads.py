"""Uploads over shared channels."""

from math import inf, log, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.transmission.settings import seeds

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats
from melisma.transmission.rules import knapsack
from melisma.transmission.uploads import Schedule, Uploads


def random_uploads(rng: np.random.Generator) -> tuple[Uploads, Schedule]:
    """Up to 8 workers with up to 12 uploads, some owed something, some not ready."""
    n, jobs = int(rng.integers(1, 9)), int(rng.integers(1, 13))
    slot_s = rng.choice([inf, 0.25, 1.0])
    air = Uploads(workers=n, channels=int(rng.integers(1, 5)), slot_s=slot_s)
    air.owed = rng.choice([0.0, 3.0], n) * rng.random(n)
    # Ties and ends of slots as well as any moment.
    moments = np.where(
        rng.random(jobs) < 0.5, rng.integers(0, 8, jobs) / 4, 2 * rng.random(jobs)
    )
    return air, air.schedule(
        ready_s=np.where(rng.random(jobs) < 0.1, inf, moments),
        size_bits=rng.choice([1.0, 2.0, 3 * rng.random() + 0.1], jobs),
        rate_bps=rng.choice([1.0, 4.0, 3 * rng.random() + 0.1], jobs),
        worker=rng.integers(0, n, jobs),
    )


def moments(plan: Schedule) -> Floats:
    """One moment between any two at which something happens."""
    ready = plan.ready_s[np.isfinite(plan.ready_s)]
    times = np.unique(np.concatenate([ready, plan.piece_start_s, plan.piece_end_s]))
    middles: Floats = (times[:-1] + times[1:])[np.diff(times) > 1e-9] / 2
    return middles


@given(seeds)
def test_with_a_channel_for_each_an_upload_takes_its_own_time_exactly(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    ready, size, rate = rng.random((3, n)) + 0.1
    air = Uploads(workers=n, channels=n, slot_s=rng.choice([inf, 0.1]))
    plan = air.schedule(ready, size, rate)
    assert (plan.finish_s == ready + size / rate).all()
    air.settle(plan)
    assert (air.owed == 0).all()


@given(seeds)
def test_all_bits_of_all_uploads_are_sent_and_no_more(seed: int) -> None:
    _, plan = random_uploads(np.random.default_rng(seed))
    lasts = plan.piece_end_s - plan.piece_start_s
    sent = np.zeros_like(plan.size_bits)
    np.add.at(sent, plan.piece, lasts * plan.rate_bps[plan.piece])
    there = np.isfinite(plan.ready_s)
    assert (np.isfinite(plan.finish_s) == there).all()
    assert sent == pytest.approx(np.where(there, plan.size_bits, 0.0))
    assert (plan.piece_start_s >= plan.ready_s[plan.piece]).all()
    for upload in np.flatnonzero(there):
        last = plan.piece_end_s[plan.piece == upload].max()
        assert last == plan.finish_s[upload]


@given(seeds)
def test_channels_and_radios_are_never_shared_and_never_idle_in_vain(seed: int) -> None:
    air, plan = random_uploads(np.random.default_rng(seed))
    for t in moments(plan):
        on = plan.piece[(plan.piece_start_s < t) & (t < plan.piece_end_s)]
        radios = set(plan.worker[on].tolist())
        assert len(on) == len(radios) <= air.channels
        waits = (plan.ready_s < t) & (t < plan.finish_s)
        able = set(plan.worker[waits].tolist())
        assert len(on) == min(air.channels, len(able))


@given(seeds)
def test_what_comes_later_changes_nothing_before(seed: int) -> None:
    # So a cycle may plan its first stage, look, and plan again with the second.
    rng = np.random.default_rng(seed)
    air, plan = random_uploads(rng)
    t = rng.uniform(0, 2)
    known = plan.ready_s <= t
    early = air.schedule(
        plan.ready_s[known],
        plan.size_bits[known],
        plan.rate_bps[known],
        plan.worker[known],
    )
    through = early.finish_s <= t
    assert (through == (plan.finish_s[known] <= t)).all()
    assert (early.finish_s[through] == plan.finish_s[known][through]).all()


@given(seeds)
def test_over_one_channel_each_slot_is_the_knapsacks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(2, 6)), 0.5
    air = Uploads(workers=n, channels=1, slot_s=T)
    air.owed = 3 * rng.random(n)
    size, rate = rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n)
    plan = air.schedule(0.0, size, rate)
    left, slot = size.copy(), 0
    while (left > 1e-9).any():
        weight = rate * (left + air.owed * size) * (left > 1e-9)
        left -= rate * knapsack(weight, np.minimum(T, left / rate), T)
        slot += 1
        assert size - plan.sent_bits(slot * T) == pytest.approx(left, abs=1e-9)


def test_one_channel_by_hand() -> None:
    # Rates 1, 2, 1 and sizes 2: the second weighs most and is through at 1, then come
    # the first and the third. With slots of 1 s these two take turns: at 2 the first
    # has 1 bit left and the third 2, at 3 both have 1.
    rates = [1.0, 2.0, 1.0]
    ready = [0.0, 0.0, 0.5]
    whole = Uploads(workers=3, channels=1).schedule(ready, 2.0, rates)
    assert whole.finish_s.tolist() == [3.0, 1.0, 5.0]
    turns = Uploads(workers=3, channels=1, slot_s=1.0).schedule(ready, 2.0, rates)
    assert turns.piece.tolist() == [1, 0, 2, 0, 2]
    assert turns.finish_s.tolist() == [4.0, 1.0, 5.0]


def test_what_is_owed_goes_before_a_faster_link() -> None:
    air = Uploads(workers=2, channels=1)
    assert air.schedule(0.0, 1.0, [1.0, 2.0]).finish_s.tolist() == [1.5, 0.5]
    air.owed[0] = 1.5  # 1·(1 + 1.5) > 2·1
    assert air.schedule(0.0, 1.0, [1.0, 2.0]).finish_s.tolist() == [1.0, 1.5]


@pytest.mark.parametrize("slots", range(1, 40))
def test_an_upload_that_ends_with_a_slot_is_not_left_a_rounding_error(
    slots: int,
) -> None:
    # The first weighs 0.3·(0.98 + bits left), with 0.03 left when its last slot begins;
    # the second weighs 0.3. What rounding leaves of the first would lose to it.
    size, rate = slots * 0.03, 0.3
    air = Uploads(workers=2, channels=1, slot_s=0.1)
    air.owed[0] = 0.98 / size
    plan = air.schedule(0.0, [size, 30.0], [rate, 0.01])
    assert plan.piece.tolist() == [0, 1]
    assert plan.finish_s == pytest.approx([slots * 0.1, slots * 0.1 + 3000])


def delivered(settle: bool) -> list[float]:
    """Share of 1,000 cycles, ended by the second gradient, that each of four is in."""
    air, got = Uploads(workers=4, channels=1), np.zeros(4)
    for _ in range(1000):
        plan = air.schedule(0.0, 1.0, [8.0, 4.0, 2.0, 1.0])
        end_s = float(np.sort(plan.finish_s)[1])
        got += plan.finish_s <= end_s
        if settle:
            air.settle(plan, end_s)
    return [float(share) for share in got / 1000]


def test_who_is_owed_comes_and_nobody_starves() -> None:
    assert delivered(settle=False) == [1.0, 1.0, 0.0, 0.0]
    assert min(delivered(settle=True)) > 0.1


@pytest.mark.slow
@given(seeds)
def test_what_is_owed_stays_below_its_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, lam = rng.uniform(0.1, 5), rng.uniform(0.1, 5)
    air = Uploads(workers=4, channels=1, utility_weight=V, fairness=lam)
    for _ in range(60):
        plan = air.schedule(rng.random(4), 1.0, rng.uniform(0.1, 5, 4))
        air.settle(plan, until_s=rng.random())
        assert (air.owed <= V * lam / log(2) + 1).all()


def test_the_dead_are_owed_nothing_and_the_cut_off_what_is_missing() -> None:
    # At 2 s: all of the first, half of the second; the third is dead, the last is not
    # ready yet.
    air = Uploads(workers=4, channels=2)
    plan = air.schedule([0.0, 1.0, inf, 2.5], 2.0, 1.0)
    assert plan.finish_s.tolist() == [2.0, 3.0, inf, 4.5]
    assert plan.sent_bits(2.0).tolist() == [2.0, 1.0, 0.0, 0.0]
    air.settle(plan, until_s=2.0)
    assert air.owed.tolist() == [0.0, 0.5, 0.0, 0.0]


def test_a_worker_with_two_uploads_sends_one_after_the_other() -> None:
    air = Uploads(workers=2, channels=4)
    plan = air.schedule([0.0, 0.5, 0.0], 1.0, 1.0, worker=[0, 0, 1])
    assert plan.finish_s.tolist() == [1.0, 2.0, 1.0]


def test_nobody_ready_is_an_empty_schedule() -> None:
    plan = Uploads(workers=2, channels=1).schedule(inf, 1.0, 1.0)
    assert plan.piece.size == 0
    assert plan.sent_bits().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (([0.0, nan], 1.0, 1.0), r"ready_s\[1\] is nan: give numbers of at least 0"),
        ((0.0, 0.0, 1.0), r"size_bits is 0: give finite numbers above 0"),
        ((0.0, 1.0, [1.0, inf]), r"rate_bps\[1\] is inf"),
        ((0.0, [1.0], 1.0), r"size_bits has shape \(1,\): give one number or \(2,\)"),
        ((0.0, 1.0, 1.0, [0, 2]), r"worker\[1\] is 2: give whole numbers from 0 to 1"),
    ],
)
def test_uploads_that_are_none_are_named(given_: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Uploads(workers=2, channels=1).schedule(*given_)
    with pytest.raises(ConfigError, match="channels is 0: give a number above 0"):
        Uploads(workers=2, channels=0)
