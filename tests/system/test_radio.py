from dataclasses import replace

import numpy as np
import pytest

from melisma.maths.arrays import Floats, Ints
from melisma.system.cell import CSA_WORKLOAD, Channel, clocks
from melisma.system.law import DelayLaw
from melisma.system.radio import Beyond, Fading, RadioCell, Surroundings


def cell_of(
    learners: int,
    around: Surroundings,
    distance_m: Floats | None = None,
    *,
    seed: int = 0,
    channel: Channel | None = None,
) -> RadioCell:
    return RadioCell(
        channel or Channel(),
        around,
        workload=CSA_WORKLOAD,
        clock_hz=clocks(learners),
        distance_m=distance_m,
        seed=seed,
    )


def everybody(learners: int) -> Ints:
    return np.arange(learners)


def test_a_cell_without_change_is_the_papers() -> None:
    distance_m = np.linspace(0.5, 50.0, 20)
    cell = cell_of(20, Surroundings(total_hz=100e6), distance_m)
    law, paper = (
        cell.law(7, 99.0, everybody(20)),
        DelayLaw.from_channel(
            CSA_WORKLOAD,
            clock_hz=clocks(20),
            rate_bps=Channel().rate_bps(distance_m),
        ),
    )
    assert (law.step_s == paper.step_s).all()
    assert (law.sample_s == paper.sample_s).all()
    assert (law.fixed_s == paper.fixed_s).all()
    assert cell.on_air(7, everybody(20)).all()


def test_rayleigh_fading_is_exponential_with_mean_one() -> None:
    cell = cell_of(50_000, Surroundings(fading=Fading.RAYLEIGH))
    gain = cell.fading(1)
    assert gain.mean() == pytest.approx(1.0, abs=0.02)
    assert gain.var() == pytest.approx(1.0, abs=0.05)
    # A fade of 20 dB: 1 − exp(−0.01).
    assert (gain < 0.01).mean() == pytest.approx(0.00995, abs=0.002)


def test_lognormal_fading_is_normal_in_decibels() -> None:
    around = Surroundings(fading=Fading.LOGNORMAL, spread_db=6.0)
    decibels = 10.0 * np.log10(cell_of(50_000, around).fading(1))
    assert decibels.mean() == pytest.approx(0.0, abs=0.1)
    assert decibels.std() == pytest.approx(6.0, abs=0.1)
    assert (np.abs(decibels) < 6.0).mean() == pytest.approx(0.683, abs=0.01)


@pytest.mark.parametrize("fading", [Fading.RAYLEIGH, Fading.LOGNORMAL])
def test_fading_is_new_in_each_cycle_and_for_each_learner(fading: Fading) -> None:
    cell = cell_of(4000, Surroundings(fading=fading))
    first, second = np.log(cell.fading(1)), np.log(cell.fading(2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06
    assert len(np.unique(first)) == 4000


def test_the_channel_of_a_cycle_does_not_depend_on_the_cycles_before() -> None:
    around = Surroundings(fading=Fading.RAYLEIGH, speed_mps=1.5, pause_s=2.0)
    through, resumed = cell_of(9, around), cell_of(9, around)
    for cycle in range(1, 40):
        rate = through.rate_bps(cycle, 15.0 * cycle, everybody(9))
    assert rate == pytest.approx(resumed.rate_bps(39, 15.0 * 39, everybody(9)))
    other = cell_of(9, around, seed=1).rate_bps(39, 15.0 * 39, everybody(9))
    assert not np.isclose(rate, other).any()


def test_learners_are_placed_within_the_radius_and_walk_there() -> None:
    cell = cell_of(500, Surroundings(radius_m=30.0, speed_mps=1.0))
    start = cell.distance_m(0.0)
    assert 1.0 <= start.min() < 5.0 < 25.0 < start.max() <= 30.0
    later = cell.distance_m(20.0)
    assert later.max() <= 30.0
    assert 0.0 < np.abs(later - start).max() <= 20.0 + 1e-9


def test_given_distances_are_where_walkers_begin() -> None:
    distance_m = np.array([10.0, 20.0, 50.0])
    cell = cell_of(3, Surroundings(speed_mps=1.0), distance_m)
    assert cell.distance_m(0.0) == pytest.approx(distance_m)
    assert (np.abs(cell.distance_m(3.0) - distance_m) > 0.01).any()


@pytest.mark.parametrize(("learners", "cycles"), [(21, 42), (30, 30), (40, 20)])
def test_turns_rotate_so_that_nobody_has_two_more_than_another(
    learners: int, cycles: int
) -> None:
    cell = cell_of(learners, Surroundings(total_hz=100e6, beyond=Beyond.TURNS))
    turns = np.zeros(learners, dtype=int)
    for cycle in range(1, cycles + 1):
        on_air = cell.on_air(cycle, everybody(learners))
        assert on_air.sum() == 20  # 20 · 5 MHz
        turns += on_air
        assert np.ptp(turns) <= 1
    # Whoever has a turn has all of its bandwidth.
    at_50_m = cell_of(learners, Surroundings(total_hz=100e6), np.full(learners, 50.0))
    rate = at_50_m.rate_bps(1, 0.0, everybody(learners))
    assert rate == pytest.approx(float(Channel().rate_bps(50.0)))


def test_shared_bandwidth_has_the_shannon_rate_of_the_smaller_band() -> None:
    around = Surroundings(total_hz=100e6, beyond=Beyond.SHARE)
    cell = cell_of(40, around, np.full(40, 50.0))
    assert cell.on_air(1, everybody(40)).all()
    rate = cell.rate_bps(1, 0.0, everybody(40))
    # 100 MHz / 40 = 2.5 MHz, with the noise of 2.5 MHz: half the noise, so the
    # signal is twice as far above it, and one bit per second and hertz is gained.
    whole = float(Channel().rate_bps(50.0))
    assert rate == pytest.approx(whole / 2 + 2.5e6, rel=1e-9)
    narrow = replace(Channel(), bandwidth_hz=2.5e6).rate_bps(50.0)
    assert rate == pytest.approx(float(narrow))
    # Of ten, each has its own 5 MHz again.
    assert cell.rate_bps(1, 0.0, everybody(10)) == pytest.approx(whole)


def test_a_channel_that_is_gone_still_has_a_law() -> None:
    dead = replace(Channel(), power_w=1e-300)
    law = cell_of(2, Surroundings(), channel=dead).law(1, 0.0, everybody(2))
    assert (law.fixed_s == 2 * CSA_WORKLOAD.model_bits).all()  # at 1 bit/s
