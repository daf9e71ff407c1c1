"""The global update cycle, for whatever fleet.

allocate → order → learners download, train, halt, upload
  → aggregate, weighted by samples really trained → evaluate → record
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from melisma.errors import ConfigError, TrainingError
from melisma.learning import splits
from melisma.learning.aggregation import WeightedMean
from melisma.learning.data import Dataset
from melisma.learning.evaluation import evaluate
from melisma.learning.parameters import Model, Parameters, parameters_of, put
from melisma.maths.arrays import Floats, Ints
from melisma.runtime import records
from melisma.runtime.chance import Stream
from melisma.runtime.fleet import Fleet, Lost, Order, Report, Updates
from melisma.schemes import DECENTRALISED, find
from melisma.system.metrics import (
    cycle_s,
    max_staleness,
    mean_staleness,
    truancy,
    utilisation,
)
from melisma.system.problem import Allocation, Problem, learner_s

Sink = Callable[[records.Record], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What is to be trained, and how it is shared out."""

    name: str
    model: Model
    data: Dataset
    scheme: str  #: a name in SCHEMES
    cycles: int
    deadline_s: float  #: of each cycle
    seed: int
    samples: int | None = None  #: D, to train on in a cycle; None: all there are
    shard: int = 1  #: samples that are allocated and travel together
    steps: int = 5  #: passes, where the scheme does not choose them (DAB)
    least: int = 1  #: shards of a learner at least
    most: int | None = None  #: shards of a learner at most
    own_rows: Sequence[Ints] | None = None  #: federated: the rows each learner has

    def __post_init__(self) -> None:
        for name in ("cycles", "shard", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give at least 1")
        if not self.shard <= self.cycle_samples <= self.rows:
            raise ConfigError(
                f"{self.cycle_samples} samples a cycle: there are {self.rows} of "
                f"{self.data.name} to train on, in shards of {self.shard}"
            )

    @property
    def rows(self) -> int:
        """Samples there are: all of the training set, or what the learners have."""
        if self.own_rows is None:
            return len(self.data.train_y)
        return sum(len(rows) for rows in self.own_rows)

    @property
    def cycle_samples(self) -> int:
        """D, samples to train on in a cycle."""
        return self.rows if self.samples is None else self.samples

    def most_shards(self, learners: int) -> Ints:
        """Shards that each learner may take at most."""
        have = [len(self.data.train_y)] * learners
        if self.own_rows is not None:
            have = [len(rows) for rows in self.own_rows]
        most = np.array(have) // self.shard
        return most if self.most is None else np.minimum(most, self.most)


async def run(
    task: Task,
    fleet: Fleet,
    sink: Sink,
    *,
    done: int = 0,
    keep: Callable[[int, Parameters], None] = lambda cycle, parameters: None,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    ``done`` cycles are behind it already, in the model as it is. ``keep`` gets each
    cycle's number and parameters once all that happened in it is recorded.
    """
    parameters = parameters_of(task.model)
    for number in range(done + 1, task.cycles + 1):
        await fleet.muster()
        log = _Log(task, fleet, sink, number)
        allocation, predicted_s = await allocate(task, fleet)
        log.allocated(allocation, predicted_s)
        orders = share_out(task, allocation, number)
        mean = WeightedMean()
        async for updates in fleet.carry_out(orders, parameters, task.deadline_s):
            if isinstance(updates, Lost):
                log.lost(updates)
                continue
            refused = mean.add(updates.parameters, [r.samples for r in updates.reports])
            log.arrived(updates, refused)
        log.check_anything_counts()
        parameters = mean.result()
        log.aggregated(allocation)
        put(parameters, task.model)
        log.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        keep(number, parameters)
    return parameters


async def allocate(task: Task, fleet: Fleet) -> tuple[Allocation, Floats | None]:
    """Shards and steps of each learner, and the seconds they should take.

    Under a decentralised scheme the learners bid, and their times stay their own.
    """
    most = task.most_shards(len(fleet.learners))
    if task.scheme in DECENTRALISED:
        bids = await fleet.bids(
            deadline_s=task.deadline_s, steps=task.steps, shard=task.shard
        )
        shards = np.minimum(bids, most)
        return Allocation(samples=shards, steps=(shards > 0) * task.steps), None
    problem = Problem.of(
        (await fleet.law()).per_shard(task.shard),
        samples=task.cycle_samples // task.shard,
        deadline_s=task.deadline_s,
        least=task.least,
        most=most,
    )
    allocation = find(task.scheme)(problem)
    return allocation, learner_s(problem, allocation)


def share_out(task: Task, allocation: Allocation, cycle: int) -> list[Order]:
    """Draw the rows of each learner.

    In parallel mode learners take the next shards of one shuffled round of all of
    them, so that none is sent twice before all were sent once.
    """
    rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
    if task.own_rows is not None:
        drawn = [
            _some(own, int(shards) * task.shard, rng)
            for own, shards in zip(task.own_rows, allocation.samples, strict=True)
        ]
    else:
        pieces = splits.shards(np.arange(len(task.data.train_y)), task.shard)
        turns = rng.permutation(len(pieces))
        ends = allocation.samples.cumsum()
        drawn = [
            pieces[turns[np.arange(end - shards, end) % len(turns)]].ravel()
            for shards, end in zip(allocation.samples, ends, strict=True)
        ]
    return [
        Order(learner=k, rows=rows, steps=int(allocation.steps[k]))
        for k, rows in enumerate(drawn)
    ]


def _some(rows: Ints, number: int, rng: np.random.Generator) -> Ints:
    return rows if number == len(rows) else rng.choice(rows, number, replace=False)


class _Log:
    """Turns what happens in a cycle into records."""

    def __init__(self, task: Task, fleet: Fleet, sink: Sink, cycle: int) -> None:
        self._task, self._fleet, self._sink, self._cycle = task, fleet, sink, cycle
        self._began_s = fleet.now_s()
        self._seconds = np.zeros(len(fleet.learners))
        self._counted: list[int] = []
        self._dropped: Counter[str] = Counter()

    def allocated(self, allocation: Allocation, predicted_s: Floats | None) -> None:
        for k, shards in enumerate(allocation.samples.tolist()):
            self._learner(
                records.Allocated,
                k,
                0.0,
                samples=shards * self._task.shard,
                steps=int(allocation.steps[k]),
                predicted_s=None if predicted_s is None else float(predicted_s[k]),
            )

    def arrived(self, updates: Updates, refused: Sequence[int]) -> None:
        for row, report in enumerate(updates.reports):
            k = report.learner
            self._seconds[k] = report.uploaded_s
            self._learner(records.Downloaded, k, report.downloaded_s)
            self._learner(
                records.Halted if report.halted else records.Trained,
                k,
                report.trained_s,
                samples=report.samples,
                batches=report.batches,
                loss=report.loss,
            )
            self._learner(records.Uploaded, k, report.uploaded_s)
            if reason := _reason_to_drop(report, row in refused):
                self._learner(records.Dropped, k, report.uploaded_s, reason=reason)
                self._dropped[reason] += 1
            else:
                self._counted.append(report.samples)

    def lost(self, lost: Lost) -> None:
        self._seconds[lost.learner] = lost.after_s
        self._learner(records.Dropped, lost.learner, lost.after_s, reason=lost.reason)
        self._dropped[lost.reason] += 1

    def check_anything_counts(self) -> None:
        if not self._counted:
            why = ", ".join(f"{reason} ({n})" for reason, n in self._dropped.items())
            raise TrainingError(
                f"cycle {self._cycle} of {self._task.name!r} ended without one update "
                f"that counts: {why or 'no learner had work'}. Extend the deadline of "
                f"{self._task.deadline_s:.6g} s, or lower the learning rate"
            )

    def aggregated(self, allocation: Allocation) -> None:
        steps = allocation.steps[allocation.samples > 0]
        deadline_s = self._task.deadline_s
        self._cycle_wide(
            records.Aggregated,
            learners=len(self._counted),
            samples=sum(self._counted),
            cycle_s=cycle_s(self._seconds),
            max_staleness=max_staleness(steps),
            mean_staleness=mean_staleness(steps),
            truancy=truancy(self._seconds, deadline_s),
            utilisation=utilisation(self._seconds, deadline_s),
        )

    def evaluated(self, accuracy: float, loss: float) -> None:
        self._cycle_wide(records.Evaluated, accuracy=accuracy, loss=loss)

    def _learner(
        self, event: Callable[..., records.Record], k: int, after_s: float, **facts: Any
    ) -> None:
        self._sink(
            event(
                time_s=self._began_s + after_s,
                task=self._task.name,
                cycle=self._cycle,
                learner=self._fleet.learners[k],
                **facts,
            )
        )

    def _cycle_wide(self, event: Callable[..., records.Record], **facts: Any) -> None:
        self._sink(
            event(
                time_s=self._fleet.now_s(),
                task=self._task.name,
                cycle=self._cycle,
                **facts,
            )
        )


def _reason_to_drop(report: Report, refused: bool) -> str:
    if report.samples == 0:
        return "nothing trained by the deadline"
    return "parameters are not finite" if refused else ""
