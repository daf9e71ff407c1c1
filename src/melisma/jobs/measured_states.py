"""States of real learners, as each of them benchmarked itself in every one."""

from collections.abc import Callable, Sequence

import numpy as np

from melisma.algorithms.multitask import seconds_of
from melisma.algorithms.task import ScheduledTask
from melisma.errors import ConfigError
from melisma.fleets.messages import Speeds, StateSpeeds
from melisma.fleets.roster import Roster
from melisma.maths.arrays import Floats
from melisma.system.law import DelayLaw
from melisma.system.states import States, owner_state


class MeasuredStates:
    """The states of a roster's learners; one without states has its benchmark alone."""

    def __init__(self, roster: Roster, tasks: Sequence[ScheduledTask]) -> None:
        self._roster, self._tasks = roster, tasks

    def __call__(self) -> States:
        """Return the states of all learners so far."""
        names = self._roster.known
        laws, gamma = [], np.zeros((0, 0))
        for task in self._tasks:
            rows = [_states(own) for own in self._roster.speeds(task.name, names)]
            gamma = _table(rows, "probability", fill=lambda row: 0.0)
            law = DelayLaw(
                step_s=_table(rows, "step_s"),
                sample_s=_table(rows, "sample_s"),
                fixed_s=_table(rows, "fixed_s"),
            )
            laws.append(law.slowed(overhead_s=self._roster.overhead_s))
        return States.of(
            laws,
            gamma,
            shard=[task.shard for task in self._tasks],
            steps=[task.steps for task in self._tasks],
        )

    def foreseen(self, next_cycles: Sequence[int]) -> tuple[Floats, Floats]:
        """Return B and A, tasks × learners, in the states of each task's next cycle.

        ConfigError unless the states of all learners are drawn by a known seed.
        """
        names, rows = self._roster.known, []
        for task, cycle in zip(self._tasks, next_cycles, strict=True):
            laws = [
                _states(own)[_next_state(own, name, cycle)]
                for own, name in zip(
                    self._roster.speeds(task.name, names), names, strict=True
                )
            ]
            law = DelayLaw(
                step_s=np.array([law.step_s for law in laws]),
                sample_s=np.array([law.sample_s for law in laws]),
                fixed_s=np.array([law.fixed_s for law in laws]),
            )
            law = law.slowed(overhead_s=self._roster.overhead_s)
            rows.append(seconds_of(law, task))
        return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


def _next_state(speeds: Speeds, name: str, cycle: int) -> int:
    if not speeds.states:
        return 0
    if speeds.owner is None:
        raise ConfigError(
            f"'mmtt-ideal' needs the next states of {name}, which nobody knows: use "
            "`melisma run` or `melisma testbed`, or 'med-probe'"
        )
    gamma = [state.probability for state in speeds.states]
    return owner_state(gamma, speeds.owner, name, cycle)


def _states(speeds: Speeds) -> list[StateSpeeds]:
    return speeds.states or [
        StateSpeeds(
            probability=1.0,
            step_s=speeds.step_s,
            sample_s=speeds.sample_s,
            fixed_s=speeds.fixed_s,
        )
    ]


def _table(
    rows: Sequence[Sequence[StateSpeeds]],
    name: str,
    fill: Callable[[list[float]], float] = lambda row: row[-1],
) -> Floats:
    """Learners × states; who has fewer repeats its last one, with γ = 0."""
    width = max(map(len, rows))
    table = []
    for states in rows:
        row = [getattr(state, name) for state in states]
        table.append(row + [fill(row)] * (width - len(row)))
    return np.array(table, dtype=np.float64)
