"""The bundle of a live run: packed from a job, kept in the run's folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from melisma.bundles import folders
from melisma.bundles.bundle import HASH, Bundle
from melisma.bundles.packing import pack
from melisma.errors import ConfigError, DataError
from melisma.jobs.schema import Job, own_code
from melisma.registry import check_importable
from melisma.runs.files import BUNDLE, CONFIG
from melisma.runs.start import started, writing

log = logging.getLogger("melisma.orchestrator")


def packed(job: Job, job_file: Path | None = None) -> Bundle:
    """Pack the modules that a job names and that lie in this folder, or in the job's.

    ConfigError if there are none.
    """
    places = [Path.cwd(), *([job_file.resolve().parent] if job_file else [])]
    return pack(_references(job), list(dict.fromkeys(places)))


def _references(job: Job) -> list[str]:
    """Return the functions that learners make a job's models and tasks by."""
    for what, name in own_code(job):
        check_importable(what, name)
    return [name for _, name in own_code(job)]


def kept(folder: Path, job: Job) -> Bundle | None:
    """Return the bundle that a run was started with, if any, to go on with it.

    DataError if it is not as the run wrote it. If the job's modules have changed since,
    the log says so: the learners train by the run's own copy.
    """
    hash = started(folder).get(BUNDLE)
    if hash is None:
        return None
    if not isinstance(hash, str) or not HASH.fullmatch(hash):
        raise DataError(f"run.toml has bundle = {hash!r}, which is no SHA-256")
    try:
        bundle = folders.read(folder / BUNDLE, hash)
    except DataError as error:
        raise DataError(
            f"{folder / BUNDLE} is not as the run wrote it ({error}): restore it"
        ) from error
    if changed := _changed(bundle, job):
        log.warning(
            "%s changed since the run was started: learners train by its copy in %s",
            *(", ".join(changed), folder / BUNDLE),
        )
    return bundle


def _changed(bundle: Bundle, job: Job) -> list[str]:
    """Return the files of a bundle that are others where the job finds them now."""
    try:
        now = pack(_references(job), [Path(Path.cwd().anchor)]).files
    except ConfigError:  # whoever builds the task says what is wrong
        return []
    return [name for name in bundle.files if now.get(name) != bundle.files[name]]


@contextmanager
def keeping(bundle: Bundle | None, folder: Path) -> Iterator[dict[str, Any]]:
    """Keep a bundle in a run's folder; yields what run.toml says of it.

    A run that ends before its first record leaves nothing.
    """
    hash = started(folder).get(BUNDLE)
    if bundle is None or hash == bundle.hash:
        yield {BUNDLE: hash} if hash else {}
        return
    with writing(folder / BUNDLE):
        folders.write(bundle, folder / BUNDLE)
    try:
        yield {BUNDLE: bundle.hash}
    finally:
        if not (folder / CONFIG).exists():
            folders.remove(folder / BUNDLE)
