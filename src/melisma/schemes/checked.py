"""Schemes from outside this package: their answers are checked where they come in."""

from collections.abc import Callable
from functools import wraps

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Ints, counts
from melisma.registry import own_code
from melisma.system.problem import STEPS_LIMIT, Allocation, Problem

Scheme = Callable[[Problem], Allocation]


def checked(name: str, function: Scheme) -> Scheme:
    """The same scheme; raises ConfigError for an answer that cannot be carried out.

    An answer may leave learners and samples out, and may miss the deadline. Steps
    beyond ``steps_at_most`` are cut to it.
    """

    @wraps(function)
    def scheme(problem: Problem) -> Allocation:
        with own_code("scheme", name):
            answer = function(problem)
        try:
            return _allocation(problem, answer)
        except ConfigError as error:
            raise ConfigError(f"scheme {name!r}: {error}") from error

    return scheme


def _allocation(problem: Problem, answer: object) -> Allocation:
    if not isinstance(answer, Allocation):
        kind = type(answer).__name__
        raise ConfigError(f"{kind} returned: return Allocation(samples=…, steps=…)")
    shape = (problem.learners,)
    d = counts("samples", answer.samples, shape=shape, each="learner")
    tau = counts("steps", answer.steps, shape=shape, most=STEPS_LIMIT, each="learner")
    low, high, D = problem.low, problem.high, problem.samples
    for k in np.flatnonzero(((d > 0) & (d < low)) | (d > high))[:1]:
        raise ConfigError(
            f"learner {k} is given {d[k]} samples: give none, or {low[k]} to {high[k]}"
        )
    if not 0 < d.sum() <= D:
        raise ConfigError(
            f"{d.sum()} of {D} samples are handed out: hand out 1 to {D}, or raise "
            "InfeasibleError"
        )
    return Allocation(
        samples=d,
        steps=np.where(d > 0, np.minimum(tau, problem.steps_at_most), 0),
        options=_options(problem, answer),
    )


def _options(problem: Problem, answer: Allocation) -> Ints | None:
    """Return the options taken, which are of the problem's menu; or ConfigError."""
    if answer.options is None:
        return None
    menu, K = problem.menu, problem.learners
    last = menu.options - 1 if menu else 0
    m = counts("options", answer.options, shape=(K,), most=last, each="learner")
    may = menu.may[np.arange(K), m] if menu else m == 0
    for k in np.flatnonzero(~may)[:1]:
        raise ConfigError(f"learner {k} may not take option {m[k]}: give another")
    return m
