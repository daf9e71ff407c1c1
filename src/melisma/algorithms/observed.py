"""What is known of learners whose states nobody told: their cycles, and no more.

A cycle shows how much longer training and transfers took than by the benchmark, which
is the same for every task. What was seen last, and the benchmark, count as the states
that a learner can be in, each as likely as the others.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import numpy as np

from melisma.algorithms.task import Task
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

#: Cycles of a learner that are remembered: owners change their ways.
REMEMBERED = 200


class ObservedStates:
    """States of every learner, from the records of its cycles.

    ``benchmarks`` returns the laws by the benchmark, one a task, and the names of the
    learners that they are of.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        batch: Sequence[int],
        benchmarks: Callable[[], tuple[Sequence[DelayLaw], Sequence[str]]],
    ) -> None:
        self._tasks, self._batch, self._benchmarks = tasks, batch, benchmarks
        self._task = {task.name: i for i, task in enumerate(tasks)}
        self._cycle: dict[str, list[Record]] = defaultdict(list)
        #: Of each learner: how much slower training and transfers were.
        self._seen: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque([(1.0, 1.0)], maxlen=1 + REMEMBERED)
        )

    def see(self, record: Record) -> None:
        """Take in what has happened."""
        match record:
            case Allocated(learner=name):
                self._cycle[name] = [record]
            case (
                Downloaded(learner=name) | Trained(learner=name) | Halted(learner=name)
            ):
                self._cycle[name].append(record)
            case Uploaded(learner=name):
                self._observe(name, record)

    def _observe(self, name: str, uploaded: Uploaded) -> None:
        """Compare what a cycle took with what its work takes by the benchmark."""
        order, downloaded, trained = self._cycle.pop(name)
        assert isinstance(order, Allocated)
        assert isinstance(trained, Trained | Halted)
        i = self._task[order.task]
        laws, names = self._benchmarks()
        if name not in names:
            return  # it left before the run was taken up again: no benchmark
        law, j = laws[i], names.index(name)
        passes = trained.batches * self._batch[i]
        compute_s = float(law.step_s[j]) * min(passes, order.samples * order.steps)
        network_s = float(law.fixed_s[j] + law.sample_s[j] * order.samples)
        if compute_s > 0:
            training_s = trained.time_s - downloaded.time_s
            transfer_s = uploaded.time_s - order.time_s - training_s
            self._seen[name].append((training_s / compute_s, transfer_s / network_s))

    def states(self) -> States:
        """The states that learners were seen in, each as likely as the others."""
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
        """Seconds per shard and fixed seconds, tasks × learners, by what was seen."""
        return self.states().expected()
