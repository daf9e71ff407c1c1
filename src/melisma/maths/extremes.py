"""The largest of several random numbers."""

import numpy as np

from melisma.maths.arrays import Floats


def mean_max(values: Floats, probability: Floats) -> float:
    """E[maxⱼ Xⱼ] of independent Xⱼ that take ``values[j]`` with ``probability[j]``.

    P(max ≤ x) is the product of P(Xⱼ ≤ x), and jumps at the values alone; no scenario
    is enumerated. 0 of no variables.

    >>> mean_max(np.array([[0.0, 1.0]] * 2), np.array([[0.5, 0.5]] * 2))
    0.75
    """
    if not len(values):
        return 0.0
    x = np.unique(values)
    below = (values[..., None] <= x) * probability[..., None]
    at_most = below.sum(axis=1).prod(axis=0)
    return float(x @ np.diff(at_most, prepend=0.0))
