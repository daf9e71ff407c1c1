"""Means and their confidence intervals."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from melisma.maths.arrays import Floats


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Mean over the first axis and half the width of its confidence interval.

    Student's t; the half-width is NaN where there is only one value.

    >>> mean, half = mean_interval([1.0, 2.0, 3.0])
    >>> float(mean), round(float(half), 3)  # 4.303 · 1 / √3
    (2.0, 2.484)
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    mean = x.mean(axis=0)
    if n == 1:
        return mean, np.full_like(mean, np.nan)
    spread = x.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, np.asarray(t.ppf((1 + level) / 2, n - 1) * spread)
