"""Rules of others by which learners' updates are made smaller, as schemes.

A job names one of them: ``scheme = "melisma_papers.peers_schemes:bcrs"``.
"""

import numpy as np

from melisma.system import Allocation, Problem


def bcrs(problem: Problem, steps: int = 1) -> Allocation:
    """Let all updates travel as long as the slowest one's, made as small as can be.

    BCRS (Tang et al., 2024): the slowest learner takes the smallest option, and every
    other the largest that is there no later; all train alike on all that they have.
    Its overlap-weighted mean is left out.
    """
    assert problem.menu is not None  # the league's job has options
    travels_s = problem.menu.law.fixed_s
    smallest_s = travels_s.min(axis=1).max()
    fits = travels_s <= smallest_s
    longest = np.where(fits, travels_s, -np.inf).argmax(axis=1)
    passes = np.full(problem.learners, steps)
    return Allocation(samples=problem.high, steps=passes, options=longest)


def bcrs_twice(problem: Problem) -> Allocation:
    """BCRS with two passes over everybody's data."""
    return bcrs(problem, steps=2)
