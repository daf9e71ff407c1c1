"""Jobs at the command line: read and checked before anything slow is imported."""

from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli.options import read_job

if TYPE_CHECKING:
    from melisma.jobs.schema import Job


def own_job(
    file: Path | None, *, scheme: str | None = None, seed: int | None = None
) -> "Job":
    """Return the job in ``file``, checked before torch is imported, or ConfigError.

    Keys without effect are refused, but not under another ``scheme`` than its own: that
    takes of the job what it needs.
    """
    from melisma.jobs.effects import check_effects
    from melisma.jobs.families import family_of

    job = read_job(file, scheme=scheme, seed=seed)
    family_of(job).checked(job)
    if scheme is None:
        check_effects(job)
    return job


def live_job(file: Path | None, scheme: str | None) -> "Job":
    """Return the job in ``file``, or the demo of live runs, under ``scheme`` if any."""
    if file:
        return own_job(file, scheme=scheme)
    import msgspec

    from melisma.jobs.demo import DEMO

    return msgspec.structs.replace(DEMO, scheme=scheme or DEMO.scheme)
