"""From a job to coded training: simulated here, live in `serving`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from melisma.algorithms.coded import run_coded
from melisma.algorithms.coder import Coding
from melisma.algorithms.task import Task
from melisma.coding import CODES
from melisma.errors import ConfigError, unknown
from melisma.fleets.simulated_coded import SimulatedWorkers, Straggling
from melisma.jobs.building import names_of, state_law, task_on, workload_of, written
from melisma.jobs.schema import Job
from melisma.learning.settings import HERE, Hardware, Optimiser, Precision
from melisma.runs.records import Record
from melisma.system.law import Mode

#: The scheme; `coded:NAME` is the same with another code than the job's.
SCHEME = "coded"
NAMES = (SCHEME, *(f"{SCHEME}:{code}" for code in CODES))


def is_coded(scheme: str) -> bool:
    """Whether a scheme trains by coded gradients."""
    return scheme.partition(":")[0] == SCHEME


def coding_of(job: Job) -> Coding:
    """How a job codes gradients; ConfigError if it cannot be done."""
    if job.scheme not in NAMES:
        raise unknown("scheme", job.scheme, NAMES)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("coded training needs mode 'parallel': shards have copies")
    if job.training.optimiser != Optimiser.SGD:
        raise ConfigError(
            f"coded training with {job.training.optimiser.value!r}: use 'sgd', with "
            "training.momentum if you like"
        )
    if job.stragglers is not None and job.stragglers < 0:
        raise ConfigError(f"stragglers = {job.stragglers}: give 0 or more")
    return Coding(
        code=job.scheme.partition(":")[2] or job.code,
        stragglers=job.stragglers,
        helpers=job.helpers,
        rate=job.training.rate,
        momentum=job.training.momentum,
    )


def check_coded(job: Job) -> None:
    """Raise ConfigError for what is simulated only."""
    coding_of(job)
    if job.channels is not None:
        raise ConfigError(
            f"channels = {job.channels}: shared channels are simulated, a live run has "
            "those that there are: leave it out"
        )


def straggling_of(job: Job) -> Straggling:
    """Who is to be slow."""
    return Straggling(number=job.straggling.number, slower=job.straggling.slower)


@dataclass(frozen=True, slots=True, eq=False)
class CodedSimulation:
    """A job made ready: its data loaded, its model built, its workers priced."""

    job: Job
    task: Task
    workers: SimulatedWorkers
    coding: Coding

    def run(
        self,
        folder: Path | None = None,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> list[Record]:
        """Run on a virtual clock with real gradients; as `Simulation.run`."""
        return written(
            self.job,
            folder,
            watch,
            lambda sink: run_coded(self.task, self.workers, sink, self.coding),
        )


def build_coded(job: Job, hardware: Hardware = HERE) -> CodedSimulation:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    coding = coding_of(job)
    if hardware.precision != Precision.FP32:
        raise ConfigError(
            f"coded training in {hardware.precision.value}: gradients are coded in "
            "fp32: leave the precision out"
        )
    task = task_on(hardware, job)
    learners = len(names_of(job))
    if (coding.stragglers or 0) >= learners:
        raise ConfigError(
            f"stragglers = {coding.stragglers} of {learners} learners: give 0 to "
            f"{learners - 1}"
        )
    law, gamma = state_law(job, workload_of(job, task.model, task.data))
    workers = SimulatedWorkers(
        names_of(job),
        law.expected(gamma),
        model=task.model,
        data=task.data,
        seed=job.seed,
        noise=job.noise,
        straggling=straggling_of(job),
        channels=job.channels,
    )
    return CodedSimulation(job, task, workers, coding)
