"""From any job to a simulated run of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from melisma.jobs.building import build
from melisma.jobs.coded import build_coded, is_coded
from melisma.jobs.fog import build_fog, is_fog
from melisma.jobs.multitask import build_many
from melisma.jobs.schema import Job
from melisma.learning.settings import HERE, Hardware
from melisma.runs.records import Record


class Ready(Protocol):
    """A job whose data is loaded, whose models are built and learners priced."""

    def run(
        self,
        folder: Path | None = None,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> list[Record]:
        """Run on a virtual clock; return what happened, and leave it in ``folder``."""


def ready(job: Job, hardware: Hardware = HERE) -> Ready:
    """Make a job ready; ConfigError or DataError if something is wrong with it."""
    if job.task:
        return build_many(job, hardware)
    if is_fog(job.scheme):
        return build_fog(job, hardware)
    if is_coded(job.scheme):
        return build_coded(job, hardware)
    return build(job, hardware)
