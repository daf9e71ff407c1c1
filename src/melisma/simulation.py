"""From a job to a simulated run."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from melisma.config import Job, LearnersTable, Split, dump, probabilities
from melisma.errors import ConfigError
from melisma.learning import data, models, splits
from melisma.learning.data import Dataset
from melisma.learning.devices import placed
from melisma.learning.parameters import Model, Parameters, save
from melisma.learning.settings import HERE, Hardware, Merging, Training
from melisma.maths.arrays import Floats, Ints
from melisma.runtime.chance import Stream
from melisma.runtime.diary import Sink
from melisma.runtime.folder import CONFIG, MODEL, RECORDS
from melisma.runtime.orchestrator import run
from melisma.runtime.records import Record, write
from melisma.runtime.simulated import Conditions, SimulatedFleet
from melisma.runtime.task import Task
from melisma.schemes import find
from melisma.system.cell import Channel
from melisma.system.law import DelayLaw, Mode, Workload


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A job made ready: its data loaded, its model built, its learners priced."""

    job: Job
    task: Task
    fleet: SimulatedFleet

    def run(
        self,
        folder: Path | None = None,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> list[Record]:
        """Run on a virtual clock with real gradients; return what happened.

        With a ``folder``, which must exist, configuration, records and model are
        written there: records as they come, the model at the end.
        """
        return written(
            self.job, folder, watch, lambda sink: run(self.task, self.fleet, sink)
        )


def written(
    job: Job,
    folder: Path | None,
    watch: Callable[[Record], None],
    train: Callable[[Sink], Coroutine[Any, Any, Parameters]],
) -> list[Record]:
    """Train, and return what happened; as in `Simulation.run`."""
    happened: list[Record] = []
    with ExitStack() as stack:
        file = None

        def sink(record: Record) -> None:
            nonlocal file
            if folder is not None and file is None:
                (folder / CONFIG).write_text(dump(job), encoding="utf-8")
                file = stack.enter_context((folder / RECORDS).open("wb"))
            if file is not None:
                write(record, file)
            happened.append(record)
            watch(record)

        parameters = asyncio.run(train(sink))
    if folder is not None:
        save(parameters, folder / MODEL)
    return happened


def simulate(job: Job) -> list[Record]:
    """Run a job and return what happened, leaving nothing on disk."""
    return build(job).run()


def task_of(job: Job) -> Task:
    """Load and build what is to be trained; ConfigError or DataError if wrong."""
    dataset = data.load(
        job.data.name, Path(job.data.folder) if job.data.folder else None
    )
    model = models.build(job.model, job.seed)
    models.check_fits(model, dataset)
    return Task(
        name=job.name,
        model=model,
        data=dataset,
        scheme=job.scheme,
        cycles=job.cycles,
        deadline_s=float(job.deadline),
        seed=job.seed,
        samples=job.samples,
        shard=job.shard,
        steps=job.steps,
        least=job.least,
        most=job.most,
        merging=Merging(
            rule=job.aggregation.rule,
            trim=job.aggregation.trim,
            clip=job.aggregation.clip,
        ),
    )


def task_on(hardware: Hardware, job: Job) -> Task:
    """Load and build a task where it is to be trained; ConfigError if that is amiss."""
    task = task_of(job)
    data, model = placed(task.data, task.model, hardware)
    return replace(task, data=data, model=model)


def names_of(job: Job) -> list[str]:
    """Return the learners' names, numbered where several are alike."""
    return [
        group.name if group.count == 1 else f"{group.name}-{i}"
        for group in job.learners
        for i in range(1, group.count + 1)
    ]


def build(job: Job, hardware: Hardware = HERE) -> Simulation:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    check_single(job)
    return prepared(job, hardware)


def check_single(job: Job) -> None:
    """Raise ConfigError unless a job has one task, and a scheme for it."""
    if job.task:
        raise ConfigError(
            f"{job.name!r} has several tasks, and this takes one: take out [[task]]"
        )
    find(job.scheme)


def prepared(job: Job, hardware: Hardware = HERE) -> Simulation:
    """Load, build and price one task, whatever decides on its split."""
    names = names_of(job)
    task = task_on(hardware, job)
    model, dataset = task.model, task.data
    law, gamma = state_law(job, workload_of(job, model, dataset))
    uncertain = gamma.shape[1] > 1
    fleet = SimulatedFleet(
        names,
        law if uncertain else law.expected(gamma),
        model=model,
        data=dataset,
        training=Training(
            optimiser=job.training.optimiser,
            rate=job.training.rate,
            batch=job.training.batch,
        ),
        seed=job.seed,
        conditions=Conditions(
            probability=gamma if uncertain else None,
            changing=job.changing if uncertain else 0.0,
            noise=job.noise,
            late=job.late,
        ),
        own_rows=own_rows(job, dataset),
        hardware=hardware,
    )
    task.cycle_samples(fleet.own_samples)  # a job that asks for too much fails now
    return Simulation(job, task, fleet)


def workload_of(job: Job, model: Model, dataset: Dataset) -> Workload:
    """What the job says the model costs, and the rest counted."""
    shape = tuple(dataset.train_x.shape[1:])
    given = job.workload
    cycles = given.cycles or 0.0
    if not given.cycles and any(group.clock for group in job.learners):
        cycles = float(models.cycles_per_sample(model, shape))
    sample_bytes = given.sample_size or float(dataset.sample_bytes)
    model_bytes = given.model_size or float(models.model_bytes(model))
    return Workload(
        sample_bits=8 * sample_bytes,
        model_bits=8 * model_bytes,
        cycles_per_sample=cycles,
    )


def state_law(job: Job, workload: Workload) -> tuple[DelayLaw, Floats]:
    """The law of all learners, learners × states, and the states' γ."""
    width = max(len(group.states) or 1 for group in job.learners)
    rows = []
    for group in job.learners:
        law, gamma = _group_law(group, job, workload)
        spare = (0, width - gamma.size)
        # A state that a learner does not have repeats its last one, with γ = 0.
        coefficients = [
            np.pad(values, spare, mode="edge")
            for values in (law.step_s, law.sample_s, law.fixed_s)
        ]
        rows += [np.stack([*coefficients, np.pad(gamma, spare)])] * group.count
    step_s, sample_s, fixed_s, gamma = np.stack(rows, axis=1)
    return DelayLaw(step_s=step_s, sample_s=sample_s, fixed_s=fixed_s), gamma


def _group_law(
    group: LearnersTable, job: Job, workload: Workload
) -> tuple[DelayLaw, Floats]:
    """One learner's coefficients in each of its states, and the states' γ."""
    if group.clock is not None and group.distance is not None:
        channel = Channel(
            bandwidth_hz=job.channel.bandwidth,
            power_w=job.channel.power,
            noise_w_per_hz=job.channel.noise,
            intercept_db=job.channel.intercept,
            slope_db=job.channel.slope,
        )
        law = DelayLaw.from_channel(
            workload,
            clock_hz=group.clock,
            rate_bps=channel.rate_bps(group.distance),
            mode=job.mode,
        )
        return law, np.ones(1)
    if any(state.rate is None or state.bandwidth is None for state in group.states):
        raise ConfigError(
            f"learners {group.name!r}: the simulator needs rate and bandwidth of every "
            "state"
        )
    law = DelayLaw.from_rates(
        samples_per_s=[
            float(state.rates.get(job.name, state.rate) or 0.0)
            for state in group.states
        ]
        or group.rate
        or 0.0,
        bytes_per_s=[float(state.bandwidth or 0.0) for state in group.states]
        or group.bandwidth
        or 0.0,
        sample_bytes=workload.sample_bits / 8,
        model_bytes=workload.model_bits / 8,
        mode=job.mode,
    )
    gamma = [1.0]
    if group.states:
        gamma = probabilities(group.states, group.heat, f"learners {group.name!r}:")
    return law, np.array(gamma)


def own_rows(
    job: Job, dataset: Dataset, learners: int | None = None
) -> list[Ints] | None:
    """In federated mode, the rows that lie on each learner: the job's, or so many."""
    if job.mode == Mode.PARALLEL:
        return None
    learners = learners or sum(group.count for group in job.learners)
    rng = np.random.default_rng([job.seed, Stream.SPLIT])
    labels = dataset.train_y.cpu().numpy()
    match job.data.split:
        case Split.IID:
            return splits.iid(len(labels), learners, rng)
        case Split.DIRICHLET:
            return splits.dirichlet(
                labels, learners, job.data.alpha, rng, least=job.shard
            )
        case Split.LABELS:
            return splits.label_skew(labels, learners, job.data.classes, rng)
