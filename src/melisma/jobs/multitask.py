"""Several tasks from a job: simulated and live."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from melisma.algorithms.association import Association, Solve, Terms
from melisma.algorithms.clock import RealClock, VirtualClock
from melisma.algorithms.control import Control
from melisma.algorithms.loop import place
from melisma.algorithms.multitask import (
    DelayEstimates,
    Entry,
    TaskScheduler,
    seconds_of,
    with_care,
)
from melisma.algorithms.observed import ObservedStates
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.roster import Roster
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.averaging import learners_of, promises_of
from melisma.jobs.benchmark_table import Known
from melisma.jobs.building import known_law, workload_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.measured_states import MeasuredStates
from melisma.jobs.schema import Job, LearnersTable, names_of, tasks_of
from melisma.learning.parameters import parameters_of, state_of
from melisma.learning.settings import HERE, Hardware
from melisma.maths.arrays import Floats, Ints
from melisma.runs.store import RunWriter
from melisma.schemes.multitask import solve
from melisma.schemes.multitask.rmed import rmed
from melisma.system.law import DelayLaw
from melisma.system.multitask import MultiTaskProblem, Solved
from melisma.system.promise import Promises
from melisma.system.states import States
from melisma.system.streams import Stream

#: Which estimates of delays each scheme splits a cycle by.
ESTIMATES = {
    "med": DelayEstimates.FIXED,
    "mmtt": DelayEstimates.FIXED,
    "mmtt-ideal": DelayEstimates.CURRENT,
    "med-probe": DelayEstimates.PROBED,
    "med-learned": DelayEstimates.RENEWED,
    "rmed": DelayEstimates.FIXED,
}


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTasks:
    """A job of several tasks made ready to simulate."""

    job: Job
    tasks: list[ScheduledTask]
    crews: list[SimulatedLearners]
    association: Association
    observed: ObservedStates  #: from the records, for schemes that ask
    promises: list[Promises | None]  #: of each task

    async def train(
        self, runs: Mapping[str, RunWriter], control: Control | None = None
    ) -> None:
        """Run all tasks on one virtual clock."""
        entries = [
            Entry(
                task=task,
                crew=crew,
                run=runs[task.name],
                arrives_s=float(t.arrives),
                promises=promises,
            )
            for task, crew, t, promises in zip(
                self.tasks, self.crews, self.job.tasks, self.promises, strict=True
            )
        ]
        await TaskScheduler(
            entries,
            self.association,
            VirtualClock(),
            estimates_of(self.job),
            control=control,
            observe=self.observed.see,
        ).run()


def simulated(job: Job, hardware: Hardware = HERE) -> PreparedTasks:
    """Load, build and price several tasks; ConfigError or DataError if wrong."""
    jobs = tasks_of(job)
    pairs = [learners_of(task_job, hardware) for task_job in jobs]
    tasks, crews = [task for task, _ in pairs], [crew for _, crew in pairs]
    laws, gamma = _state_laws(jobs, tasks)
    states = _states(laws, gamma, tasks)
    benchmarked = states.draw(np.random.default_rng([job.seed, Stream.BENCHMARK]))
    measured = [law.at(np.arange(len(gamma)), benchmarked) for law in laws]
    names = names_of(job)
    observed = ObservedStates(tasks, lambda: (measured, names))
    known = {
        "mmtt-ideal": lambda: _seconds([crew.foreseen_law() for crew in crews], tasks),
        "mmtt": lambda: states.at(benchmarked),
        "med-learned": observed.expected,
    }.get(job.scheme, states.expected)
    prices, promises = prices_of(job), [promises_of(task_job) for task_job in jobs]
    association = Association(
        terms_of(job, tasks),
        np.array([prices[name] for name in names]),
        with_care(known, promises, lambda: names),
        solver_of(job.scheme, lambda: states),
        keeps=job.late_at_most is not None,
    )
    return PreparedTasks(job, tasks, crews, association, observed, promises)


def estimates_of(job: Job) -> DelayEstimates:
    """Return by which estimates a cycle is split; margins change in each cycle."""
    usual = ESTIMATES[job.scheme]
    fixed = usual == DelayEstimates.FIXED
    return DelayEstimates.CURRENT if fixed and job.late_at_most else usual


def services(job: Job) -> list[object]:
    """Return what learners may call beside the model server: nothing."""
    return []


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Run several tasks at once, on the learners that they share."""
    began_s = max(live_task.began_s for live_task in tasks)
    for live_task in tasks:
        if live_task.is_done:
            place(live_task.task, parameters_of(live_task.task.model))
            live_task.run.finish(state_of(live_task.task.model))
    tasks = [live_task for live_task in tasks if not live_task.is_done]
    if not tasks:
        return
    # The clock starts when all are there.
    if await control.unless_stopped(roster.ready(tasks[0].job.name)) is None:
        return
    benchmarks = _Benchmarks(roster, [live_task.task for live_task in tasks])
    observed = ObservedStates(benchmarks.tasks, benchmarks)
    past = [record for live_task in tasks for record in live_task.run.past]
    for record in sorted(past, key=lambda record: record.time_s):
        observed.see(record)
    promises = [promises_of(live_task.job) for live_task in tasks]
    association = _association(job, tasks, promises, benchmarks, observed)
    arrives_s = {table.name: float(table.arrives) for table in job.tasks}
    entries = [
        Entry(
            task=live_task.task,
            crew=live_task.learners(roster, began_s),
            run=live_task.run,
            arrives_s=arrives_s[live_task.job.name],
            promises=promised,
        )
        for live_task, promised in zip(tasks, promises, strict=True)
    ]
    await TaskScheduler(
        entries,
        association,
        RealClock(began_s),
        estimates_of(job),
        refresh=_refresh(job, benchmarks, association),
        patient=True,
        control=control,
        observe=observed.see,
    ).run()


def _association(
    job: Job,
    tasks: Sequence[LiveTask],
    promises: Sequence[Promises | None],
    benchmarks: "_Benchmarks",
    observed: ObservedStates,
) -> Association:
    """Return what splits a roster's learners, by what its scheme knows of them."""
    roster, jobs = benchmarks.roster, [live_task.job for live_task in tasks]
    measured = MeasuredStates(roster, benchmarks.tasks)
    states: Callable[[], States] = measured
    if job.benchmark.known != Known.MEASURED:
        states = live_states(job, jobs, benchmarks.tasks, benchmarks)
    foreseen = {
        "mmtt-ideal": lambda: measured.foreseen([t.served.cycle + 1 for t in tasks])
    }.get(job.scheme)
    known = foreseen or known_live(
        job.scheme, states, benchmarks.tasks, benchmarks, observed
    )
    return Association(
        terms_of(job, benchmarks.tasks),
        np.zeros(0),
        with_care(
            known,
            promises,
            lambda: roster.known,
            lambda i: roster.spread(jobs[i].name, roster.known),
        ),
        solver_of(job.scheme, states),
        keeps=job.late_at_most is not None,
    )


class _Benchmarks:
    """The benchmarks that the learners of a roster reported, for every task."""

    def __init__(self, roster: Roster, tasks: Sequence[ScheduledTask]) -> None:
        self.roster, self.tasks = roster, tasks

    def __call__(self) -> tuple[list[DelayLaw], list[str]]:
        """Return one delay law a task, and the names of the learners in it."""
        names = self.roster.known
        return [self.roster.law(task.name, names) for task in self.tasks], names


def _refresh(
    job: Job, benchmarks: _Benchmarks, association: Association
) -> Callable[[str], Awaitable[None]]:
    """Return what tells the association which learners are present."""
    roster = benchmarks.roster
    numbers = {task.name: i for i, task in enumerate(benchmarks.tasks)}
    prices = prices_of(job)

    async def refresh(task: str) -> None:
        busy = association.busy(numbers[task])
        await roster.ready(task, [roster.known[j] for j in busy])
        names = roster.known
        there = [j for j, name in enumerate(names) if name in roster.present]
        association.take_in(
            np.array(there, dtype=np.int64),
            np.array([prices.get(name, 1.0) for name in names]),
        )

    return refresh


def solver_of(scheme: str, states: Callable[[], States]) -> Solve:
    """Return the solver of a scheme."""

    def solved(problem: MultiTaskProblem, tasks: Ints, learners: Ints) -> Solved:
        if scheme == "rmed":
            return rmed(problem, states().only(tasks, learners))
        return solve(problem)

    return solved


def terms_of(job: Job, tasks: Sequence[ScheduledTask]) -> Terms:
    """Return the demands of the tasks, and their budget."""
    return Terms(
        names=[task.name for task in tasks],
        shards=np.array([t.cycle_samples(None) // t.shard for t in tasks]),
        deadline_s=np.array([task.deadline_s for task in tasks]),
        budget=math.inf if job.budget is None else job.budget,
        least=job.least,
    )


def prices_of(job: Job) -> dict[str, float]:
    """Return the price of a shard on each learner of the job."""
    prices = [group.price for group in job.learners for _ in range(group.count)]
    return dict(zip(names_of(job), prices, strict=True))


#: Returns one law a task, by the learners' benchmarks, and the learners' names.
Benchmarks = Callable[[], tuple[Sequence[DelayLaw], Sequence[str]]]


def live_states(
    job: Job,
    jobs: Sequence[Job],
    tasks: Sequence[ScheduledTask],
    benchmarks: Benchmarks,
) -> Callable[[], States]:
    """The states of real learners: as the job gives them, else as benchmarked."""
    groups = tuple(group for group in job.learners if _has_priced_states(group))
    names: list[str] = []
    laws, gamma = [_NO_LEARNERS] * len(tasks), np.ones((0, 1))
    if groups:
        names = names_of(msgspec.structs.replace(job, learners=groups))
        jobs = [msgspec.structs.replace(own, learners=groups) for own in jobs]
        laws, gamma = _state_laws(jobs, tasks)
    width = gamma.shape[1]

    def states() -> States:
        measured, roster = benchmarks()
        rows = [names.index(name) if name in names else None for name in roster]
        certain = np.eye(width)[0]
        return _states(
            [
                DelayLaw(
                    step_s=_chosen(rows, of.step_s, law.step_s),
                    sample_s=_chosen(rows, of.sample_s, law.sample_s),
                    fixed_s=_chosen(rows, of.fixed_s, law.fixed_s),
                )
                for of, law in zip(laws, measured, strict=True)
            ],
            np.stack([certain if j is None else gamma[j] for j in rows]),
            tasks,
        )

    return states


_NO_LEARNERS = DelayLaw(
    step_s=np.ones((0, 1)), sample_s=np.ones((0, 1)), fixed_s=np.ones((0, 1))
)


def _has_priced_states(group: LearnersTable) -> bool:
    states = group.states
    return bool(states) and all(state.rate and state.bandwidth for state in states)


def _chosen(rows: Sequence[int | None], given: Floats, measured: Floats) -> Floats:
    """Learners × states: as given, or as measured, the same in every state."""
    return np.stack(
        [
            np.full(given.shape[1], measured[k]) if j is None else given[j]
            for k, j in enumerate(rows)
        ]
    )


def known_live(
    scheme: str,
    states: Callable[[], States],
    tasks: Sequence[ScheduledTask],
    benchmarks: Benchmarks,
    learned: ObservedStates,
) -> Callable[[], tuple[Floats, Floats]]:
    """Return what estimates the seconds of real learners, tasks × learners."""
    match scheme:
        case "mmtt":
            return lambda: _seconds(benchmarks()[0], tasks)
        case "med-learned":
            return learned.expected
        case _:
            return lambda: states().expected()


def _states(
    laws: Sequence[DelayLaw], gamma: Floats, tasks: Sequence[ScheduledTask]
) -> States:
    return States.of(
        laws,
        gamma,
        shard=[task.shard for task in tasks],
        steps=[task.steps for task in tasks],
    )


def _state_laws(
    jobs: Sequence[Job], tasks: Sequence[ScheduledTask]
) -> tuple[list[DelayLaw], Floats]:
    """One known law a task, learners × states, and the states' γ."""
    priced = [
        known_law(job, workload_of(job, task.model, task.data))
        for job, task in zip(jobs, tasks, strict=True)
    ]
    return [law.known for law in priced], priced[0].gamma


def _seconds(
    laws: Sequence[DelayLaw], tasks: Sequence[ScheduledTask]
) -> tuple[Floats, Floats]:
    rows = [seconds_of(law, task) for law, task in zip(laws, tasks, strict=True)]
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
