import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from melisma.errors import ConfigError
from melisma.learning.lengths import Sizes, cut, lengths_of, log_gamma
from melisma.maths.arrays import Floats


def drawn(sizes: Sizes, n: int, alpha: float = 1.0) -> Floats:
    lengths = lengths_of(sizes, alpha)
    assert lengths is not None
    return lengths(n, np.random.default_rng(0))


def test_normal_lengths_are_those_of_fedcompass() -> None:
    lengths = np.exp(drawn(Sizes.NORMAL, 40_000))
    assert lengths.mean() == pytest.approx(10, rel=0.01)
    assert lengths.std() == pytest.approx(3, rel=0.02)


def test_power_lengths_are_those_of_fedprox() -> None:
    logs = drawn(Sizes.POWER, 40_000)
    assert logs.mean() == pytest.approx(0, abs=0.03)
    assert logs.std() == pytest.approx(2, rel=0.02)


def test_dirichlet_lengths_have_the_shares_of_a_dirichlet() -> None:
    # Var of one share of Dir(α) over K: (K−1) / (K²·(Kα + 1)).
    lengths = np.exp(drawn(Sizes.DIRICHLET, 10_000, alpha=0.5))
    shares = lengths / lengths.sum()
    assert shares.var() == pytest.approx(9_999 / (1e8 * 5_001), rel=0.1)


@pytest.mark.parametrize("sizes", [Sizes.ANY, Sizes.EQUAL])
def test_other_sizes_draw_no_lengths(sizes: Sizes) -> None:
    assert lengths_of(sizes) is None


@pytest.mark.parametrize("alpha", [1e-100, 1e-3, 0.5, 7.0, 1e6])
def test_logarithms_of_gamma_draws_have_their_mean(alpha: float) -> None:
    # E log Γ(α) = ψ(α), and its spread is about 1/α for small α.
    logs = log_gamma(np.full(40_000, alpha), np.random.default_rng(1))
    error = 5 * logs.std() / 200
    assert logs.mean() == pytest.approx(digamma(alpha), abs=error)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), st.integers(0, 100_000))
def test_parts_are_their_shares_to_a_row(logs: list[float], total: int) -> None:
    parts = cut(np.array(logs), np.array(total))
    shares = np.exp(np.array(logs) - max(logs))
    assert parts.sum() == total
    assert np.abs(parts - total * shares / shares.sum()).max() <= 1 + 1e-6
    assert parts.min() >= 0


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e101])
def test_a_parameter_that_no_dirichlet_has_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match=r"sizes_alpha is .*: give a number from"):
        lengths_of(Sizes.DIRICHLET, alpha)
