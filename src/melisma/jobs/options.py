"""How what travels is made smaller, from a job: in one way, or in one of several."""

from melisma.jobs.schema import Job
from melisma.learning.settings import Correction
from melisma.learning.wire import Wire
from melisma.schemes import TAKES_FIRST


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
