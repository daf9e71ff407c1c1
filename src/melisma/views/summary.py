"""Runs in a line each, read without keeping their records."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from melisma.errors import DataError
from melisma.jobs.families import family_of
from melisma.jobs.files import load
from melisma.jobs.schema import Job, tasks_of
from melisma.runs import records
from melisma.runs.files import CONFIG, RECORDS
from melisma.runs.lock import is_held
from melisma.runs.records import Evaluated, Joined, Record, Refused
from melisma.views.document import CUT_SHORT, FINISHED, RUNNING, folders_of

#: Of all records only these are decoded.
_TELLING = tuple(
    f'{{"event":"{tag}"'.encode() for tag in ("evaluated", "joined", "refused")
)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    id: str  #: its folder's name
    name: str
    scheme: str
    kind: str
    seed: int
    state: str
    cycles_done: int  #: of all tasks
    cycles: int
    accuracy: float | None  #: in the end; the mean over tasks
    loss: float | None
    time_s: float | None  #: of the last whole cycle
    learners: int
    modified: float  #: when its records did last, in seconds since 1970
    size: int  #: bytes of records


def run_folders(root: Path) -> Iterator[Path]:
    """Yield the folders in ``root`` that have a run in them."""
    try:
        folders = sorted(root.iterdir())
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}: give a folder of runs") from error
    yield from (folder for folder in folders if (folder / CONFIG).is_file())


def summary(folder: Path, known: Summary | None = None) -> Summary:
    """Return what a run came to; DataError or ConfigError if it cannot be read.

    Reads nothing anew if nothing changed since it was ``known``.
    """
    job = load(folder / CONFIG)
    paths = [place / RECORDS for place in folders_of(job, folder)]
    stats = [path.stat() for path in paths if path.is_file()]
    size = sum(stat.st_size for stat in stats)
    config = (folder / CONFIG).stat().st_mtime
    modified = max([stat.st_mtime for stat in stats], default=config)
    if known is None or (known.size, known.modified) != (size, modified):
        known = _read(job, folder, paths, size, modified)
    if known.state == FINISHED:
        return known
    state = RUNNING if is_held(paths[0]) else CUT_SHORT
    return msgspec.structs.replace(known, state=state)


def _read(
    job: Job, folder: Path, paths: Sequence[Path], size: int, modified: float
) -> Summary:
    tasks = tasks_of(job)
    told = [_told(path) for path in paths]
    tested = [_last(some) for some in told]
    done = [last.cycle if last else 0 for last in tested]
    refused = [any(isinstance(r, Refused) for r in some) for some in told]
    ends = zip(tasks, done, refused, strict=True)
    whole = all(out or cycles >= task.cycles for task, cycles, out in ends)
    last = [one for one in tested if one]
    losses = [one.loss for one in last if one.loss is not None]
    return Summary(
        id=folder.resolve().name,
        name=job.name,
        scheme=job.scheme,
        kind=family_of(job).kind,
        seed=job.seed,
        state=FINISHED if whole else CUT_SHORT,
        cycles_done=sum(done),
        cycles=sum(task.cycles for task in tasks),
        accuracy=fmean(one.accuracy for one in last) if last else None,
        loss=fmean(losses) if losses else None,
        time_s=max((one.time_s for one in last), default=None),
        learners=len({r.learner for some in told for r in some if type(r) is Joined}),
        modified=modified,
        size=size,
    )


def _told(path: Path) -> list[Record]:
    """Return who came, the last evaluation, and whether the task was refused."""
    try:
        with path.open("rb") as file:
            lines = [line for line in file if line.startswith(_TELLING)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    whole = b"".join(line for line in lines if line.endswith(b"\n"))
    return records.decode(whole)


def _last(told: Sequence[Record]) -> Evaluated | None:
    return next((r for r in reversed(told) if isinstance(r, Evaluated)), None)
