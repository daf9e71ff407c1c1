"""Asynchronous training from a job: simulated and live."""

from melisma.algorithms.asynchronous import Asynchronous, Rule
from melisma.algorithms.asynchronous.fedasync import FedAsync
from melisma.algorithms.asynchronous.fedbuff import FedBuff
from melisma.algorithms.asynchronous.fedcompass import FedCompass
from melisma.algorithms.asynchronous.ringleader import Ringleader
from melisma.algorithms.asynchronous.ringmaster import Ringmaster
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.errors import ConfigError
from melisma.fleets.flow import SimulatedFlow
from melisma.fleets.live_flow import LiveFlow
from melisma.fleets.protocols import Flows
from melisma.fleets.roster import Roster
from melisma.fleets.simulated import Conditions
from melisma.jobs.asynchronous_checks import (
    FEDASYNC,
    FEDBUFF,
    FEDCOMPASS,
    RINGLEADER,
)
from melisma.jobs.building import (
    Prepared,
    known_law,
    own_rows,
    task_on,
    workload_of,
)
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, names_of
from melisma.jobs.ways import ways_of
from melisma.learning.parameters import trained
from melisma.learning.servers import server_for
from melisma.learning.settings import HERE, Hardware, Schedule


def simulated(job: Job, hardware: Hardware = HERE) -> Prepared:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    task = task_on(hardware, job)
    true, _, gamma = known_law(job, workload_of(job, task.model, task.data))
    if gamma.shape[1] > 1:
        raise ConfigError(
            "learners with states are not for asynchronous training: give a rate and a "
            "bandwidth"
        )
    crew = SimulatedFlow(
        names_of(job),
        true.expected(gamma),
        model=task.model,
        samples=task.taken.train,
        training=task.training,
        seed=job.seed,
        conditions=Conditions(noise=job.noise),
        own_rows=own_rows(job, task.data),
        hardware=hardware,
        ways=ways_of(job, task),
    )
    task.cycle_samples(crew.own_samples)  # asking for too many samples fails here
    return Prepared(job, task, crew, algorithm_of(job, task, crew))


def algorithm_of(job: Job, task: ScheduledTask, crew: Flows) -> Asynchronous:
    """Return the algorithm of a job; ConfigError for what has no meaning in it."""
    training, table = task.training, job.asynchronous
    if training.schedule != Schedule.CONSTANT or training.warmup:
        raise ConfigError(
            "schedule and warmup are of cycles in which all train together: leave them "
            "out"
        )
    return Asynchronous(
        crew,
        rule_of(job, task),
        updates=table.updates,
        staleness_at_most=table.staleness_at_most,
    )


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Train with the learners that joined."""
    (live_task,) = tasks
    crew = LiveFlow(
        roster,
        live_task.served,
        late=job.late,
        began_s=live_task.began_s,
        order_s=float(job.deadline),
    )
    algorithm = algorithm_of(job, live_task.task, crew)
    task, run = live_task.task, live_task.run
    try:
        await train(task, crew, algorithm, run, patient=True, control=control)
    finally:
        crew.stop()


def services(job: Job) -> list[object]:
    """Return what learners may call beside the model server: nothing."""
    return []


def rule_of(job: Job, task: ScheduledTask) -> Rule:
    """Return how updates become models."""
    table = job.asynchronous
    if job.scheme == FEDASYNC:
        return FedAsync(table.mixing or 0.6, table.exponent)
    if job.scheme == FEDCOMPASS:
        mixing = table.mixing or 0.9
        return FedCompass(mixing, table.exponent, table.least, table.patience)
    if job.scheme == FEDBUFF:
        moving = trained(task.model).keys()
        return FedBuff(server_for(task.merging), moving, table.buffer)
    if job.scheme == RINGLEADER:
        return Ringleader(task.merging.rate)
    return Ringmaster(1.0 if task.merging.rate is None else task.merging.rate)
