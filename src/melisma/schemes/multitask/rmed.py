"""Risk-aware MED: the expected largest delay, where MED has the largest expected one.

    minimise    Σᵢ E[maxⱼ min(t_ij, Tᵢ)]  +  λ · E[share of the shards not trained]
    subject to  MED's own constraints

t_ij = A_ijk + B_ijk·d_ij is random through the learner's state k. States are
independent, so the expected largest delay is exact, by the product of distributions.
Candidates are MED's assignments with B between its mean and its worst,

    B = (1 − θ)·E[B] + θ·maxₖ B,        θ from 0 (MED) to 1,

the best of them is improved shard by shard between learners of the same task.

Differences from MED (D. Mays's thesis, chapter 4): the objective. It pays where no
probe can tell the states; it drops more than MED if λ is small.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.maths.extremes import mean_max
from melisma.schemes.multitask.exact import exact
from melisma.system.multitask import Assignment, MultiTaskProblem, Solved
from melisma.system.states import States

#: Seconds that a task's cycle may take longer for not losing any of its shards.
PATIENCE_S = 150.0
THETAS = np.linspace(0.0, 1.0, 7)


@dataclass(frozen=True, slots=True, eq=False)
class Risk:
    """What a split of one task is worth."""

    states: States  #: of this task alone
    deadline_s: float
    patience_s: float = PATIENCE_S

    def __call__(self, shards: Ints) -> float:
        """E[max] + λ·E[share not trained], in seconds."""
        members = np.flatnonzero(shards)
        gamma, d = self.states.probability[members], shards[members, None]
        work_s = self.states.shard_s[0, members] * d
        seconds = self.states.fixed_s[0, members] + work_s
        late = np.clip((seconds - self.deadline_s) / work_s, 0.0, 1.0)
        lost = float((gamma * late * d).sum()) / float(shards.sum())
        longest_s = mean_max(np.minimum(seconds, self.deadline_s), gamma)
        return longest_s + self.patience_s * lost


def rmed(
    problem: MultiTaskProblem, states: States, patience_s: float = PATIENCE_S
) -> Solved:
    """Return the best candidate, improved; its bound is MED's.

    ``problem`` has the expected delays of ``states``. Raises InfeasibleError if MED
    does.
    """
    everybody = np.arange(problem.learners)
    risks = [
        Risk(
            states.only(np.array([i]), everybody),
            float(problem.deadline_s[i]),
            patience_s,
        )
        for i in range(problem.tasks)
    ]

    def worth(shards: Ints) -> float:
        return sum(risk(row) for risk, row in zip(risks, shards, strict=True))

    med = exact(problem)
    shards = min(_candidates(problem, states, med), key=worth)
    shards = np.stack(
        [_improved(problem, i, shards, risks[i]) for i in range(problem.tasks)]
    )
    assignment = Assignment(shards)
    return Solved(
        assignment=assignment,
        objective_s=problem.objective_s(assignment),
        bound_s=med.bound_s,
    )


def _candidates(
    problem: MultiTaskProblem, states: States, med: Solved
) -> Iterator[Ints]:
    yield med.assignment.shards
    for theta in THETAS[1:]:
        worse = (1 - theta) * problem.shard_s + theta * states.shard_s.max(axis=-1)
        careful = replace(problem, shard_s=worse, deadline_s=_ample(problem, worse))
        try:
            yield exact(careful).assignment.shards
        except InfeasibleError:
            continue


def _ample(problem: MultiTaskProblem, shard_s: Floats) -> Floats:
    """Deadlines that no split misses: a candidate made for worse times may be late."""
    whole = problem.fixed_s + shard_s * problem.shards[:, None]
    return np.asarray(whole.max(axis=1))


def _improved(problem: MultiTaskProblem, i: int, shards: Ints, risk: Risk) -> Ints:
    """Move single shards between a task's learners for as long as that helps."""
    best: Ints = shards[i].copy()
    spare = problem.budget - float(problem.price @ shards.sum(axis=0))
    value = risk(best)
    members = np.flatnonzero(best)
    while True:
        moves = [
            (risk(moved), dearer, moved)
            for a in members
            for b in members
            if a != b and best[a] > problem.least
            if (dearer := float(problem.price[b] - problem.price[a])) <= spare
            for moved in [_moved(best, int(a), int(b))]
        ]
        least = min(moves, key=lambda move: move[0], default=None)
        if least is None or least[0] >= value:
            return best
        value, dearer, best = least
        spare -= dearer


def _moved(shards: Ints, a: int, b: int) -> Ints:
    moved = shards.copy()
    moved[a] -= 1
    moved[b] += 1
    return moved
