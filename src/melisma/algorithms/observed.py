"""Estimates the states of learners from the records of their cycles.

Each cycle gives two ratios, measured over benchmarked time, of training and of
transfers; a learner's ratios are the same for every task. The latest ratios, and 1 for
the benchmark itself, count as the states of the learner, all equally likely.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import numpy as np

from melisma.algorithms.task import ScheduledTask
from melisma.maths.arrays import Floats
from melisma.runs.records import (
    Allocated,
    Downloaded,
    Halted,
    Record,
    Trained,
    Uploaded,
)
from melisma.system.law import DelayLaw
from melisma.system.states import States

#: Cycles of a learner that count: owners change their habits.
REMEMBERED = 200
#: Least ratio that is believed: nobody is a hundred times faster than its benchmark.
LEAST = 0.01
#: Least time of transfers in a cycle that is believed, in seconds.
LEAST_S = 1e-6


class ObservedStates:
    """States of every learner, from the records of its cycles.

    ``benchmarks`` returns the benchmarked delay laws, one a task, and the names of the
    learners in them.
    """

    def __init__(
        self,
        tasks: Sequence[ScheduledTask],
        benchmarks: Callable[[], tuple[Sequence[DelayLaw], Sequence[str]]],
    ) -> None:
        self._tasks, self._benchmarks = tasks, benchmarks
        self._task = {task.name: i for i, task in enumerate(tasks)}
        self._cycle: dict[str, dict[type, Record]] = defaultdict(dict)
        #: Of each learner: measured over benchmarked time, of training and transfers.
        self._seen: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque([(1.0, 1.0)], maxlen=1 + REMEMBERED)
        )

    def see(self, record: Record) -> None:
        """Add a record; a cycle counts once its update is uploaded."""
        match record:
            case Allocated(learner=name):
                self._cycle[name] = {Allocated: record}
            case (
                Downloaded(learner=name) | Trained(learner=name) | Halted(learner=name)
            ):
                self._cycle[name][type(record)] = record
            case Uploaded(learner=name):
                self._observe(name, record)

    def _observe(self, name: str, uploaded: Uploaded) -> None:
        """Compare a cycle's measured times with the benchmark's for the same work.

        Records are read from a file too: what is not a whole cycle does not count.
        """
        cycle = self._cycle.pop(name, {})
        order, downloaded = cycle.get(Allocated), cycle.get(Downloaded)
        trained = cycle.get(Trained) or cycle.get(Halted)
        laws, names = self._benchmarks()
        if name not in names:
            return  # it left before the run was resumed: no benchmark
        if not isinstance(order, Allocated) or not isinstance(
            trained, Trained | Halted
        ):
            return
        if downloaded is None or order.task not in self._task:
            return
        i = self._task[order.task]
        law, j = laws[i], names.index(name)
        passes = trained.batches * self._tasks[i].training.batch
        compute_s = float(law.step_s[j]) * min(passes, order.samples * order.steps)
        network_s = float(law.fixed_s[j] + law.sample_s[j] * order.samples)
        if compute_s > 0:
            training_s = trained.time_s - downloaded.time_s
            transfer_s = uploaded.time_s - order.time_s - training_s
            network_s = max(network_s, LEAST_S)
            ratios = training_s / compute_s, transfer_s / network_s
            self._seen[name].append((max(LEAST, ratios[0]), max(LEAST, ratios[1])))

    def states(self) -> States:
        """The observed states of all learners, equally likely."""
        laws, names = self._benchmarks()
        width = max(len(self._seen[name]) for name in names)
        slower = np.ones((2, len(names), width))
        gamma = np.zeros((len(names), width))
        for j, name in enumerate(names):
            n = len(self._seen[name])
            slower[:, j, :n] = np.array(self._seen[name]).T
            gamma[j, :n] = 1 / n
        compute, network = slower
        shard_s, fixed_s = [], []
        for task, law in zip(self._tasks, laws, strict=True):
            c = law.per_shard(task.shard)
            step_s = task.steps * c.step_s[:, None] * compute
            shard_s.append(c.sample_s[:, None] * network + step_s)
            fixed_s.append(c.fixed_s[:, None] * network)
        return States(
            probability=gamma, shard_s=np.stack(shard_s), fixed_s=np.stack(fixed_s)
        )

    def expected(self) -> tuple[Floats, Floats]:
        """Mean seconds per shard and fixed seconds, tasks × learners."""
        return self.states().expected()
