"""What every family builds from a job: task, training, names, delay law, data."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from melisma.algorithms.control import Control
from melisma.algorithms.loop import Algorithm, train
from melisma.algorithms.stopping import Stop
from melisma.algorithms.task import ScheduledTask
from melisma.errors import ConfigError
from melisma.jobs.benchmark_table import Known
from melisma.jobs.channel_table import Placement
from melisma.jobs.data_table import Split
from melisma.jobs.families import family_of
from melisma.jobs.options import transfers_of, wire_of
from melisma.jobs.schema import (
    Job,
    LearnersTable,
    probabilities,
)
from melisma.learning import data, models, splits
from melisma.learning.data import Dataset
from melisma.learning.devices import placed
from melisma.learning.evaluation import evaluate
from melisma.learning.lengths import Sizes
from melisma.learning.losses import loss_of, transform_of
from melisma.learning.optimisers import check_optimiser
from melisma.learning.parameters import Model, parameters_of, trained, with_buffers
from melisma.learning.samples import Arrays, Transformed, transformed
from melisma.learning.settings import Correction, Hardware, Merging, Training, Weights
from melisma.learning.task import Task, find
from melisma.maths.arrays import Floats, Ints
from melisma.runs.store import RunWriter
from melisma.schemes import chooses_steps
from melisma.system.law import DelayLaw, Mode, Workload
from melisma.system.problem import STEPS_LIMIT
from melisma.system.radio import RadioCell
from melisma.system.streams import Stream


class Prepared(NamedTuple):
    """A job made ready to simulate: data loaded, model built, delay law computed."""

    job: Job
    task: ScheduledTask
    crew: Any  #: as the algorithm needs it
    algorithm: Algorithm[Any]

    async def train(
        self, runs: Mapping[str, RunWriter], control: Control | None = None
    ) -> None:
        """Train on the virtual clock with real gradients."""
        run = runs[self.job.name]
        await train(self.task, self.crew, self.algorithm, run, control=control)


def task_of(job: Job) -> ScheduledTask:
    """Load and build what is to be trained; ConfigError or DataError if wrong."""
    given = given_task(job)
    training, dataset = training_of(job), dataset_of(job)
    model = with_buffers(given.build(job.seed), training.buffers)
    check_optimiser(training, model)
    merging = merging_of(job)
    if merging.correction != Correction.NONE and training.optimiser.lower() != "sgd":
        raise ConfigError(
            f"[aggregation] correction with optimiser {training.optimiser!r}, whose "
            "steps do not show what the gradients were: use sgd"
        )
    models.check_fits(model, dataset, training)
    transform, metrics = transform_of(training), given.judges()
    # A metric that fails does so before the first cycle.
    evaluate(model, Arrays(transform(dataset.test[:2])), loss_of(training), metrics)
    return ScheduledTask(
        name=job.name,
        model=model,
        data=dataset,
        ready=replace(
            dataset,
            train=Transformed(dataset.train, transform),
            test=transformed(dataset.test, transform),
        ),
        training=training,
        metrics=metrics,
        stop=Stop.of(stops_of(job), metrics),
        federated=job.mode == Mode.FEDERATED,
        scheme=job.scheme,
        cycles=job.cycles,
        deadline_s=float(job.deadline),
        seed=job.seed,
        samples=job.samples,
        shard=job.shard,
        steps=job.steps,
        steps_at_most=job.epochs_at_most if chooses_steps(job.scheme) else STEPS_LIMIT,
        batches=job.batches,
        least=job.least,
        most=job.most,
        learners_at_most=job.learners_at_most,
        merging=merging,
    )


def merging_of(job: Job) -> Merging:
    """Return how updates become a model.

    Where data lies on learners, each counts by what it has: weights by samples would
    fit the model to the data of fast devices. What a fog moves is nobody's own.
    """
    own = job.mode == Mode.FEDERATED and not family_of(job).moves_data
    said: dict[str, Any] = {"weights": Weights.DATA if own else Weights.SAMPLES}
    table = msgspec.structs.asdict(job.aggregation)
    said |= {key: value for key, value in table.items() if value is not None}
    return Merging(**said)


def stops_of(job: Job) -> tuple[str, ...]:
    """Return the rules by which a job ends early."""
    return (job.stop,) if isinstance(job.stop, str) else job.stop


def task_on(hardware: Hardware, job: Job) -> ScheduledTask:
    """Load and build a task on the device that trains it; ConfigError if it cannot."""
    task = task_of(job)
    transform = transform_of(task.training)
    ready, model = placed(task.data, task.model, transform, hardware)
    return replace(task, ready=ready, model=model)


def given_task(job: Job) -> Task:
    """Return the task that a job names, or the one that its own words describe."""
    if job.task is None:
        return Task(model=job.model, loss=job.loss, metrics=job.metrics or ())
    usual = Job()
    for key in ("model", "loss", "metrics"):
        if getattr(job, key) != getattr(usual, key):
            raise ConfigError(
                f"task = {job.task!r} says what {key} is: leave {key} out of the job"
            )
    if job.data.train is not None:
        raise ConfigError(f"task = {job.task!r} has data: leave data.train out")
    return find(job.task)


def dataset_of(job: Job) -> Dataset:
    """Load a job's data; ConfigError or DataError if that fails."""
    table = job.data
    if job.task is not None:
        return given_task(job).dataset(job.task)
    if table.train is None:
        return data.load(table.name, Path(table.folder) if table.folder else None)
    return data.load_files(
        table.train,
        table.test,
        target=table.target,
        features=table.features,
        seed=job.seed,
    )


def training_of(job: Job) -> Training:
    """Return how every learner of a job trains; ConfigError if that cannot be.

    What the job does not say, the task that it names does.
    """
    training = given_task(job).training()
    said = {
        key: value
        for key, value in msgspec.structs.asdict(job.training).items()
        if value is not None
    }
    # The arguments of the task's optimiser are none of another one's.
    named = said.get("optimiser", training.optimiser)
    is_other = named.lower() != training.optimiser.lower()
    arguments = {} if is_other else dict(training.arguments)
    arguments |= said.pop("arguments")
    momentum = said.pop("momentum", None)
    # Runs of version 0.2 say 0 for every optimiser, and some have no momentum.
    if momentum or (momentum is not None and "momentum" in arguments):
        arguments["momentum"] = momentum
    return replace(training, cycles=job.cycles, arguments=arguments, **said)


def workload_of(job: Job, model: Model, dataset: Dataset) -> Workload:
    """Return sizes and cost: from the job, else counted from model and data."""
    table = job.workload
    cycles = table.cycles or 0.0
    if not table.cycles and any(group.clock for group in job.learners):
        cycles = float(models.cycles_per_sample(model, dataset.input_shape))
    sample_bytes = table.sample_size or float(dataset.sample_bytes)
    model_bytes = table.model_size or float(models.model_bytes(model))
    moving = trained(model)
    model_bytes *= transfers_of(job) * wire_of(job).share(parameters_of(model), moving)
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


class KnownLaw(NamedTuple):
    """Delay laws of all learners, learners × states."""

    true: DelayLaw  #: by which time passes
    known: DelayLaw  #: by which work is planned
    gamma: Floats  #: γ, of the states


def known_law(job: Job, workload: Workload) -> KnownLaw:
    """Return the law of all learners, and what a job's benchmark lets know of it.

    The overhead of a cycle is in both, exactly.
    """
    true, gamma = state_law(job, workload)
    known = true
    if job.benchmark.known == Known.MEASURED:
        known = true.measured(
            shards=job.benchmark.shards,
            noise=job.noise,
            rng=np.random.default_rng(
                [job.seed, Stream.BENCHMARK, zlib.crc32(job.name.encode())]
            ),
        )
    overhead_s = float(job.overhead)
    if overhead_s:
        true, known = (law.slowed(overhead_s=overhead_s) for law in (true, known))
    return KnownLaw(true, known, gamma)


def cell_of(job: Job, workload: Workload) -> RadioCell | None:
    """Return the cell of learners whose channels change from cycle to cycle, if so."""
    if not job.channel.changing:
        return None
    if job.benchmark.known == Known.MEASURED:
        raise ConfigError(
            "benchmark.known = 'measured' in a cell, whose channel is known in each "
            f"cycle: leave it out, or {', '.join(job.channel.changing)} of [channel]"
        )
    each = [group for group in job.learners for _ in range(group.count)]
    is_given = job.channel.placement == Placement.GIVEN
    return RadioCell(
        job.channel.link,
        job.channel.surroundings,
        workload=workload,
        clock_hz=np.array([group.clock for group in each], dtype=np.float64),
        distance_m=(
            np.array([group.distance for group in each], dtype=np.float64)
            if is_given
            else None
        ),
        mode=job.mode,
        seed=job.seed,
        overhead_s=float(job.overhead),
    )


def _group_law(
    group: LearnersTable, job: Job, workload: Workload
) -> tuple[DelayLaw, Floats]:
    """One learner's coefficients in each of its states, and the states' γ."""
    if group.clock is not None and group.distance is not None:
        law = DelayLaw.from_channel(
            workload,
            clock_hz=group.clock,
            rate_bps=job.channel.link.rate_bps(group.distance),
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
    """Return the rows on each learner in federated mode, else None.

    ``learners`` is their number if it is not that of the job.
    """
    if job.mode == Mode.PARALLEL:
        return None
    learners = learners or sum(group.count for group in job.learners)
    rng = np.random.default_rng([job.seed, Stream.SPLIT])
    table, rows = job.data, len(dataset.train)
    lengths = table.lengths()
    match table.split:
        case Split.IID:
            if lengths is None:
                return splits.iid(rows, learners, rng)
            return splits.uneven(rows, learners, lengths, rng, least=job.shard)
        case Split.DIRICHLET if table.sizes == Sizes.ANY:
            return splits.dirichlet(
                dataset.labels(), learners, table.alpha, rng, least=job.shard
            )
        case Split.DIRICHLET:
            return splits.mixes(
                dataset.labels(),
                learners,
                table.alpha,
                rng,
                lengths=lengths,
                least=job.shard,
            )
        case Split.LABELS:
            # Even parts of one number of classes are given though a shard is larger.
            is_even = lengths is None and isinstance(table.classes, int)
            return splits.label_skew(
                dataset.labels(),
                learners,
                table.classes,
                rng,
                lengths=lengths,
                least=1 if is_even else job.shard,
            )
