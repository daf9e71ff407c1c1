"""Coded training from a job: simulated and live."""

from melisma.algorithms.coded import Coded
from melisma.algorithms.coder import Coding
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.errors import ConfigError
from melisma.fleets.live_coded import LiveWorkers
from melisma.fleets.roster import Roster
from melisma.fleets.simulated_coded import SimulatedWorkers, Straggling
from melisma.jobs.building import Prepared, names_of, state_law, task_on, workload_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job
from melisma.learning.losses import loss_of
from melisma.learning.settings import HERE, Hardware, Precision


def coding_of(job: Job) -> Coding:
    """Return how a job codes gradients."""
    return Coding(
        code=job.scheme.partition(":")[2] or job.code,
        stragglers=job.stragglers,
        helpers=job.helpers,
    )


def straggling_of(job: Job) -> Straggling:
    """Return a job's artificial stragglers."""
    return Straggling(number=job.straggling.number, slower=job.straggling.slower)


def simulated(job: Job, hardware: Hardware = HERE) -> Prepared:
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
    crew = SimulatedWorkers(
        names_of(job),
        law.expected(gamma),
        model=task.model,
        samples=task.taken.train,
        loss=loss_of(task.training),
        seed=job.seed,
        noise=job.noise,
        straggling=straggling_of(job),
        channels=job.channels,
    )
    return Prepared(job, task, crew, Coded(task, crew, coding))


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Train with the learners that joined."""
    (live_task,) = tasks
    crew = LiveWorkers(
        roster,
        live_task.served,
        seed=job.seed,
        straggling=straggling_of(job),
        began_s=live_task.began_s,
    )
    algorithm = Coded(live_task.task, crew, coding_of(job))
    await train(
        live_task.task, crew, algorithm, live_task.run, patient=True, control=control
    )


def services(job: Job) -> list[object]:
    """Return what learners may call beside the model server: nothing."""
    return []
