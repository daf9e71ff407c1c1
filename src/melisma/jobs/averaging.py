"""Averaging from a job: simulated and live."""

from dataclasses import replace
from functools import partial

import numpy as np

from melisma.algorithms.allocating import allocate
from melisma.algorithms.auto import Auto
from melisma.algorithms.averaging import Averaging, Planner
from melisma.algorithms.carrying import Carrying
from melisma.algorithms.control import Control
from melisma.algorithms.controls import MOST, Controls
from melisma.algorithms.loop import train
from melisma.algorithms.merging import Merger
from melisma.algorithms.participating import Participation
from melisma.algorithms.spending import Spender
from melisma.algorithms.standins import StandIns
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import ConfigError
from melisma.fleets.carrying import CarryingLearners
from melisma.fleets.protocols import Carries, EndsEarly, Trains
from melisma.fleets.roster import Roster
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.jobs.building import (
    Prepared,
    cell_of,
    known_law,
    merging_of,
    own_rows,
    task_on,
    workload_of,
)
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, names_of
from melisma.jobs.spending import spender_of, spot_of
from melisma.jobs.ways import ways_of
from melisma.learning.servers import server_for
from melisma.learning.settings import HERE, Correction, Hardware, Late
from melisma.maths.arrays import Bools
from melisma.schemes import AS_PRINTED, DECENTRALISED
from melisma.schemes.participation import TakesPart
from melisma.system.law import Mode
from melisma.system.promise import Promises


def simulated(job: Job, hardware: Hardware = HERE) -> Prepared:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    task, learners = learners_of(job, hardware)
    promises = promises_of(job)
    spender = spender_of(job, task.model, task.data, promises)

    async def of_those_there(
        task: ScheduledTask,
        crew: Trains,
        cycle: int,
        *,
        only_able: bool,
        among: Bools | None = None,
    ) -> Plan:
        """Allocate where learners come and go: who cannot take part sits out."""
        plan = spender or partial(allocate, promises=promises)
        on_air = learners.on_air()
        return await plan(task, crew, cycle, only_able=True, on_air=on_air, among=among)

    planner: Planner = of_those_there
    if not job.channel.changing and spot_of(job) is None:
        planner = planner_of(job, promises, spender)
    merger = merger_of(job)
    algorithm = _averaging(job, learners, planner, promises, merger, spender)
    return Prepared(job, task, learners, algorithm)


def promises_of(job: Job) -> Promises | None:
    """Return what limits lateness, where the job asks for it."""
    return None if job.late_at_most is None else Promises(job.late_at_most)


def planner_of(
    job: Job, promises: Promises | None, spender: Spender | None = None
) -> Planner:
    """Return what plans the job's cycles."""
    if job.late == Late.CARRY:
        return Carrying(promises)
    return spender or partial(allocate, promises=promises)


def auto_of(job: Job) -> Auto | None:
    """Return what chooses deadlines, where the job leaves them to the run."""
    return Auto(job.seed) if job.deadline.is_auto else None


def merger_of(job: Job, *, live: bool = False) -> Merger:
    """Return what makes one model of updates; real learners may lie.

    Where data lies on learners, those that are at work are stood in for.
    """
    carries = job.late == Late.CARRY and job.mode == Mode.FEDERATED
    stand_ins = StandIns(job.staleness_at_most) if carries else None
    merging = merging_of(job)
    corrects = merging.correction == Correction.SCAFFOLD
    controls = Controls(MOST if live else None) if corrects else None
    return Merger(server_for(merging), stand_ins, controls)


def averaging_of(job: Job, crew: Trains, task: ScheduledTask) -> Averaging:
    """Return the algorithm of a job whose learners are real.

    Raises ConfigError where these cannot go on after the deadline.
    """
    if job.late == Late.CARRY and not isinstance(crew, Carries):
        raise ConfigError(
            "late = 'carry' is for learners that join a server: give 'halt', 'drop' "
            "or 'wait'"
        )
    promises = promises_of(job)
    merger = merger_of(job, live=True)
    spender = spender_of(job, task.model, task.data, promises)
    planner = planner_of(job, promises, spender)
    return _averaging(job, crew, planner, promises, merger, spender)


def _averaging(
    job: Job,
    crew: Trains,
    planner: Planner,
    promises: Promises | None,
    merger: Merger,
    spender: Spender | None = None,
) -> Averaging:
    participation = participation_of(job)
    if participation and participation.enough is not None:
        if not isinstance(crew, EndsEarly):
            raise ConfigError(
                f"[participation] rule = {job.participation.rule.value!r} ends cycles "
                "at so many updates, which these learners cannot: give another"
            )
        crew.enough = participation.enough
    auto = auto_of(job)
    return Averaging(crew, planner, promises, auto, merger, participation, spender)


def participation_of(job: Job) -> Participation | None:
    """Return who takes part, where that is not everybody."""
    table = job.participation
    if table.rule == TakesPart.ALL:
        return None
    assert table.learners is not None  # the table has seen to it
    return Participation(table.rule, table.learners, over=table.over, seed=job.seed)


def learners_of(
    job: Job, hardware: Hardware
) -> tuple[ScheduledTask, SimulatedLearners]:
    """Return one task and its simulated learners."""
    task = task_on(hardware, job)
    ways = ways_of(job, task)
    task = replace(task, options=ways.choice, fixed_ways=ways.told)
    names, workload = names_of(job), workload_of(job, task.model, task.data)
    if cell := cell_of(job, workload):
        true = known = cell.law(1, 0.0, np.arange(len(names)))
        gamma = np.ones((len(names), 1))
    else:
        true, known, gamma = known_law(job, workload)
        true, known = (ways.law(law, names) for law in (true, known))
    is_uncertain = gamma.shape[1] > 1
    kind = CarryingLearners if job.late == Late.CARRY else SimulatedLearners
    crew = kind(
        names,
        true if is_uncertain or cell else true.expected(gamma),
        known=known if is_uncertain or cell else known.expected(gamma),
        model=task.model,
        samples=task.taken.train,
        training=task.training,
        seed=job.seed,
        conditions=Conditions(
            probability=gamma if is_uncertain else None,
            changing=job.changing if is_uncertain else 0.0,
            noise=job.noise,
            late=job.late,
            look_every=job.look_every,
            staleness_at_most=job.staleness_at_most,
            adaptive=job.scheme in DECENTRALISED - AS_PRINTED,
            late_at_most=job.late_at_most if job.scheme in DECENTRALISED else None,
            spot=spot_of(job),
        ),
        own_rows=own_rows(job, task.data),
        hardware=hardware,
        cell=cell,
        ways=ways,
    )
    task.cycle_samples(crew.own_samples)  # asking for too many samples fails here
    return task, crew


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Train with the learners that joined."""
    (live_task,) = tasks
    crew = live_task.learners(roster, live_task.began_s)
    algorithm = averaging_of(job, crew, live_task.task)
    await train(
        live_task.task, crew, algorithm, live_task.run, patient=True, control=control
    )


def services(job: Job) -> list[object]:
    """Return what learners may call beside the model server: nothing."""
    return []
