"""Clusters of learners whose owners use them too: one trial of the thesis's chapter 4.

A cluster is drawn from a seed: speeds, prices, states. Every scheme that can serve it
runs all tasks on it, on a virtual clock and without gradients, in the same states and
with the same noise, so that trials can be compared one by one.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import melisma as mel
from melisma.algorithms import (
    Association,
    DelayEstimates,
    Entry,
    ScheduledTask,
    TaskScheduler,
    Terms,
    VirtualClock,
    seconds_of,
)
from melisma.errors import InfeasibleError, TrainingError
from melisma.fleets import Conditions, SimulatedLearners
from melisma.learning import Dataset, Late, Training, pairs
from melisma.maths import Floats, Ints
from melisma.runs import Record
from melisma.schemes import multitask
from melisma.system import DelayLaw, MultiTaskProblem, Solved, States, heated
from melisma.views import Service, service

#: MMTT-Ideal, MED and MMTT-Uncertain, and what a cycle's split is made by.
ESTIMATES = {
    "mmtt-ideal": DelayEstimates.CURRENT,
    "med": DelayEstimates.FIXED,
    "mmtt": DelayEstimates.FIXED,
}

DRAWS = 1_000  #: of a cluster that can be served, at most
BENCHMARKS = 5  #: stream of the benchmarks' noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every number that the figures of chapter 4 depend on.

    Tuples run over the tasks mnist_ffn, mnist_cnn, fashion and a copy of fashion, or
    over the states idle, training and downloading.
    """

    points: tuple[tuple[int, int], ...]  #: learners and tasks of each point
    longer_s: float  #: that deadlines are than in Table 4.1
    budget: float
    trials: int
    cycles: int = 5
    heat: float = 0.5
    least: int = 1
    shards: tuple[int, ...] = (60, 60, 20, 20)
    passes: tuple[int, ...] = (2, 1, 1, 1)
    deadline_s: tuple[float, ...] = (55.0, 40.0, 40.0, 40.0)
    model_bytes: tuple[float, ...] = (2.296e6, 0.409e6, 8.317e6, 8.317e6)
    shard_bytes: float = 1.568e6
    shard: int = 500
    batch: int = 32
    #: Shards per second of the tasks, in any state but training.
    idle_shards_per_s: tuple[float, ...] = (5.6, 4.1, 2.7, 2.7)
    training_shards_per_s: float = 0.5
    bytes_per_s: tuple[float, ...] = (20e6, 20e6, 8e6)
    compute_spread: float = 0.05  #: between learners, of the mean
    network_spread: float = 0.1
    noise: float = 0.04  #: of each cycle's times (σ of the logarithm)
    price_mean: float = 1.0
    price_spread: float = 0.5  #: standard deviation, as in the author's program
    price_range: tuple[float, float] = (0.1, 1.5)
    #: Shards of a learner's benchmark, by state and task; 0: rates are known.
    benchmark_shards: int = 20
    overhead_s: float = 0.0  #: of every learner in each cycle
    late: Late = Late.OVERRUN
    look_every: int = 10  #: batches between two looks at the clock


class Cluster:
    """Learners drawn from a generator, and tasks for them."""

    def __init__(
        self, study: Study, learners: int, tasks: int, rng: np.random.Generator
    ) -> None:
        self.study, self.tasks = study, range(tasks)
        self.names = [f"learner-{j}" for j in range(learners)]
        faster = 1 + study.compute_spread * rng.standard_normal((learners, 1))
        wider = 1 + study.network_spread * rng.standard_normal((learners, 1))
        bytes_per_s = wider * np.array(study.bytes_per_s)
        true = [
            DelayLaw(
                step_s=1 / (study.shard * faster * self._shards_per_s(i)),
                sample_s=study.shard_bytes / study.shard / bytes_per_s,
                fixed_s=2 * study.model_bytes[i] / bytes_per_s,
            )
            for i in self.tasks
        ]
        self.gamma = heated(rng.integers(3, size=learners), 3, study.heat)
        self.price = rng.normal(study.price_mean, study.price_spread, learners).clip(
            *study.price_range
        )
        self.benchmarked = self._states(true).draw(rng)
        # One for all tasks: a learner is in one state, whichever task it serves.
        self.seed = int(rng.integers(2**31))
        # Of a stream of their own: all else is drawn alike, whatever is measured.
        benchmarks = np.random.default_rng([self.seed, BENCHMARKS])
        known = [
            law.measured(
                shards=study.benchmark_shards, noise=study.noise, rng=benchmarks
            )
            if study.benchmark_shards
            else law
            for law in true
        ]
        self.laws, self.known = (
            [law.slowed(overhead_s=study.overhead_s) for law in laws]
            for laws in (true, known)
        )
        self.states = self._states(self.known)

    def _states(self, laws: list[DelayLaw]) -> States:
        tasks = len(laws)
        shard, steps = [self.study.shard] * tasks, self.study.passes[:tasks]
        return States.of(laws, self.gamma, shard=shard, steps=steps)

    def _shards_per_s(self, i: int) -> Floats:
        idle = self.study.idle_shards_per_s[i]
        return np.array([idle, self.study.training_shards_per_s, idle])

    def served(self, scheme: str) -> Service | None:
        """What became of the tasks under a scheme.

        None if a deadline cannot be met by what the scheme knows, in whichever cycle,
        or if a cycle ends without an update: the author's program draws anew, or fails.
        """
        study, tasks = self.study, [self._task(i) for i in self.tasks]
        crews = [self._crew(i) for i in self.tasks]
        terms = Terms(
            names=[task.name for task in tasks],
            shards=np.array(study.shards)[self.tasks],
            deadline_s=np.array([task.deadline_s for task in tasks]),
            budget=study.budget,
            least=study.least,
        )

        def in_their_states() -> tuple[Floats, Floats]:
            pairs = zip(crews, tasks, strict=True)
            shard_s, fixed_s = zip(
                *(seconds_of(crew.foreseen_law(), task) for crew, task in pairs),
                strict=True,
            )
            return np.stack(shard_s), np.stack(fixed_s)

        known = {
            "mmtt-ideal": in_their_states,
            "med": self.states.expected,
            "mmtt": lambda: self.states.at(self.benchmarked),
        }[scheme]
        # Learners that a finished task frees stay idle, as in the thesis.
        association = Association(terms, self.price, known, _solved, reassigns=False)
        entries = [
            Entry(task=task, crew=crew) for task, crew in zip(tasks, crews, strict=True)
        ]
        scheduler = TaskScheduler(
            entries, association, VirtualClock(), ESTIMATES[scheme]
        )
        try:
            asyncio.run(scheduler.run())
        except TrainingError:
            return None
        records = [record for entry in entries for record in entry.run.records]
        deadline_s = {task.name: task.deadline_s for task in tasks}
        if any(_hopeless(record, deadline_s) for record in records):
            return None
        return service(records, deadline_s, dict.fromkeys(deadline_s, study.batch))

    def _task(self, i: int) -> ScheduledTask:
        study = self.study
        return ScheduledTask(
            name=f"task-{i}",
            model=_nothing(),
            data=_rows(max(study.shards) * study.shard),
            scheme="med",
            cycles=study.cycles,
            deadline_s=study.deadline_s[i] + study.longer_s,
            seed=self.seed,
            samples=study.shards[i] * study.shard,
            shard=study.shard,
            steps=study.passes[i],
        )

    def _crew(self, i: int) -> SimulatedLearners:
        study = self.study
        return SimulatedLearners(
            self.names,
            self.laws[i],
            known=self.known[i],
            model=_nothing(),
            samples=_rows(max(study.shards) * study.shard).train,
            training=Training(batch=study.batch),
            seed=self.seed,
            conditions=Conditions(
                probability=self.gamma,
                noise=study.noise,
                late=study.late,
                look_every=study.look_every,
                timing=True,
            ),
        )


def _solved(problem: MultiTaskProblem, tasks: Ints, learners: Ints) -> Solved:
    return multitask.solve(problem)


def _hopeless(record: Record, deadline_s: Mapping[str, float]) -> bool:
    """Whether a task was refused, or a learner given what it is known not to do."""
    if isinstance(record, mel.Allocated) and record.predicted_s is not None:
        return record.predicted_s > deadline_s[record.task] * (1 + 1e-9)
    return isinstance(record, mel.Refused)


def _nothing() -> nn.Module:
    """A model that is passed around and not trained."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1, 1))


def _rows(number: int) -> Dataset:
    """So many samples of nothing."""
    x, y = torch.zeros(number, 1, 1, 1), torch.zeros(number, dtype=torch.long)
    return Dataset("nothing", pairs(x, y), pairs(x[:1], y[:1]))


def trial(todo: tuple[Study, int, int, int]) -> dict[str, tuple[Service, int]]:
    """What became of a cluster under each scheme, and how many were drawn in vain.

    As in the author's program, each scheme has clusters drawn until it can serve one:
    schemes that can serve the first have the same. InfeasibleError if a thousand are
    not enough.
    """
    study, learners, tasks, seed = todo

    def first_served(scheme: str) -> tuple[Service, int]:
        for vain in range(DRAWS):
            rng = np.random.default_rng([seed, learners, vain])
            served = Cluster(study, learners, tasks, rng).served(scheme)
            if served is not None:
                return served, vain
        raise InfeasibleError(
            f"{DRAWS} clusters of {learners} learners, and none on which {scheme} can "
            f"do {tasks} tasks: give them more time"
        )

    return {scheme: first_served(scheme) for scheme in ESTIMATES}
