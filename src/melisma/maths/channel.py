"""A radio channel: path loss and the Shannon rate."""

import numpy as np
from numpy.typing import ArrayLike

from melisma.maths.arrays import Floats


def path_gain(distance_m: ArrayLike, intercept_db: float, slope_db: float) -> Floats:
    """Share of the power that arrives: attenuation of a + b·log₁₀(R) dB.

    >>> path_gain([1.0, 10.0], intercept_db=10.0, slope_db=20.0).tolist()
    [0.1, 0.001]
    """
    loss_db = intercept_db + slope_db * np.log10(np.asarray(distance_m, dtype=float))
    return np.asarray(10.0 ** (-loss_db / 10.0))


def shannon_bps(
    bandwidth_hz: float, power_w: float, gain: ArrayLike, noise_w_per_hz: float
) -> Floats:
    """Capacity W·log₂(1 + P·h / (N₀·W)) in bits per second.

    N₀ is a density: the noise in the band is N₀·W.
    """
    snr = power_w * np.asarray(gain, dtype=float) / (noise_w_per_hz * bandwidth_hz)
    return np.asarray(bandwidth_hz * np.log2(1.0 + snr))
