"""One number of steps for everyone: the largest that fits, or why none does."""

from collections.abc import Callable
from dataclasses import replace
from math import floor, log10

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Ints
from melisma.maths.search import last_true
from melisma.system.problem import STEPS_LIMIT, Problem

#: To what share of a deadline an earlier one is found.
PRECISE = 2**20
#: Learners that a first guess looks at.
SAMPLED = 4096


def common_steps(
    problem: Problem, least_steps: int, within: Callable[[int], Ints]
) -> int:
    """Most steps that all learners can do alike: Σ h(τ) ≥ D and each h(τ) ≥ least.

    ``within`` is h, perhaps remembered by the caller. Raises InfeasibleError if not
    even ``least_steps`` fit.
    """
    problem.check_room()
    low, D = problem.low, problem.samples

    def covers(tau: int) -> bool:
        h = within(tau)
        return bool(h.sum() >= D and (h >= low).all())

    most = problem.steps_at_most
    tau = last_true(covers, least_steps, most, guess=_guess(problem))
    if tau < least_steps:
        raise _too_little_time(problem, least_steps)
    return tau


def soonest(problem: Problem, steps: int) -> Ints:
    """h(τ) by the earliest deadline by which all samples fit with τ steps of everyone.

    Within 1/PRECISE of the deadline. So where nobody may do more steps, nobody waits
    for others longer than it has to. They must fit by the deadline.
    """
    D, T, low = problem.samples, problem.deadline_s, problem.low

    def within(parts: int) -> Ints:
        deadline_s = T * (PRECISE - parts) / PRECISE
        return replace(problem, deadline_s=deadline_s).samples_within(steps)

    def covers(parts: int) -> bool:
        h = within(parts)
        return bool(h.sum() >= D and (h >= low).all())

    return within(last_true(covers, 1, PRECISE - 1, guess=PRECISE // 2))


def _guess(problem: Problem) -> int:
    """Steps near the answer, which only the speed of the search depends on.

    Newton's method on 1/Σd = 1/D with dₖ = (T − C⁰ₖ)/(C¹ₖ + τC²ₖ) within its bounds:
    of like learners 1/Σd is linear in τ, so that few rounds do.
    """
    K, D = problem.learners, problem.samples
    sample = slice(None, None, 1 + K // SAMPLED)
    c2, c1 = problem.step_s[sample], problem.sample_s[sample]
    room_s = problem.deadline_s - problem.fixed_s[sample]
    low, high = problem.low[sample], problem.high[sample]
    total = D * c2.size / K
    tau = float((room_s * (K / D) - c1).sum() / c2.sum())
    for _ in range(2):
        tau = min(max(tau, 1.0), float(STEPS_LIMIT))
        d = np.minimum(np.maximum(room_s / (c1 + tau * c2), low), high)
        served = float(d.sum())
        tau += served * (served / total - 1.0) / float((d * d * c2 / room_s).sum())
    return int(min(tau, float(STEPS_LIMIT)))


def _too_little_time(problem: Problem, steps: int) -> InfeasibleError:
    """Say what does not fit, and a deadline that would do."""
    T, D, low = problem.deadline_s, problem.samples, problem.low
    seconds, fitting = problem.seconds(low, steps), problem.samples_within(steps).sum()
    k = int(np.argmax(seconds))
    what = f"{steps} step" + "s" * (steps != 1)
    if seconds[k] > T:
        reason = (
            f"learner {k} needs {seconds[k]:.6g} s for {what} over its least of "
            f"{low[k]}, past the deadline of {T:.6g} s: leave it out, lower 'least'"
        )
    else:
        reason = (
            f"{D} samples do not fit in {T:.6g} s, even for {what} of each learner: "
            f"{fitting} do; use fewer samples, more learners"
        )
    return InfeasibleError(f"{reason} or a deadline of {_enough_s(problem, steps):g} s")


def _enough_s(problem: Problem, steps: int) -> float:
    """A deadline, to three digits or more, by which everyone can do ``steps``."""
    T = problem.deadline_s
    unit = 10.0 ** (floor(log10(T)) - 2)

    def deadline_s(n: int) -> float:
        return float(f"{n * unit:.6g}")

    def falls_short(n: int) -> bool:
        h = replace(problem, deadline_s=deadline_s(n)).samples_within(steps)
        return bool(h.sum() < problem.samples or (h < problem.low).any())

    n = floor(T / unit)
    return deadline_s(1 + last_true(falls_short, n, 10**9 * n, guess=n))
