"""Schemes from outside this package: their answers are checked where they come in."""

from collections.abc import Callable
from functools import wraps

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Ints
from melisma.system.problem import STEPS_LIMIT, Allocation, Problem

Scheme = Callable[[Problem], Allocation]


def checked(name: str, function: Scheme) -> Scheme:
    """The same scheme; raises ConfigError for an answer that cannot be carried out.

    An answer may leave learners and samples out, and may miss the deadline.
    """

    @wraps(function)
    def scheme(problem: Problem) -> Allocation:
        answer = function(problem)
        try:
            return _allocation(problem, answer)
        except ConfigError as error:
            raise ConfigError(f"scheme {name!r} {error}") from error

    return scheme


def _allocation(problem: Problem, answer: object) -> Allocation:
    if not isinstance(answer, Allocation):
        kind = type(answer).__name__
        raise ConfigError(f"returned {kind}: return Allocation(samples=…, steps=…)")
    d = _whole("samples", answer.samples, problem.learners)
    tau = _whole("steps", answer.steps, problem.learners)
    low, high, D = problem.low, problem.high, problem.samples
    for k in np.flatnonzero(((d > 0) & (d < low)) | (d > high))[:1]:
        raise ConfigError(
            f"gives learner {k} {d[k]} samples: give none, or {low[k]} to {high[k]}"
        )
    for k in np.flatnonzero((d == 0) & (tau > 0))[:1]:
        raise ConfigError(f"gives learner {k} {tau[k]} steps over no samples: give 0")
    if not 0 < d.sum() <= D:
        raise ConfigError(
            f"hands out {d.sum()} of {D} samples: hand out 1 to {D}, or raise "
            "InfeasibleError"
        )
    return Allocation(samples=d, steps=tau)


def _whole(name: str, values: object, learners: int) -> Ints:
    """One whole number for each learner."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"returned {name} that are no numbers: {error}") from error
    if array.shape != (learners,):
        raise ConfigError(
            f"returned {name} of shape {array.shape} for {learners} learners: give one "
            "number for each"
        )
    is_count = (array >= 0) & (array <= STEPS_LIMIT) & (array == np.floor(array))
    for k in np.flatnonzero(~is_count)[:1]:
        raise ConfigError(
            f"gives learner {k} {array[k]:g} {name}: give whole numbers, 0 or more"
        )
    return array.astype(np.int64)
