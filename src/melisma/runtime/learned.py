"""What is known of learners whose states nobody told: their cycles, and no more.

A cycle shows how much longer training and transfers took than by the benchmark, which
is the same for every task. The mean of what was seen, the benchmark counted as once,
stands for the mean over the states.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from melisma.maths.arrays import Floats
from melisma.runtime.records import (
    Allocated,
    Downloaded,
    Halted,
    Record,
    Trained,
    Uploaded,
)
from melisma.runtime.task import Task
from melisma.system.law import DelayLaw


class Learned:
    """Slow-downs of every learner, from the records of its cycles.

    ``laws`` are those of the benchmark, one a task.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        laws: Sequence[DelayLaw],
        learners: Sequence[str],
        batch: Sequence[int],
    ) -> None:
        self._tasks, self._laws, self._batch = tasks, laws, batch
        self._task = {task.name: i for i, task in enumerate(tasks)}
        self._learner = {name: j for j, name in enumerate(learners)}
        self._seen = np.ones((2, len(learners)))  # the benchmark: once, as it was
        self._times = np.ones(len(learners))
        self._cycle: dict[str, list[Record]] = defaultdict(list)

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
        i, j = self._task[order.task], self._learner[name]
        law = self._laws[i]
        passes = trained.batches * self._batch[i]
        compute_s = float(law.step_s[j]) * min(passes, order.samples * order.steps)
        network_s = float(law.fixed_s[j] + law.sample_s[j] * order.samples)
        if compute_s > 0:
            training_s = trained.time_s - downloaded.time_s
            transfer_s = uploaded.time_s - order.time_s - training_s
            self._seen[:, j] += training_s / compute_s, transfer_s / network_s
            self._times[j] += 1

    def expected(self) -> tuple[Floats, Floats]:
        """Seconds per shard and fixed seconds, tasks × learners, by what was seen."""
        slower, slower_network = self._seen / self._times
        shard_s, fixed_s = [], []
        for task, law in zip(self._tasks, self._laws, strict=True):
            c = law.per_shard(task.shard)
            shard_s.append(slower_network * c.sample_s + task.steps * slower * c.step_s)
            fixed_s.append(slower_network * c.fixed_s)
        return np.stack(shard_s), np.stack(fixed_s)
