"""The table of families: every way to train is a row of it.

A job belongs to the family whose name its scheme begins with (`coded`, `fog`), to
`tasks` if it has several, and to averaging otherwise. A row says how a job is checked,
what builds a run of it, and what its tables and pages show; nothing else tells families
apart. What builds is imported when it is asked for, so that readers of finished runs
load neither torch nor the simulator.
"""

import difflib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from melisma.coding import CODES
from melisma.errors import ConfigError, unknown
from melisma.jobs.columns import COLUMNS, FOG_COLUMNS, Column
from melisma.jobs.schema import Job, Moving, tasks_of
from melisma.learning.settings import Optimiser
from melisma.schemes import SCHEMES, find, summary
from melisma.system.law import Mode
from melisma.units import Seconds


def unchanged(job: Job) -> Job:
    """Return the job: its scheme's name says nothing more than the scheme."""
    return job


def nothing(job: Job) -> None:
    """Check nothing."""


class Family(NamedTuple):
    """A way to train."""

    name: str
    kind: str  #: of its pages and tables
    title: str
    needs: str  #: what a scheme of it decides by
    module: str  #: has ``simulated(job, hardware)`` and ``live(job, tasks, …)``
    schemes: Callable[[], Mapping[str, str]]  #: names, and what each does
    usual: tuple[str, ...]  #: schemes to compare if none are named
    check: Callable[[Job], None]  #: raises ConfigError
    columns: tuple[Column, ...] = COLUMNS
    as_meant: Callable[[Job], Job] = unchanged  #: what the scheme's name implies
    check_live: Callable[[Job], None] = nothing  #: for what is simulated only
    fixed: str = ""  #: why the deadline of a live run cannot be changed
    moves_data: bool = False  #: between devices

    def checked(self, job: Job, *, live: bool = False) -> Job:
        """Return the job with what its scheme implies written out, or ConfigError."""
        self.check(job)
        if live:
            self.check_live(job)
        return self.as_meant(job)

    @property
    def builder(self) -> Any:
        """The module that builds runs of this family."""
        return import_module(self.module)


def family_of(job: Job) -> Family:
    """Return the row of a job."""
    return FAMILIES["tasks"] if job.task else family_of_scheme(job.scheme)


def family_of_scheme(scheme: str) -> Family:
    """Return the row of a scheme of one task."""
    prefix = scheme.partition(":")[0]
    return FAMILIES[prefix if prefix in _PREFIXES else ""]


def cycles_of(job: Job) -> int:
    """Return how many cycles a run of the job has, those of all tasks together."""
    job = family_of(job).as_meant(job)
    return sum(task.cycles for task in tasks_of(job))


def check_scheme(job: Job) -> None:
    """Raise ConfigError unless a job's scheme allocates one task."""
    if ":" in job.scheme and not _is_like_a_family(job.scheme):
        find(job.scheme)
    elif job.scheme not in SCHEMES:
        every = [name for family in FAMILIES.values() for name in family.schemes()]
        raise unknown("scheme", job.scheme, every)


def _is_like_a_family(scheme: str) -> bool:
    """Whether ``prefix:name`` is rather a family misspelt than a module."""
    prefix = scheme.partition(":")[0]
    return bool(difflib.get_close_matches(prefix, _PREFIXES, n=1, cutoff=0.6))


CODED = "coded"


_CODES = {
    "uncoded": "every partition on one worker: waits for all of them",
    "fractional": "groups of workers hold the same partitions",
    "cyclic": "each worker holds s + 1 neighbouring partitions",
    "hetero": "partitions by the workers' speeds, any s may be missing",
    "two-stage": "codes only what is still missing when the first stage ends",
}


def coded_schemes() -> dict[str, str]:
    """`coded` by the job's own code, `coded:NAME` by another."""
    named = {f"{CODED}:{code}": f"exact gradients by the {code} code" for code in CODES}
    return {CODED: "exact gradients by the job's code, whoever straggles"} | named


def check_coded(job: Job) -> None:
    """Raise ConfigError for what coded training cannot do."""
    if job.scheme not in (names := coded_schemes()):
        raise unknown("scheme", job.scheme, names)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("coded training needs mode 'parallel': shards have copies")
    if job.training.optimiser != Optimiser.SGD:
        raise ConfigError(
            f"coded training with {job.training.optimiser.value!r}: use 'sgd', with "
            "training.momentum if you like"
        )
    if job.stragglers is not None and job.stragglers < 0:
        raise ConfigError(f"stragglers = {job.stragglers}: give 0 or more")


def check_coded_live(job: Job) -> None:
    """Raise ConfigError for what is simulated only."""
    if job.channels is not None:
        raise ConfigError(
            f"channels = {job.channels}: shared channels are simulated, a live run has "
            "those that there are: leave it out"
        )


FOG, FEDERATED, CENTRAL = "fog", "fog:federated", "fog:central"
_PLANS = {
    Moving.ALONE: "every device trains on its own data",
    Moving.KNOWN: "the best plan, all slots known beforehand",
    Moving.WINDOWS: "by the averages of the window before",
    Moving.ROLLING: "anew in each slot, by the averages so far",
}


def fog_schemes() -> dict[str, str]:
    """`fog` by the job's own plan, `fog:PLAN` by another, and two yardsticks."""
    return {
        FOG: "data moves by the job's own plan",
        **{f"{FOG}:{plan.value}": what for plan, what in _PLANS.items()},
        FEDERATED: "nothing moves, and all average after every slot",
        CENTRAL: "one device trains on all data: a yardstick, without costs",
    }


def check_fog(job: Job) -> None:
    """Raise ConfigError for what a fog cannot do."""
    if job.scheme not in (names := fog_schemes()):
        raise unknown("scheme", job.scheme, names)
    if job.mode != Mode.FEDERATED:
        raise ConfigError(
            f"mode = {job.mode.value!r}: devices of a fog collect data themselves: "
            "give mode = 'federated'"
        )
    if job.training.optimiser != Optimiser.SGD:
        raise ConfigError(
            f"a fog with {job.training.optimiser.value!r}: use 'sgd', which needs no "
            "memory of the slots before"
        )
    if job.checks:
        raise ConfigError(
            "checks redo work, and data of a fog is elsewhere: use checks = 0"
        )
    if job.cycles * job.fog.period < (job.fog.windows or 1):
        raise ConfigError(
            f"fog.windows = {job.fog.windows} of {job.cycles * job.fog.period} slots: "
            "give fewer"
        )


def check_fog_live(job: Job) -> None:
    """Raise ConfigError for what is simulated only."""
    if job.scheme == CENTRAL:
        raise ConfigError(f"{CENTRAL!r} is simulated: live devices move data or do not")


def fog_as_meant(job: Job) -> Job:
    """Return a fog job with everything that its scheme's name says written out."""
    plan = job.scheme.partition(":")[2]
    is_yardstick = job.scheme in (FEDERATED, CENTRAL)
    if is_yardstick:
        plan = Moving.ALONE.value
    fog = job.fog
    if plan:
        fog = msgspec.structs.replace(fog, plan=Moving(plan))
    if not is_yardstick:
        return msgspec.structs.replace(job, fog=fog)
    fog = msgspec.structs.replace(fog, capacities=False)
    if job.scheme == CENTRAL:
        return msgspec.structs.replace(job, fog=fog)
    return msgspec.structs.replace(
        job,
        cycles=job.cycles * fog.period,
        deadline=Seconds(float(job.deadline) / fog.period),
        fog=msgspec.structs.replace(fog, period=1),
    )


#: Schemes for several tasks.
TASKS = {
    "med": "least total time by the expected delays of uncertain learners",
    "mmtt": "the same by one benchmark of each learner",
    "mmtt-ideal": "the same by the states that learners will be in: a yardstick",
    "med-probe": "by MED, split anew by a few batches at the start of each cycle",
    "med-learned": "by what was seen of the learners in earlier cycles",
    "rmed": "by MED, robust to the spread of the delays",
}


def check_tasks(job: Job) -> None:
    """Raise ConfigError for several tasks that cannot be run together."""
    if job.scheme not in TASKS:
        raise unknown("scheme for several tasks", job.scheme, TASKS)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("several tasks need mode 'parallel': their shards are sent")
    jobs = tasks_of(job)
    if len({task.name for task in jobs}) < len(jobs):
        raise ConfigError("two tasks have the same name: give each its own")


def check_tasks_live(job: Job) -> None:
    """Raise ConfigError for a scheme that needs to know the future."""
    if job.scheme == "mmtt-ideal":
        raise ConfigError(
            "'mmtt-ideal' knows the states that learners will be in, which live nobody "
            "does: simulate it, or use 'med-probe'"
        )


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="",
            kind="single",
            title="averaging",
            needs="the delay law of each learner",
            module="melisma.jobs.averaging",
            schemes=lambda: {name: summary(name) for name in SCHEMES},
            usual=("csa", "eta", "sync", "dab"),
            check=check_scheme,
        ),
        Family(
            name=CODED,
            kind="coded",
            title="coded",
            needs="speeds of the workers, mode 'parallel', optimiser 'sgd'",
            module="melisma.jobs.coded",
            schemes=coded_schemes,
            usual=("coded:two-stage", "coded:hetero", "coded:cyclic", "coded:uncoded"),
            check=check_coded,
            check_live=check_coded_live,
        ),
        Family(
            name=FOG,
            kind="fog",
            title="fog",
            needs="data on the devices (mode 'federated'), [fog]",
            module="melisma.jobs.fog",
            schemes=fog_schemes,
            usual=("fog:alone", "fog:windows", "fog:rolling", "fog:known"),
            check=check_fog,
            check_live=check_fog_live,
            as_meant=fog_as_meant,
            columns=FOG_COLUMNS,
            fixed="data is moved by a plan for slots of this length: begin another run",
            moves_data=True,
        ),
        Family(
            name="tasks",
            kind="tasks",
            title="multi-task",
            needs="several [[task]] tables, mode 'parallel'",
            module="melisma.jobs.multitask",
            schemes=lambda: TASKS,
            usual=("med", "mmtt", "med-probe", "mmtt-ideal"),
            check=check_tasks,
            check_live=check_tasks_live,
            fixed="learners are chosen by the tasks' deadlines: begin another run",
        ),
    )
}

#: What a scheme's name may begin with.
_PREFIXES = (CODED, FOG)
