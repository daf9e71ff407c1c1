import pytest

from melisma.maths.channel import path_gain, shannon_bps


def test_attenuation_grows_by_the_slope_each_decade() -> None:
    near, far = path_gain([10.0, 100.0], intercept_db=7.0, slope_db=20.0)
    assert near / far == pytest.approx(100.0)


def test_capacity_is_a_bit_per_hertz_where_signal_equals_noise() -> None:
    # log₂(1 + 1) = 1, with 3·10⁶ times the density as noise.
    assert shannon_bps(3e6, 3e-6, 1.0, 1e-12) == pytest.approx(3e6)
