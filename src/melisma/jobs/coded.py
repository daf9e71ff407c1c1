"""Coded training from a job: simulated and live."""

from math import exp
from typing import Any

import numpy as np

from melisma.algorithms.coded import Coded
from melisma.algorithms.coder import Coding
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.algorithms.task import ScheduledTask
from melisma.errors import ConfigError
from melisma.fleets.live_air import AirServer
from melisma.fleets.live_coded import LiveWorkers
from melisma.fleets.live_powered import LivePoweredWorkers
from melisma.fleets.powered_coded import PoweredWorkers
from melisma.fleets.roster import Roster
from melisma.fleets.simulated_coded import SimulatedWorkers, Straggling
from melisma.jobs.building import Prepared, state_law, task_on, workload_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, names_of
from melisma.jobs.transmission_table import TransmissionTable
from melisma.learning.losses import loss_of
from melisma.learning.settings import HERE, Hardware, Precision
from melisma.system.law import DelayLaw
from melisma.system.streams import Stream
from melisma.transmission import Radios

#: Of a worker's noise, standard deviations; faster ones are cut to it, since bounds of
#: queues and batteries rest on a greatest rate.
NOISIEST = 3.0


def coding_of(job: Job) -> Coding:
    """Return how a job codes gradients."""
    return Coding(
        code=job.scheme.partition(":")[2] or job.code,
        stragglers=job.stragglers,
        helpers=job.helpers,
        first=job.first,
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
    most = learners - max(coding.stragglers or 0, 1)
    if isinstance(coding.first, int) and coding.first > most:
        raise ConfigError(
            f"first = {coding.first} of {learners} learners, of whom some are to help: "
            f"give 1 to {most}"
        )
    law, gamma = state_law(job, workload_of(job, task.model, task.data))
    options: dict[str, Any] = {
        "model": task.model,
        "samples": task.taken.train,
        "loss": loss_of(task.training),
        "seed": job.seed,
        "noise": job.noise,
        "straggling": straggling_of(job),
    }
    if job.transmission is None:
        crew = SimulatedWorkers(
            names_of(job), law.expected(gamma), channels=job.channels, **options
        )
    else:
        crew = powered(job, job.transmission, law.expected(gamma), task, options)
    return Prepared(job, task, crew, Coded(task, crew, coding))


def powered(
    job: Job,
    transmission: TransmissionTable,
    law: DelayLaw,
    task: ScheduledTask,
    options: dict[str, Any],
) -> PoweredWorkers:
    """Return simulated workers with batteries; ConfigError if those are too small."""
    names, power = names_of(job), transmission.power()
    answer_s = law.fixed_s / 2
    share_s = law.step_s * task.cycle_samples(None) / len(names)
    setting = power.setting(
        answer_s=answer_s,
        share_s=share_s,
        channels=job.channels or len(names),
        faster=exp(NOISIEST * job.noise),
    )
    rng = np.random.default_rng([job.seed, Stream.TRANSMISSION])
    radios = Radios(power, setting, power.unit_s(answer_s, share_s), rng)
    return PoweredWorkers(names, law, radios=radios, **options)


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Train with the learners that joined."""
    (live_task,) = tasks
    crew: LiveWorkers
    options: dict[str, Any] = {
        "seed": job.seed,
        "straggling": straggling_of(job),
        "began_s": live_task.began_s,
    }
    if services:
        (air,) = services
        options |= {"air": air, "samples": live_task.task.cycle_samples(None)}
        crew = LivePoweredWorkers(roster, live_task.served, **options)
    else:
        crew = LiveWorkers(roster, live_task.served, **options)
    algorithm = Coded(live_task.task, crew, coding_of(job))
    await train(
        live_task.task, crew, algorithm, live_task.run, patient=True, control=control
    )


def services(job: Job) -> list[object]:
    """Return what learners may call beside the model server: the channels' keeper."""
    if job.transmission is None:
        return []
    return [AirServer(job.name, job.transmission.power(), job.channels)]
