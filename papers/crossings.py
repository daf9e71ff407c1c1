"""When a curve reaches a target, between two of its points."""

import math

import numpy as np
from numpy.typing import ArrayLike


def crossing(
    x: ArrayLike, y: ArrayLike, target: float, never: float = math.inf
) -> float:
    """Return where ``y`` first reaches the target; ``never`` if it does not.

    Linear between points, so that a hair's breadth at one of them moves it by a hair's
    breadth. A curve that begins at the target or above has it at its first point.

    >>> crossing([1.0, 3.0, 4.0], [0.4, 0.6, 0.5], 0.5)
    2.0
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    reached = y >= target
    if not reached.any():
        return never
    k = int(reached.argmax())
    if k == 0:
        return float(x[0])
    share = (target - y[k - 1]) / (y[k] - y[k - 1])
    return float(x[k - 1] + share * (x[k] - x[k - 1]))
