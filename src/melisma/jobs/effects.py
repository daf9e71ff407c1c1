"""Keys of a job file that change nothing under its scheme: refused, not ignored.

Only where the job's own scheme is run. A comparison runs one job under many, and each
takes of it what it needs.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from melisma.errors import ConfigError
from melisma.jobs.asynchronous_checks import ASYNC
from melisma.jobs.data_table import Split
from melisma.jobs.families import CODED, FOG, family_of
from melisma.jobs.schema import Job
from melisma.learning.settings import Late, Rule, Schedule
from melisma.schemes import DECENTRALISED, SPENDING, chooses_steps
from melisma.schemes.participation import TakesPart
from melisma.system.law import Mode


class Use(NamedTuple):
    """Who uses a key: all jobs of these families."""

    families: tuple[str, ...]
    who: str


_CODED = Use((CODED,), "'coded'")
#: Keys and tables that not all families have a use for.
USES = {
    "code": _CODED,
    "stragglers": _CODED,
    "helpers": _CODED,
    "first": _CODED,
    "channels": _CODED,
    "straggling": _CODED,
    "fog": Use((FOG,), "'fog'"),
    "aggregation": Use(("", "tasks", FOG, ASYNC), "'csa'"),  # coded sums are exact
    "least": Use(("", "tasks"), "'csa'"),
    "most": Use(("",), "'csa'"),
    "asynchronous": Use((ASYNC,), "'async:fedbuff'"),
}


def check_effects(job: Job) -> None:
    """Raise ConfigError for a key that has no effect, and say who would use it."""
    usual, family = Job(), family_of(job).name
    for key, use in USES.items():
        if family not in use.families and getattr(job, key) != getattr(usual, key):
            raise _unused(job, key, use.who)
    if family == "" and job.scheme in DECENTRALISED and job.samples is not None:
        raise _unused(
            job,
            "samples",
            "'csa'",
            " (each learner takes what it can; most limits that)",
        )
    chooses = family == "" and chooses_steps(job.scheme)
    if job.epochs_at_most != usual.epochs_at_most and not chooses:
        given = " (steps says how many epochs)" if family in ("", "tasks") else ""
        raise _unused(job, "epochs_at_most", "'csa'", given)
    if job.staleness_at_most != usual.staleness_at_most and job.late != Late.CARRY:
        raise _unused(job, "staleness_at_most", "late = 'carry'")
    if job.look_every != usual.look_every and job.late != Late.OVERRUN:
        raise _unused(job, "look_every", "late = 'overrun'")
    for key, who in _within_tables(job):
        if attrgetter(key)(job) != attrgetter(key)(usual):
            raise ConfigError(f"{key} has no effect: leave it out, or give {who}")
    stated = any(group.states for group in job.learners)
    if job.changing != usual.changing and not stated:
        raise _unused(job, "changing", "[[learners]] with states")


def _within_tables(job: Job) -> Iterator[tuple[str, str]]:
    """Yield keys that another key of the job leaves without effect, and its value."""
    data, training = job.data, job.training
    if job.mode == Mode.PARALLEL:
        for key in ("split", "alpha", "classes"):
            yield f"data.{key}", "mode = 'federated', where data lies on learners"
    if data.split != Split.DIRICHLET:
        yield "data.alpha", "split = 'dirichlet'"
    if data.split != Split.LABELS:
        yield "data.classes", "split = 'labels'"
    if job.aggregation.rule != Rule.TRIMMED:
        yield "aggregation.trim", "rule = 'trimmed-mean'"
    if job.participation.rule != TakesPart.OVER_COMMIT:
        yield "participation.over", "rule = 'over-commit'"
    if training.schedule in (None, Schedule.CONSTANT) and job.task is None:
        yield "training.floor", "a schedule"
    if training.schedule != Schedule.EXPONENTIAL and job.task is None:
        yield "training.decay", "schedule = 'exponential'"
    if not job.tasks and job.scheme not in SPENDING:
        yield "budget", "several tasks, or scheme = 'energy-most'"


def _unused(job: Job, key: str, who: str, why: str = "") -> ConfigError:
    return ConfigError(
        f"{key} has no effect under {job.scheme!r}{why}: leave it out, or use {who}"
    )
