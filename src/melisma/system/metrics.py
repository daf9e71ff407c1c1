"""Metrics of an allocation, and of the cycle that it led to."""

import numpy as np

from melisma.maths.arrays import Floats, Ints


def max_staleness(steps: Ints) -> int:
    """Largest difference of steps between two learners.

    >>> max_staleness(np.array([3, 5, 4]))
    2
    """
    return int(np.ptp(steps)) if steps.size else 0


def mean_staleness(steps: Ints) -> float:
    """Mean difference of steps over the K(K−1)/2 pairs of learners.

    >>> mean_staleness(np.array([3, 5, 4]))  # (2 + 1 + 1) / 3
    1.3333333333333333
    """
    K = steps.size
    if K < 2:
        return 0.0
    # In ascending order the i-th of K values is added i times and taken K−1−i times.
    ranks = 2 * np.arange(K) - (K - 1)
    return float(ranks @ np.sort(steps)) / (K * (K - 1) / 2)


def cycle_s(seconds: Floats) -> float:
    """Seconds until the last learner is back."""
    return float(seconds.max(initial=0.0))


def truancy(seconds: Floats, deadline_s: float) -> float:
    """How far past the deadline the cycle ends, as a share of the deadline.

    >>> truancy(np.array([9.0, 15.0]), deadline_s=10.0)
    0.5
    """
    return max(cycle_s(seconds) / deadline_s - 1.0, 0.0)


def utilisation(seconds: Floats, deadline_s: float) -> float:
    """Share of the time up to the deadline in which the learners are busy.

    >>> utilisation(np.array([5.0, 12.0]), deadline_s=10.0)
    0.75
    """
    return float(np.minimum(seconds, deadline_s).mean() / deadline_s)
