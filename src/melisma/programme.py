"""From a job of several tasks to a simulated run of all of them."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from melisma.config import Job, dump, tasks_of
from melisma.errors import ConfigError, unknown
from melisma.learning.parameters import save
from melisma.maths.arrays import Floats, Ints
from melisma.runs.tasks import Service, service
from melisma.runtime.association import Association, Terms
from melisma.runtime.chance import Stream
from melisma.runtime.folder import CONFIG, MODEL, RECORDS
from melisma.runtime.learned import Learned
from melisma.runtime.many import Entry, Knowledge, Programme, seconds_of
from melisma.runtime.records import Evaluated, Record, Refused, write
from melisma.schemes.multitask import solve
from melisma.schemes.multitask.rmed import rmed
from melisma.simulation import names_of, prepared, state_law, workload_of
from melisma.system.law import DelayLaw, Mode
from melisma.system.multitask import MultiTaskProblem, Solved
from melisma.system.states import States

#: Schemes for several tasks, and what a cycle's split is made by under each.
SCHEMES = {
    "med": Knowledge.BEFOREHAND,
    "mmtt": Knowledge.BEFOREHAND,
    "mmtt-ideal": Knowledge.TRUTH,
    "med-probe": Knowledge.PROBE,
    "med-learned": Knowledge.LATEST,
    "rmed": Knowledge.BEFOREHAND,
}


@dataclass(frozen=True, slots=True, eq=False)
class ManySimulation:
    """A job of several tasks made ready."""

    jobs: list[Job]  #: each task as a job of its own
    programme: Programme
    learned: Learned  #: from the records, for who asks

    def run(
        self,
        folder: Path | None = None,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> list[Record]:
        """Run all tasks on one virtual clock; return what happened.

        With a ``folder``, each task leaves configuration, records and model in a folder
        of its name there.
        """
        happened: list[Record] = []
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            for job in self.jobs if folder else ():
                assert folder is not None
                (folder / job.name).mkdir()
                (folder / job.name / CONFIG).write_text(dump(job), encoding="utf-8")
                file = (folder / job.name / RECORDS).open("wb")
                files[job.name] = stack.enter_context(file)

            def sink(record: Record) -> None:
                if record.task in files:
                    write(record, files[record.task])
                happened.append(record)
                self.learned.see(record)
                watch(record)

            models = asyncio.run(self.programme.run(sink))
        for name, parameters in models.items():
            if folder and parameters is not None:
                save(parameters, folder / name / MODEL)
        return happened


def build_many(job: Job, threads: int = 1) -> ManySimulation:
    """Load, build and price several tasks; ConfigError or DataError if wrong."""
    if job.scheme not in SCHEMES:
        raise unknown("scheme for several tasks", job.scheme, SCHEMES)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("several tasks need mode 'parallel': their shards are sent")
    jobs = tasks_of(job)
    if len({one.name for one in jobs}) < len(jobs):
        raise ConfigError("two tasks have the same name: give each its own")
    entries = [
        Entry(task=one.task, fleet=one.fleet, arrives_s=float(table.arrives))
        for one, table in zip(
            [prepared(one, threads) for one in jobs], job.task, strict=True
        )
    ]
    laws, gamma = _state_laws(jobs, entries)
    states = States.of(
        laws,
        gamma,
        shard=[entry.task.shard for entry in entries],
        steps=[entry.task.steps for entry in entries],
    )
    benchmarked = states.draw(np.random.default_rng([job.seed, Stream.BENCHMARK]))
    learned = Learned(
        [entry.task for entry in entries],
        [law.at(np.arange(len(gamma)), benchmarked) for law in laws],
        names_of(job),
        [one.training.batch for one in jobs],
    )

    def solved(problem: MultiTaskProblem, tasks: Ints, learners: Ints) -> Solved:
        if job.scheme == "rmed":
            return rmed(problem, states.only(tasks, learners))
        return solve(problem)

    known = _known(job.scheme, entries, states, benchmarked, learned)
    association = Association(_terms(job, entries), known, solved)
    programme = Programme(entries, association, SCHEMES[job.scheme])
    return ManySimulation(jobs, programme, learned)


def _terms(job: Job, entries: Sequence[Entry]) -> Terms:
    tasks = [entry.task for entry in entries]
    return Terms(
        names=[task.name for task in tasks],
        shards=np.array([t.cycle_samples(None) // t.shard for t in tasks]),
        deadline_s=np.array([task.deadline_s for task in tasks]),
        price=np.array([g.price for g in job.learners for _ in range(g.count)]),
        budget=math.inf if job.budget is None else job.budget,
        least=job.least,
    )


def _state_laws(
    jobs: Sequence[Job], entries: Sequence[Entry]
) -> tuple[list[DelayLaw], Floats]:
    """One law a task, learners × states, and the states' γ."""
    priced = [
        state_law(job, workload_of(job, entry.task.model, entry.task.data))
        for job, entry in zip(jobs, entries, strict=True)
    ]
    return [law for law, _ in priced], priced[0][1]


def _known(
    scheme: str,
    entries: Sequence[Entry],
    states: States,
    benchmarked: Ints,
    learned: Learned,
) -> Callable[[], tuple[Floats, Floats]]:
    """What is known of the learners' states: their mean, one of them, or the truth."""
    match scheme:
        case "mmtt-ideal":
            return lambda: _stacked(
                [seconds_of(entry.fleet.true_law(), entry.task) for entry in entries]
            )
        case "mmtt":
            return lambda: states.at(benchmarked)
        case "med-learned":
            return learned.expected
        case _:
            return states.expected


def _stacked(rows: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What became of one task."""

    accuracy: float  #: in the end
    service: Service


def served(
    jobs: Sequence[Job], records: Sequence[Record]
) -> tuple[dict[str, Served], dict[str, str]]:
    """Return what became of the tasks, and why others were refused."""
    refused = {r.task: r.reason for r in records if isinstance(r, Refused)}
    accuracy = {r.task: r.accuracy for r in records if isinstance(r, Evaluated)}
    return {
        job.name: Served(
            accuracy=accuracy[job.name],
            service=service(
                [record for record in records if record.task == job.name],
                {job.name: float(job.deadline)},
                {job.name: job.training.batch},
            ),
        )
        for job in jobs
        if job.name not in refused
    }, refused


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a task, as text."""

    title: str
    text: Callable[[Served], str]


def _percent(title: str, share: Callable[[Served], float]) -> Column:
    return Column(f"{title} (%)", lambda how: f"{100 * share(how):.1f}")


COLUMNS = (
    _percent("accuracy in the end", lambda how: how.accuracy),
    Column("cycle (s)", lambda how: f"{how.service.time_s:.2f}"),
    _percent("cycles in time", lambda how: how.service.task_satisfaction),
    _percent("learners in time", lambda how: how.service.learner_satisfaction),
    _percent("fulfilled", lambda how: how.service.fulfilment),
    _percent("dropped", lambda how: how.service.drop),
    _percent("occupied", lambda how: how.service.occupancy),
    Column("cost of a cycle", lambda how: f"{how.service.cost or 0.0:,.1f}"),
)
