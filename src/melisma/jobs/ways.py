"""How the learners of a job take part: each in one way, or by a scheme's choice."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from melisma.algorithms.task import ScheduledTask
from melisma.fleets.ways import Ways
from melisma.jobs.options import transfers_of, wire_of
from melisma.jobs.schema import Job, names_of
from melisma.learning.models import model_bytes
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.submodels import Part, submodel_of
from melisma.learning.submodels.blocks import blocks_of
from melisma.learning.submodels.making import Made
from melisma.learning.way import Way
from melisma.learning.wire import Wire
from melisma.learning.worth import worths
from melisma.maths.arrays import Floats
from melisma.schemes import TAKES_FIRST
from melisma.system.options import Options

#: Least share of a cycle's samples that train each parameter, where some options are
#: of a part of the model, unless the job says.
COVERAGE = 0.1


def ways_of(job: Job, task: ScheduledTask) -> Ways:
    """Return all ways of taking part, with what each costs and is worth.

    Sizes are those by which cycles are planned. Values that the job does not give are
    measured on the model as it was made, so that a resumed run finds the same.
    ConfigError where the model has no such part.
    """
    if job.options and job.scheme not in TAKES_FIRST:
        return _chosen(job, task)
    for option in job.options:  # of which the first is taken; all are to be right
        if option.submodel is not None:
            submodel_of(option.submodel)
    wire = wire_of(job)
    written = sorted({g.submodel for g in job.learners if g.submodel is not None})
    if not written:
        return Ways(each=(Way(wire),))
    made = Made(written, task.model, task.data.train, task.training)
    each = (Way(wire), *(Way(wire, made.parts[name]) for name in written))
    groups = [group for group in job.learners for _ in range(group.count)]
    return Ways(
        each=each,
        options=_options(job, task, each, made, np.ones(len(each))),
        fixed={
            name: 1 + written.index(group.submodel)
            for name, group in zip(names_of(job), groups, strict=True)
            if group.submodel is not None
        },
    )


def _chosen(job: Job, task: ScheduledTask) -> Ways:
    """Return the options that a job lists."""
    written = [o.submodel for o in job.options if o.submodel is not None]
    made = Made(written, task.model, task.data.train, task.training)
    parts: dict[str | None, Part | None] = {None: None}
    parts.update(made.parts)
    each = tuple(
        Way(Wire.of(option.down, option.up), parts[option.submodel])
        for option in job.options
    )
    value = np.array(_values(job, task, each))
    options = _options(job, task, each, made, value)
    if written:
        moving = trained(task.model)
        blocks = blocks_of([way.part for way in each], moving)
        rho = COVERAGE if job.coverage is None else job.coverage
        options = replace(options, blocks=blocks.astype(float), least_coverage=rho)
    return Ways(each=each, options=options)


def _values(job: Job, task: ScheduledTask, ways: Sequence[Way]) -> list[float]:
    """Return the options' values: given, or measured."""
    given = [option.value for option in job.options]
    if None not in given:
        return [value or 0.0 for value in given]
    found = worths(ways, task.model, task.taken.train, task.training, job.seed)
    return [w if v is None else v for v, w in zip(given, found, strict=True)]


def _options(
    job: Job, task: ScheduledTask, each: Sequence[Way], made: Made, value: Floats
) -> Options:
    like, moving = parameters_of(task.model), trained(task.model)
    names = [option.name for option in job.options] or [w.submodel for w in each]
    size_bytes = job.workload.model_size or float(model_bytes(task.model))
    whole_bytes = 2 * transfers_of(job) * size_bytes
    return Options(
        names=tuple(names),
        size_bytes=whole_bytes * np.array([way.share(like, moving) for way in each]),
        compute=np.array([made.steps[way.part] for way in each]),
        value=value,
        overhead_s=float(job.overhead),
    )
