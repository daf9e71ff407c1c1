"""Keys of a job that only one task whose updates are averaged can have."""

import math

from melisma.errors import ConfigError
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS
from melisma.jobs.energy_table import Per
from melisma.jobs.schema import Job, tasks_of
from melisma.learning.settings import Correction, Late, Rule
from melisma.schemes import DECENTRALISED, FIXED, SPENDING, TAKES_FIRST
from melisma.schemes.participation import enough
from melisma.system.law import Mode


def check_averaged(job: Job, *, averages: bool, live: bool = False) -> None:
    """Raise ConfigError for keys that a job cannot have; ``averages``: it is such."""
    _check_fixed(job)
    _check_auto(job, averages=averages)
    if job.late == Late.CARRY and (job.channel.changing or not averages):
        raise ConfigError(
            "late = 'carry' is for one task whose updates are averaged, in a cell that "
            "does not change: give 'halt', 'drop' or 'wait'"
        )
    _check_correction(job, averages=averages)
    _check_participation(job, averages=averages)
    _check_wire(job, averages=averages)
    _check_spending(job, averages=averages)
    _check_submodels(job, averages=averages, live=live)
    if job.learners_at_most is not None and not averages:
        raise ConfigError(
            "learners_at_most is for one task whose updates are averaged: leave it out"
        )


def _check_fixed(job: Job) -> None:
    """Raise ConfigError for what plans work where it is fixed, and the other way."""
    if job.scheme not in FIXED:
        if job.batches is not None and job.scheme not in ASYNCHRONOUS:
            raise ConfigError(
                f"batches under {job.scheme!r}, which decides how much work there is: "
                "leave it out, or use 'fedavg' or an 'async:' scheme"
            )
        return
    planned = {
        "late_at_most": job.late_at_most is not None,
        "deadline = 'auto'": job.deadline.is_auto,
        "late = 'carry'": job.late == Late.CARRY,
        "learners_at_most": job.learners_at_most is not None,
    }
    if keys := [key for key, given in planned.items() if given]:
        raise ConfigError(
            f"{', '.join(keys)} under {job.scheme!r}, whose work is the same whatever "
            "the deadline: leave it out, or use 'csa'"
        )


def _check_auto(job: Job, *, averages: bool) -> None:
    """Raise ConfigError if the run cannot choose its deadline."""
    if all(not task.deadline.is_auto for task in tasks_of(job)):
        return
    if not averages or job.scheme in DECENTRALISED:
        raise ConfigError(
            f"deadline = 'auto' under {job.scheme!r}: a run chooses it for one task "
            "whose work it allocates and whose updates are averaged (scheme 'csa'): "
            "give a time"
        )


def _check_correction(job: Job, *, averages: bool) -> None:
    """Raise ConfigError if gradients cannot be corrected."""
    corrections = {task.aggregation.correction for task in tasks_of(job)}
    if corrections == {Correction.NONE}:
        return
    allocates = averages and job.scheme not in DECENTRALISED
    if not allocates or job.mode != Mode.FEDERATED or job.late == Late.CARRY:
        raise ConfigError(
            "[aggregation] correction is for one task whose work is allocated and "
            "whose updates are averaged (scheme 'csa'), of data that lies on learners "
            "(mode 'federated'), and not with late = 'carry': leave it out"
        )


def _check_participation(job: Job, *, averages: bool) -> None:
    """Raise ConfigError if it cannot be chosen who takes part."""
    rule, learners = job.participation.rule, job.participation.learners
    if learners is None:
        return
    if not averages:
        raise ConfigError(
            "[participation] is for one task whose updates are averaged: leave it out"
        )
    if job.late == Late.CARRY and enough(rule, learners) is not None:
        raise ConfigError(
            f"[participation] rule = {rule.value!r} ends cycles early, and late = "
            "'carry' lets learners go on: give another of either"
        )


def _check_wire(job: Job, *, averages: bool) -> None:
    """Raise ConfigError if what travels cannot be made smaller."""
    if job.options and not job.wire.is_plain:
        raise ConfigError(
            "[wire] is how all learners take part, and [[options]] is what each may "
            "choose from: leave one of them out"
        )
    if len({option.name for option in job.options}) < len(job.options):
        raise ConfigError("[[options]] has one twice: leave it out")
    if job.wire.is_plain and not job.options:
        return
    what = "[[options]]" if job.options else "[wire]"
    if not averages and job.scheme not in ASYNCHRONOUS:
        raise ConfigError(
            f"{what} is for one task whose updates are averaged: leave it out"
        )
    if job.options and (not averages or job.late == Late.CARRY):
        raise ConfigError(
            "[[options]] is for one task whose updates are averaged in cycles, and not "
            "with late = 'carry': leave it out, or give one [wire] for all"
        )
    if job.checks:
        raise ConfigError(
            f"checks repeat a learner's work and compare every number, which {what} "
            "makes smaller: leave one of them out"
        )


def _check_spending(job: Job, *, averages: bool) -> None:
    """Raise ConfigError if what is spent cannot be planned by, or counted."""
    powered = [group.power is not None for group in job.learners]
    limits = [key for key in ("energy", "carbon") if getattr(job, key) is not None]
    limits += ["budget"] if job.budget is not None and not job.tasks else []
    if any(powered) and (not averages or job.late == Late.CARRY):
        raise ConfigError(
            "[learners.power] is for one task whose updates are averaged, and not with "
            "late = 'carry': leave it out"
        )
    if any(powered) != all(powered):
        k = powered.index(False)
        raise ConfigError(
            f"learners {job.learners[k].name!r} have no power, and others do: give it "
            "for all or for none"
        )
    if job.scheme in SPENDING and averages:
        _check_planned_by(job, limits, is_known=all(powered))
    elif set(limits) - {"budget"} or job.per != Per.CYCLE:
        raise ConfigError(
            f"{', '.join(limits) or 'per'} under {job.scheme!r}, which does not plan "
            f"by what is spent: use {' or '.join(sorted(SPENDING))}, or leave it out"
        )


def _check_planned_by(job: Job, limits: list[str], *, is_known: bool) -> None:
    if limits and not is_known:
        raise ConfigError(
            f"{', '.join(limits)} is given, and not what learners draw: give "
            "[learners.power]"
        )
    for key in limits:
        if not 0 < getattr(job, key) < math.inf:
            raise ConfigError(f"{key} is {getattr(job, key)}: give a number above 0")
    if job.deadline.is_auto or job.learners_at_most is not None:
        raise ConfigError(
            f"deadline = 'auto' and learners_at_most are not for {job.scheme!r}: leave "
            "them out"
        )


def _check_submodels(job: Job, *, averages: bool, live: bool) -> None:
    """Raise ConfigError if learners cannot train parts of the model."""
    listed = any(option.submodel is not None for option in job.options)
    if job.coverage is not None:
        _check_coverage(job, listed=listed)
    if all(group.submodel is None for group in job.learners) and not listed:
        return
    table = job.aggregation
    if not averages or job.scheme in ASYNCHRONOUS or job.late == Late.CARRY:
        raise ConfigError(
            "submodel is for one task whose updates are averaged in cycles, and not "
            "with late = 'carry': leave it out"
        )
    if job.options and any(group.submodel is not None for group in job.learners):
        raise ConfigError(
            "submodel of [[learners]] is what they train in any case, and [[options]] "
            "is what each may choose from: give submodel in [[options]] alone"
        )
    if listed and job.options[0].submodel is not None:
        raise ConfigError(
            "the first of [[options]] has a submodel, and is the one that all others "
            "are beside: list one of the whole model first"
        )
    if live and job.scheme in DECENTRALISED:
        raise ConfigError(
            f"submodel under {job.scheme!r}, whose learners bid for the whole model: "
            "leave it out of a live run, or use 'csa'"
        )
    if job.checks:
        raise ConfigError(
            "checks repeat a learner's work on the whole model, and submodel trains a "
            "part of it: leave one of them out"
        )
    if table.rule != Rule.MEAN:
        raise ConfigError(
            "submodel with [aggregation] rule, which compares updates of the same "
            "parameters: leave one of them out"
        )
    if table.correction != Correction.NONE:
        raise ConfigError(
            "submodel with [aggregation] correction, which is of the whole model: "
            "leave one of them out"
        )
    if job.channel.changing:
        raise ConfigError(
            "submodel in a cell whose channels change: leave out one of them"
        )


def _check_coverage(job: Job, *, listed: bool) -> None:
    """Raise ConfigError if there is no least share of samples, or no use for it."""
    if not listed or job.scheme in TAKES_FIRST:
        raise ConfigError(
            "coverage is for [[options]] of which some have a submodel, under a scheme "
            "that chooses of them ('csa-options'): leave it out"
        )
    if not 0 <= (job.coverage or 0.0) <= 1:
        raise ConfigError(f"coverage = {job.coverage}: give a share from 0 to 1")
