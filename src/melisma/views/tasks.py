"""Service figures of several tasks, as in §4.3 of the thesis."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from melisma.jobs.schema import Job
from melisma.learning.settings import Training
from melisma.runs.records import (
    Allocated,
    Evaluated,
    Metric,
    Metrics,
    Record,
    Refused,
    metrics_by_task,
)
from melisma.views import scores
from melisma.views.ledger import LearnerCycle, learner_cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Means over the cycles of all tasks.

    Halted learners count until the deadline, or until they sent after it (overrun).
    """

    time_s: float  #: of a cycle, until its slowest learner is done
    task_satisfaction: float  #: share of cycles in which no learner was halted
    learner_satisfaction: float  #: share of updates that were not halted
    fulfilment: float  #: share of a task's batches that were trained
    drop: float  #: share of all batches that were given out and not trained
    occupancy: float  #: share of a cycle in which a learner of it is busy
    cost: float | None  #: of one cycle of each task together


def service(
    records: Iterable[Record], deadline_s: Mapping[str, float], batch: Mapping[str, int]
) -> Service:
    """Return the figures of all tasks together; ``batch`` is samples in a batch."""
    by_task: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_task[record.task].append(record)
    cycles = [
        _Cycle(rows, deadline_s[task], batch[task])
        for task, theirs in by_task.items()
        for rows in _by_cycle(learner_cycles(theirs)).values()
    ]
    prices = [fmean(costs) for theirs in by_task.values() if (costs := _costs(theirs))]
    updates = sum(cycle.learners for cycle in cycles)
    return Service(
        time_s=fmean(cycle.time_s for cycle in cycles),
        task_satisfaction=fmean(not cycle.halted for cycle in cycles),
        learner_satisfaction=1 - sum(cycle.halted for cycle in cycles) / updates,
        fulfilment=fmean(cycle.done / cycle.due for cycle in cycles),
        drop=1 - sum(cycle.done for cycle in cycles) / sum(c.due for c in cycles),
        occupancy=fmean(cycle.occupancy for cycle in cycles),
        cost=sum(prices) if prices else None,
    )


class _Cycle:
    """One cycle of one task."""

    def __init__(self, rows: list[LearnerCycle], deadline_s: float, batch: int) -> None:
        seconds = [
            max(deadline_s, row.measured_s or 0.0)
            if row.halted or row.measured_s is None
            else row.measured_s
            for row in rows
        ]
        self.time_s, self.learners = max(seconds), len(rows)
        self.halted = sum(row.halted for row in rows)
        self.occupancy = fmean(seconds) / self.time_s
        due = [row.steps * -(-row.samples // batch) for row in rows]
        # A probed learner's first shard ends with a batch of its own.
        done = [min(row.batches or 0, n) for row, n in zip(rows, due, strict=True)]
        self.due, self.done = sum(due), sum(done)


def _by_cycle(rows: Iterable[LearnerCycle]) -> dict[int, list[LearnerCycle]]:
    cycles: dict[int, list[LearnerCycle]] = defaultdict(list)
    for row in rows:
        if row.samples:
            cycles[row.cycle].append(row)
    return cycles


def _costs(records: Iterable[Record]) -> list[float]:
    """Return the cost of each cycle."""
    costs: dict[int, float] = defaultdict(float)
    for record in records:
        if isinstance(record, Allocated) and record.cost is not None:
            costs[record.cycle] += record.cost
    return list(costs.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Results of one task, or of several together."""

    kinds: list[Metric]  #: of several tasks those that all have
    metrics: dict[str, float | None]  #: in the end, by name; the means over tasks
    service: Service


def served(
    jobs: Sequence[Job], records: Sequence[Record]
) -> tuple[dict[str, Served], dict[str, str]]:
    """Return results of tasks with a whole cycle, and reasons of refused ones."""
    refused = {r.task: r.reason for r in records if isinstance(r, Refused)}
    whole = {r.task for r in records if isinstance(r, Evaluated)}
    return {
        job.name: together([job], records) for job in jobs if job.name in whole
    }, refused


def together(jobs: Sequence[Job], records: Sequence[Record]) -> Served:
    """Return the results of tasks taken together; each must have a whole cycle."""
    ends = {r.task: r.metrics for r in records if isinstance(r, Evaluated)}
    names, known = [job.name for job in jobs], metrics_by_task(records)
    kinds = scores.shared(known[name] for name in names)
    return Served(
        kinds=kinds,
        metrics=scores.means(kinds, [ends[name] for name in names]),
        service=service(
            [record for record in records if record.task in names],
            {job.name: float(job.deadline) for job in jobs},
            {job.name: _batch_of(job, records) for job in jobs},
        ),
    )


def _batch_of(job: Job, records: Sequence[Record]) -> int:
    """Return the samples in a batch of a job's task."""
    said = [r.batch for r in records if isinstance(r, Metrics) and r.task == job.name]
    return next(filter(None, said), job.training.batch or Training().batch)


def end_title(metric: Metric) -> str:
    """Return the title of a metric's value after the last cycle."""
    return f"{metric.name} in the end" + (" (%)" if metric.percent else "")


def titles(tasks: Iterable[Served]) -> list[str]:
    """Return the titles of the table of tasks: their metrics, and `COLUMNS`."""
    metrics = scores.distinct(task.kinds for task in tasks)
    return [*map(end_title, metrics), *(column.title for column in COLUMNS)]


def cells(task: Served, tasks: Iterable[Served]) -> list[str]:
    """Return a task's figures as text, in the order of the `titles` of ``tasks``."""
    return [
        scores.cell(metric, task.metrics[metric.name] if metric in task.kinds else None)
        for metric in scores.distinct(other.kinds for other in tasks)
    ] + [column.text(task) for column in COLUMNS]


@dataclass(frozen=True, slots=True)
class Column:
    """One row of the table of tasks: its title and how its figure is read."""

    title: str
    of: Callable[[Served], float]
    digits: int = 1

    def text(self, served: Served) -> str:
        """The figure as it is printed."""
        return f"{self.of(served):,.{self.digits}f}"


#: Behind the metrics.
COLUMNS = (
    Column("cycle (s)", lambda s: s.service.time_s, digits=2),
    Column("cycles in time (%)", lambda s: 100 * s.service.task_satisfaction),
    Column("learners in time (%)", lambda s: 100 * s.service.learner_satisfaction),
    Column("fulfilled (%)", lambda s: 100 * s.service.fulfilment),
    Column("dropped (%)", lambda s: 100 * s.service.drop),
    Column("occupied (%)", lambda s: 100 * s.service.occupancy),
    Column("cost of a cycle", lambda s: s.service.cost or 0.0),
)
