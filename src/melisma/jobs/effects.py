"""Keys of a job file that change nothing under its scheme: refused, not ignored.

Only where the job's own scheme is run. A comparison runs one job under many, and each
takes of it what it needs.
"""

from typing import NamedTuple

from melisma.errors import ConfigError
from melisma.jobs.asynchronous_checks import ASYNC
from melisma.jobs.families import CODED, FOG, family_of
from melisma.jobs.schema import Job
from melisma.learning.settings import Late
from melisma.schemes import DECENTRALISED, chooses_steps


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
    stated = any(group.states for group in job.learners)
    if job.changing != usual.changing and not stated:
        raise _unused(job, "changing", "[[learners]] with states")


def _unused(job: Job, key: str, who: str, why: str = "") -> ConfigError:
    return ConfigError(
        f"{key} has no effect under {job.scheme!r}{why}: leave it out, or use {who}"
    )
