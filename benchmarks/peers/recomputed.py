"""Every model of a live run computed again, by other code, from honest answers alone.

Learners hand over what they honestly computed, before any of them lies about it; the
records say whose updates counted, and for how many samples. Of both follows the model
that the cycle's checkpoint has to hold:

    averaging, fog   Σ wₖ·θₖ / Σ wₖ, of three or more none with over half of the weight
    coded            θ − rate · the mean gradient of the cycle's samples

Had any wrong answer a part in the model, it would be another.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from melisma.fleets.messages import Update
from melisma.jobs.building import task_of
from melisma.jobs.schema import Job, tasks_of
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.runs import records
from melisma.runs.checkpoint import Checkpoint
from melisma.runs.records import Record
from melisma.system.streams import Stream

#: Largest difference of two parameters that rounding explains.
ROUNDING = 1e-4


class Recomputed:
    """Computes each cycle's model of a run with one task."""

    def __init__(self, job: Job, folder: Path) -> None:
        (self._job,) = tasks_of(job)
        self._folder = folder / self._job.name if job.tasks else folder
        self._task = task_of(self._job)
        self._model = parameters_of(self._task.model)
        self._updates: dict[tuple[str, int], Parameters] = {}
        self._counted: Counter[str] = Counter()
        self._due: records.Aggregated | None = None
        self.right = 0  #: models
        self.approximate = 0  #: models of gradients that too few workers answered
        self.wrong: list[str] = []

    def computed(self, learner: str, update: Update) -> None:
        """Take in an honest update."""
        own = {name: tensor.clone() for name, tensor in update.parameters.items()}
        self._updates[learner, update.cycle] = own

    def watch(self, record: Record) -> None:
        """Follow the run."""
        if self._due and record.cycle > self._due.cycle:
            self.check()
        match record:
            case records.Trained() | records.Halted():
                self._counted[record.learner] = record.samples
            case records.Dropped():
                self._counted.pop(record.learner, None)
            case records.Aggregated():
                self._due = record

    def check(self) -> None:
        """Hold the last cycle's checkpoint against what it has to be."""
        due, counted = self._due, self._counted
        if due is None:
            return
        self._due, self._counted = None, Counter()
        checkpoint = Checkpoint.read(self._folder)
        if checkpoint is None or checkpoint.cycle != due.cycle:
            self.wrong.append(f"cycle {due.cycle} has no checkpoint")
            return
        before, names = self._model, list(self._model)
        self._model = {name: checkpoint.parameters[name] for name in names}
        if due.error is not None and due.error > ROUNDING:
            self.approximate += 1
            return
        if due.learners != len(counted):
            self.wrong.append(f"cycle {due.cycle}: {due.learners} updates counted")
        expected = self._expected(before, counted, due.cycle)
        away = max(float((self._model[n] - expected[n]).abs().max()) for n in names)
        if away <= ROUNDING:
            self.right += 1
        else:
            self.wrong.append(f"cycle {due.cycle}: parameters are {away:.2g} off")
        self._updates.clear()

    def _expected(
        self, before: Parameters, counted: Counter[str], cycle: int
    ) -> Parameters:
        if not counted:
            return before
        if self._job.scheme == "coded":
            return self._descended(before, cycle)
        weights = dict(counted)
        heaviest = max(weights, key=lambda name: weights[name])
        if len(weights) > 2:
            others = sum(weights.values()) - weights[heaviest]
            weights[heaviest] = min(weights[heaviest], others)
        total = sum(weights.values())
        return {
            name: sum(
                (w / total) * self._updates[learner, cycle][name].double()
                for learner, w in weights.items()
            ).float()  # type: ignore[union-attr]
            for name in before
        }

    def _descended(self, before: Parameters, cycle: int) -> Parameters:
        """Return the model after a step along the gradient of the cycle's samples."""
        task, shard, model = self._task, self._job.shard, self._task.model
        rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
        order = rng.permutation(len(task.data.train) // shard)
        first = order[: task.cycle_samples(None) // shard, None] * shard
        rows = (first + np.arange(shard)).ravel()
        put(before, model)
        model.zero_grad()
        taken = task.data.train[rows]
        loss = cross_entropy(model(taken["x"] / 255), taken["y"].long())
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            return {
                name: p - self._task.training.rate * p.grad
                for name, p in model.named_parameters()
                if p.grad is not None
            }
