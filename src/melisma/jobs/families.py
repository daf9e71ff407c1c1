"""The table of families: every way to train is a row of it.

A job belongs to the family whose name its scheme begins with (`coded`, `fog`), to
`tasks` if it has several, and to averaging otherwise. A row says how a job is checked,
which module builds a run of it, and what its tables and pages show; no other code tells
families apart. The module is imported when a run is built, so that readers of finished
runs load neither torch nor the simulator.
"""

import difflib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from melisma.errors import ConfigError, unknown
from melisma.jobs.asynchronous_checks import (
    ASYNC,
    ASYNCHRONOUS,
    FEDASYNC,
    FEDBUFF,
    FEDCOMPASS,
    RINGLEADER,
    check_async,
)
from melisma.jobs.averaged import check_averaged
from melisma.jobs.benchmark_table import Known
from melisma.jobs.columns import COLUMNS, FOG_COLUMNS, Column
from melisma.jobs.fog_table import Moving
from melisma.jobs.schema import Job, tasks_of
from melisma.learning.settings import Weights
from melisma.schemes import FIXED, SCHEMES, find, summary
from melisma.system.law import Mode
from melisma.units import Deadline


def unchanged(job: Job) -> Job:
    """Return the job itself: its scheme's name implies no other setting."""
    return job


def nothing(job: Job) -> None:
    """Check nothing."""


class Family(NamedTuple):
    """A way to train."""

    name: str
    kind: str  #: of its pages and tables
    title: str
    needs: str  #: of the job file
    module: str  #: has ``simulated(job, hardware)`` and ``live(job, tasks, …)``
    schemes: Callable[[], Mapping[str, str]]  #: names, and what each does
    usual: tuple[str, ...]  #: schemes to compare if none are named
    check: Callable[[Job], None]  #: raises ConfigError
    columns: tuple[Column, ...] = COLUMNS
    as_meant: Callable[[Job], Job] = unchanged  #: what the scheme's name implies
    check_live: Callable[[Job], None] = nothing  #: raises for what is simulated only
    fixed: str = ""  #: why the deadline of a live run cannot be changed
    moves_data: bool = False  #: between devices
    staleness: str = "epochs"  #: what it is counted in
    exact: bool = False  #: learners compute in float32, whatever else they could
    simulated_only: str = ""  #: a scheme that needs to know the future
    cells: bool = False  #: learners may be in a cell whose channels change
    promises: tuple[str, ...] | None = ()  #: schemes that limit lateness; None: all

    def checked(self, job: Job, *, live: bool = False) -> Job:
        """Return the job with what its scheme implies written out, or ConfigError."""
        self.check(job)
        if job.transmission is not None and self.name != CODED:
            raise ConfigError("[transmission] is of coded training: leave it out")
        if (keys := job.channel.changing) and (live or not self.cells):
            raise ConfigError(
                f"{', '.join(keys)} of [channel] are simulated, for one task whose "
                "updates are averaged (scheme 'csa'): leave them out"
            )
        self._check_promise(job)
        check_averaged(job, averages=not self.name, live=live)
        if live:
            self.check_live(job)
        return self.as_meant(job)

    def _check_promise(self, job: Job) -> None:
        """Raise ConfigError if lateness cannot be limited under the job's scheme."""
        schemes = self.promises
        if job.late_at_most is None or schemes is None or job.scheme in schemes:
            return
        others = f"use {', '.join(schemes)}, or " if schemes else ""
        raise ConfigError(
            f"late_at_most under {job.scheme!r}, which does not plan by margins: "
            f"{others}leave it out"
        )

    @property
    def builder(self) -> Any:
        """The module that builds runs of this family."""
        return import_module(self.module)


def family_of(job: Job) -> Family:
    """Return the row of a job."""
    return FAMILIES["tasks"] if job.tasks else family_of_scheme(job.scheme)


def family_of_scheme(scheme: str) -> Family:
    """Return the row of a scheme of one task."""
    prefix = scheme.partition(":")[0]
    return FAMILIES[prefix if prefix in _PREFIXES else ""]


def is_priced(scheme: str) -> bool:
    """Return whether moving and processing data has a cost under a scheme."""
    family = family_of_scheme(scheme)
    return family.moves_data and scheme != family.simulated_only


def cycles_of(job: Job) -> int:
    """Return how many cycles a run of the job has, those of all tasks together."""
    job = family_of(job).as_meant(job)
    return sum(task.cycles for task in tasks_of(job))


def check_scheme(job: Job) -> None:
    """Raise ConfigError unless a job's scheme allocates one task."""
    if ":" in job.scheme and not _is_like_a_family(job.scheme):
        find(job.scheme)
    elif job.scheme not in SCHEMES and job.scheme not in FIXED:
        every = [name for family in FAMILIES.values() for name in family.schemes()]
        raise unknown("scheme", job.scheme, every)


def _is_like_a_family(scheme: str) -> bool:
    """Return whether ``prefix:name`` looks like a misspelt family, not a module."""
    prefix = scheme.partition(":")[0]
    return bool(difflib.get_close_matches(prefix, _PREFIXES, n=1, cutoff=0.6))


def _check_planned_exactly(job: Job, what: str) -> None:
    """Raise ConfigError for what only averaging and several tasks can be planned by."""
    if job.overhead or job.benchmark.known != Known.TRUE:
        raise ConfigError(
            f"overhead and benchmark.known are not for {what}: leave them out"
        )


CODED = "coded"


_CODED = {
    "coded": "The code that the job names as `code`.",
    "coded:uncoded": "Disjoint parts by speed: waits for every learner.",
    "coded:fractional": "Groups of learners, each covering all data, by speed.",
    "coded:cyclic": "Neighbouring parts on a ring, the same for every learner.",
    "coded:hetero": "Parts on a ring, by speed.",
    "coded:two-stage": "Disjoint parts by speed; a code for what is late.",
}


def coded_schemes() -> Mapping[str, str]:
    """Return the job's own code, and `coded:NAME` for each."""
    return _CODED


def check_coded(job: Job) -> None:
    """Raise ConfigError for what coded training cannot do."""
    if job.scheme not in (names := coded_schemes()):
        raise unknown("scheme", job.scheme, names)
    if job.mode != Mode.PARALLEL:
        raise ConfigError("coded training needs mode 'parallel': shards have copies")
    _check_planned_exactly(job, "coded training")
    if job.training.proximal:
        raise ConfigError(
            "proximal pulls local steps back to the model, and coded workers take "
            "none: leave it out"
        )
    if job.stragglers is not None and job.stragglers < 0:
        raise ConfigError(f"stragglers = {job.stragglers}: give 0 or more")
    if isinstance(job.first, int) and job.first < 1:
        raise ConfigError(f"first = {job.first}: give at least 1, who start a cycle")
    if job.first != "chosen" and job.helpers == "finished":
        raise ConfigError(
            f"first = {job.first!r} with helpers = 'finished', where everybody starts: "
            "give helpers = 'ring' or 'reserved' as well"
        )


def check_coded_live(job: Job) -> None:
    """Raise ConfigError for what is simulated only."""
    if job.channels is not None and job.transmission is None:
        raise ConfigError(
            f"channels = {job.channels}: shared channels are only simulated, a live "
            "run uses the real network: leave it out, or give [transmission]"
        )


FOG, FEDERATED, CENTRAL = "fog", "fog:federated", "fog:central"
_FOG = {
    "fog": "The plan that the job names as `fog.plan`.",
    "fog:alone": "Moves no data.",
    "fog:known": "The best plan, all slots known beforehand.",
    "fog:windows": "Plans by the averages of the window before.",
    "fog:rolling": "Plans anew in each slot, by the averages so far.",
    "fog:federated": "Moves no data, and averages models after every slot.",
    "fog:central": "One device trains on all data: a yardstick of what can be learned.",
}


def fog_schemes() -> Mapping[str, str]:
    """Return the job's own plan, `fog:PLAN` for each, and two yardsticks."""
    return _FOG


def check_fog(job: Job) -> None:
    """Raise ConfigError for what a fog cannot do."""
    if job.scheme not in (names := fog_schemes()):
        raise unknown("scheme", job.scheme, names)
    if job.mode != Mode.FEDERATED:
        raise ConfigError(
            f"mode = {job.mode.value!r}: devices of a fog collect data themselves: "
            "give mode = 'federated'"
        )
    _check_planned_exactly(job, "a fog")
    if job.aggregation.weights in (Weights.DATA, Weights.FEDNOVA):
        raise ConfigError(
            f"[aggregation] weights = {job.aggregation.weights.value!r} is of data "
            "that stays on its learner, and a fog moves it: give 'samples' or "
            "'learners'"
        )
    if job.checks:
        raise ConfigError(
            "checks redo work, and the data of a fog stays on its devices: use "
            "checks = 0"
        )
    if job.cycles * job.fog.period < (job.fog.windows or 1):
        raise ConfigError(
            f"fog.windows = {job.fog.windows} of {job.cycles * job.fog.period} slots: "
            "give fewer"
        )
    if job.fog.is_traced:
        from melisma.fog import traces  # and scipy, which readers of runs do without

        traces.read(Path(job.fog.costs))


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
        deadline=Deadline(float(job.deadline) / fog.period),
        fog=msgspec.structs.replace(fog, period=1),
    )


def _check_async(job: Job) -> None:
    _check_planned_exactly(job, "asynchronous training")
    check_async(job)


#: Schemes for several tasks.
TASKS = {
    "med": "Assigns learners to tasks by the delays expected over their states.",
    "mmtt": "As med, by the delays of the state in which each was benchmarked.",
    "mmtt-ideal": "As med, by the delays of the states to come: a yardstick.",
    "med-probe": "As med; each cycle is split anew by what its first batches took.",
    "med-learned": "As mmtt at first, then by the mean of what past cycles took.",
    "rmed": "As med, by the expected largest delay and a price on untrained data.",
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
    foreseeable = job.benchmark.known == Known.MEASURED
    if job.scheme == FAMILIES["tasks"].simulated_only and not foreseeable:
        raise ConfigError(
            "'mmtt-ideal' needs to know the learners' next states, which a live run "
            "does of emulated owners that were measured alone: give benchmark.known = "
            "'measured', simulate it, or use 'med-probe'"
        )


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="",
            kind="single",
            title="Averaged updates (docs/schemes.md)",
            needs="one task",
            module="melisma.jobs.averaging",
            schemes=lambda: {name: summary(name) for name in SCHEMES} | FIXED,
            usual=("csa", "eta", "sync", "dab"),
            check=check_scheme,
            cells=True,
            promises=None,
        ),
        Family(
            name=CODED,
            kind="coded",
            title="Coded gradients (docs/coding.md)",
            needs='mode = "parallel"',
            module="melisma.jobs.coded",
            schemes=coded_schemes,
            usual=("coded:two-stage", "coded:hetero", "coded:cyclic", "coded:uncoded"),
            check=check_coded,
            check_live=check_coded_live,
            exact=True,
        ),
        Family(
            name=FOG,
            kind="fog",
            title="Data moved in a fog (docs/fog.md)",
            needs='mode = "federated"',
            module="melisma.jobs.fog",
            schemes=fog_schemes,
            usual=("fog:alone", "fog:windows", "fog:rolling", "fog:known"),
            check=check_fog,
            check_live=check_fog_live,
            as_meant=fog_as_meant,
            columns=FOG_COLUMNS,
            fixed="data is moved by a plan for slots of this length: begin another run",
            moves_data=True,
            simulated_only=CENTRAL,
        ),
        Family(
            name=ASYNC,
            kind="single",
            title="Asynchronous (docs/asynchronous.md)",
            needs="one task",
            module="melisma.jobs.asynchronous",
            schemes=lambda: ASYNCHRONOUS,
            usual=(FEDASYNC, FEDBUFF, FEDCOMPASS, RINGLEADER),
            check=_check_async,
            fixed="nobody waits for a deadline: begin another run",
            staleness="versions",
        ),
        Family(
            name="tasks",
            kind="tasks",
            title="Several tasks (docs/multitask.md)",
            needs='[[tasks]] tables, mode = "parallel"',
            module="melisma.jobs.multitask",
            schemes=lambda: TASKS,
            usual=("med", "mmtt", "med-probe", "mmtt-ideal"),
            check=check_tasks,
            check_live=check_tasks_live,
            fixed="learners are chosen by the tasks' deadlines: begin another run",
            simulated_only="mmtt-ideal",
            promises=("med", "mmtt", "mmtt-ideal", "med-learned"),
        ),
    )
}

#: What a scheme's name may begin with.
_PREFIXES = (CODED, FOG, ASYNC)
