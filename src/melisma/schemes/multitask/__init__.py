"""Several tasks, one set of learners, one budget: who trains what.

Schemes differ in what they know of the learners' states (``system.states``) and pose
the same problem; ``rmed`` has an objective of its own. ``solve`` takes the exact method
for few learners (``exact``) and prices for many (``prices``); ``ilp`` is the same
problem on HiGHS.
"""

from melisma.errors import SolverError
from melisma.schemes.multitask.exact import exact
from melisma.schemes.multitask.ilp import ilp
from melisma.schemes.multitask.prices import prices
from melisma.schemes.multitask.rmed import rmed
from melisma.system.multitask import MultiTaskProblem, Solved

#: Learners up to which all sets of them are looked at.
FEW = 12
#: Levels of all sets, up to which the same: more shards take more time and memory.
LEVELS = 2**26


def solve(problem: MultiTaskProblem) -> Solved:
    """Least Σz, proven for up to ``FEW`` learners, with a bound beyond.

    Raises InfeasibleError where no assignment exists, SolverError where none is found.
    """
    n = problem.learners
    levels = 2**n * n * int(problem.shards.sum()) if n <= FEW else LEVELS + 1
    if levels <= LEVELS:
        return exact(problem)
    try:
        return prices(problem)
    except SolverError:  # tight: branching looks where prices do not lead
        return ilp(problem)


__all__ = [
    "exact",
    "ilp",
    "prices",
    "rmed",
    "solve",
]
