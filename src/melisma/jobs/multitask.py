"""From a job of several tasks to a run of all of them, simulated or live."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from melisma.algorithms.association import Association, Solve, Terms
from melisma.algorithms.clock import VirtualTurns
from melisma.algorithms.multitask import Entry, Knowledge, Programme, seconds_of
from melisma.algorithms.observed import Learned
from melisma.algorithms.task import Task
from melisma.errors import ConfigError, unknown
from melisma.jobs.building import names_of, prepared, state_law, workload_of
from melisma.jobs.schema import Job, LearnersTable, dump, tasks_of
from melisma.learning.parameters import save
from melisma.learning.settings import HERE, Hardware
from melisma.maths.arrays import Floats, Ints
from melisma.runs.records import Record, write
from melisma.runs.store import CONFIG, MODEL, RECORDS
from melisma.schemes.multitask import solve
from melisma.schemes.multitask.rmed import rmed
from melisma.system.law import DelayLaw, Mode
from melisma.system.multitask import MultiTaskProblem, Solved
from melisma.system.states import States
from melisma.system.streams import Stream

#: Schemes for several tasks, and what a cycle's split is made by under each.
SCHEMES = {
    "med": Knowledge.BEFOREHAND,
    "mmtt": Knowledge.BEFOREHAND,
    "mmtt-ideal": Knowledge.NOW,
    "med-probe": Knowledge.PROBE,
    "med-learned": Knowledge.LATEST,
    "rmed": Knowledge.BEFOREHAND,
}


@dataclass(frozen=True, slots=True, eq=False)
class ManySimulation:
    """A job of several tasks made ready."""

    job: Job
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
            if folder:
                (folder / CONFIG).write_text(dump(self.job), encoding="utf-8")
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


def jobs_of(job: Job) -> list[Job]:
    """Return each task as a job of its own; ConfigError if they cannot be run."""
    if job.scheme not in SCHEMES:
        raise unknown("scheme for several tasks", job.scheme, SCHEMES)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("several tasks need mode 'parallel': their shards are sent")
    jobs = tasks_of(job)
    if len({one.name for one in jobs}) < len(jobs):
        raise ConfigError("two tasks have the same name: give each its own")
    return jobs


def check_live(scheme: str) -> None:
    """Raise ConfigError for a scheme that needs to know the future."""
    if scheme == "mmtt-ideal":
        raise ConfigError(
            "'mmtt-ideal' knows the states that learners will be in, which live nobody "
            "does: simulate it, or use 'med-probe'"
        )


def build_many(job: Job, hardware: Hardware = HERE) -> ManySimulation:
    """Load, build and price several tasks; ConfigError or DataError if wrong."""
    jobs = jobs_of(job)
    ready = [prepared(one, hardware) for one in jobs]
    entries = [
        Entry(task=one.task, fleet=one.fleet, arrives_s=float(table.arrives))
        for one, table in zip(ready, job.task, strict=True)
    ]
    tasks, fleets = [one.task for one in ready], [one.fleet for one in ready]
    laws, gamma = _state_laws(jobs, tasks)
    states = _states(laws, gamma, tasks)
    benchmarked = states.draw(np.random.default_rng([job.seed, Stream.BENCHMARK]))
    seen = [law.at(np.arange(len(gamma)), benchmarked) for law in laws]
    names = names_of(job)
    learned = Learned(
        tasks, [one.training.batch for one in jobs], lambda: (seen, names)
    )
    known = {
        "mmtt-ideal": lambda: _seconds([f.true_law() for f in fleets], tasks),
        "mmtt": lambda: states.at(benchmarked),
        "med-learned": learned.expected,
    }.get(job.scheme, states.expected)
    prices = prices_of(job)
    association = Association(
        terms_of(job, tasks),
        np.array([prices[name] for name in names]),
        known,
        solver_of(job.scheme, lambda: states),
    )
    turns, knowledge = VirtualTurns(), SCHEMES[job.scheme]
    return ManySimulation(
        job, jobs, Programme(entries, association, turns, knowledge), learned
    )


def solver_of(scheme: str, states: Callable[[], States]) -> Solve:
    """What a scheme makes of a problem."""

    def solved(problem: MultiTaskProblem, tasks: Ints, learners: Ints) -> Solved:
        if scheme == "rmed":
            return rmed(problem, states().only(tasks, learners))
        return solve(problem)

    return solved


def terms_of(job: Job, tasks: Sequence[Task]) -> Terms:
    """What the tasks ask for, and what they may cost."""
    return Terms(
        names=[task.name for task in tasks],
        shards=np.array([t.cycle_samples(None) // t.shard for t in tasks]),
        deadline_s=np.array([task.deadline_s for task in tasks]),
        budget=math.inf if job.budget is None else job.budget,
        least=job.least,
    )


def prices_of(job: Job) -> dict[str, float]:
    """What a shard costs on each learner of the job."""
    prices = [group.price for group in job.learners for _ in range(group.count)]
    return dict(zip(names_of(job), prices, strict=True))


#: Returns one law a task, by the learners' benchmarks, and the learners' names.
Benchmarks = Callable[[], tuple[Sequence[DelayLaw], Sequence[str]]]


def live_states(
    job: Job, jobs: Sequence[Job], tasks: Sequence[Task], benchmarks: Benchmarks
) -> Callable[[], States]:
    """The states of real learners: those that the job gives, or as benchmarked."""
    given = tuple(group for group in job.learners if _has_priced_states(group))
    names: list[str] = []
    laws, gamma = [_NOBODY] * len(tasks), np.ones((0, 1))
    if given:
        names = names_of(msgspec.structs.replace(job, learners=given))
        jobs = [msgspec.structs.replace(one, learners=given) for one in jobs]
        laws, gamma = _state_laws(jobs, tasks)
    width = gamma.shape[1]

    def states() -> States:
        seen, roster = benchmarks()
        rows = [names.index(name) if name in names else None for name in roster]
        one = np.eye(width)[0]
        return _states(
            [
                DelayLaw(
                    step_s=_chosen(rows, of.step_s, law.step_s),
                    sample_s=_chosen(rows, of.sample_s, law.sample_s),
                    fixed_s=_chosen(rows, of.fixed_s, law.fixed_s),
                )
                for of, law in zip(laws, seen, strict=True)
            ],
            np.stack([one if j is None else gamma[j] for j in rows]),
            tasks,
        )

    return states


_NOBODY = DelayLaw(
    step_s=np.ones((0, 1)), sample_s=np.ones((0, 1)), fixed_s=np.ones((0, 1))
)


def _has_priced_states(group: LearnersTable) -> bool:
    states = group.states
    return bool(states) and all(state.rate and state.bandwidth for state in states)


def _chosen(rows: Sequence[int | None], given: Floats, seen: Floats) -> Floats:
    """Learners × states: as given, or as seen in every state."""
    return np.stack(
        [
            np.full(given.shape[1], seen[k]) if j is None else given[j]
            for k, j in enumerate(rows)
        ]
    )


def known_live(
    scheme: str,
    states: Callable[[], States],
    tasks: Sequence[Task],
    benchmarks: Benchmarks,
    learned: Learned,
) -> Callable[[], tuple[Floats, Floats]]:
    """What is known of real learners, seconds of tasks × learners."""
    match scheme:
        case "mmtt":
            return lambda: _seconds(benchmarks()[0], tasks)
        case "med-learned":
            return learned.expected
        case _:
            return lambda: states().expected()


def _states(laws: Sequence[DelayLaw], gamma: Floats, tasks: Sequence[Task]) -> States:
    return States.of(
        laws,
        gamma,
        shard=[task.shard for task in tasks],
        steps=[task.steps for task in tasks],
    )


def _state_laws(
    jobs: Sequence[Job], tasks: Sequence[Task]
) -> tuple[list[DelayLaw], Floats]:
    """One law a task, learners × states, and the states' γ."""
    priced = [
        state_law(job, workload_of(job, task.model, task.data))
        for job, task in zip(jobs, tasks, strict=True)
    ]
    return [law for law, _ in priced], priced[0][1]


def _seconds(laws: Sequence[DelayLaw], tasks: Sequence[Task]) -> tuple[Floats, Floats]:
    rows = [seconds_of(law, task) for law, task in zip(laws, tasks, strict=True)]
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
