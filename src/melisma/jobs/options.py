"""How what travels is made smaller, from a job: in one way, or in one of several."""

import numpy as np

from melisma.algorithms.task import ScheduledTask
from melisma.jobs.schema import Job
from melisma.learning.models import model_bytes
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.settings import Correction
from melisma.learning.wire import Wire
from melisma.learning.worth import worths
from melisma.schemes import TAKES_FIRST
from melisma.system.options import AS_NOW, Options


def transfers_of(job: Job) -> float:
    """Return how many times what one model takes there and back is transferred.

    A correction travels as a model does, to learners alone.
    """
    return 1.0 if job.aggregation.correction == Correction.NONE else 1.5


def wire_of(job: Job) -> Wire:
    """Return how models travel, unless a scheme chooses; ConfigError if unknown."""
    return wires_of(job)[0]


def wires_of(job: Job) -> tuple[Wire, ...]:
    """Return all ways in which models may travel; ConfigError if one is unknown."""
    ways = tuple(Wire.of(way.down, way.up) for way in job.options or (job.wire,))
    return ways[:1] if job.scheme in TAKES_FIRST else ways


def options_of(job: Job, task: ScheduledTask) -> Options:
    """Return what the job's scheme may choose from, with what each is worth.

    Sizes are those by which cycles are planned. Values that the job does not give are
    measured on the model as it was made, so that a resumed run finds the same.
    """
    if not job.options or job.scheme in TAKES_FIRST:
        return AS_NOW
    wires, like, moving = wires_of(job), parameters_of(task.model), trained(task.model)
    size_bytes = job.workload.model_size or float(model_bytes(task.model))
    whole_bytes = 2 * transfers_of(job) * size_bytes
    sizes = [whole_bytes * wire.share(like, moving) for wire in wires]
    return Options(
        names=tuple(option.name for option in job.options),
        size_bytes=np.array(sizes),
        value=np.array(_values(job, task)),
        overhead_s=float(job.overhead),
    )


def _values(job: Job, task: ScheduledTask) -> list[float]:
    """Return the options' values: given, or measured."""
    given = [option.value for option in job.options]
    if None not in given:
        return [value or 0.0 for value in given]
    wires, samples = wires_of(job), task.taken.train
    found = worths(wires, task.model, samples, task.training, job.seed)
    return [w if v is None else v for v, w in zip(given, found, strict=True)]
