"""A one-line summary of a run, read without decoding most of its records."""

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
from melisma.runs.lock import is_locked
from melisma.runs.records import (
    Evaluated,
    Joined,
    Metric,
    Record,
    Refused,
    Stopped,
    metrics_by_task,
)
from melisma.views import scores
from melisma.views.document import CUT_SHORT, FINISHED, RUNNING, folders_of

#: Only records that start like this are decoded: a summary needs no others.
_NEEDED = tuple(
    f'{{"event":"{tag}"'.encode()
    for tag in ("evaluated", "joined", "metrics", "refused", "stopped")
)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run's state, progress and latest figures."""

    id: str  #: its folder's name
    name: str
    scheme: str
    kind: str
    seed: int
    state: str
    cycles_done: int  #: of all tasks
    cycles: int
    metric: Metric | None  #: of every task; None: not known yet, or they have others
    value: float | None  #: of the metric in the end; the mean over tasks
    loss: float | None
    time_s: float | None  #: of the last whole cycle
    learners: int
    modified: float  #: time of the last change of its records, in seconds since 1970
    size: int  #: bytes of records


def run_folders(root: Path) -> Iterator[Path]:
    """Yield the folders of runs in ``root``; DataError if it cannot be listed."""
    try:
        folders = sorted(root.iterdir())
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}: give a folder of runs") from error
    yield from (folder for folder in folders if (folder / CONFIG).is_file())


def summary(folder: Path, known: Summary | None = None) -> Summary:
    """Return a run's summary; DataError or ConfigError if it cannot be read.

    Records are not read again if size and time are those of the summary ``known``.
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
    state = RUNNING if is_locked(paths[0]) else CUT_SHORT
    return msgspec.structs.replace(known, state=state)


def _read(
    job: Job, folder: Path, paths: Sequence[Path], size: int, modified: float
) -> Summary:
    tasks = tasks_of(job)
    by_task = [progress(path) for path in paths]
    evaluations = [_last_evaluation(rows) for rows in by_task]
    done = [last.cycle if last else 0 for last in evaluations]
    refused = [any(isinstance(r, Refused | Stopped) for r in rows) for rows in by_task]
    ends = zip(tasks, done, refused, strict=True)
    finished = all(out or cycles >= task.cycles for task, cycles, out in ends)
    last = [evaluation for evaluation in evaluations if evaluation]
    metric = _metric(by_task)
    values = scores.means([metric] if metric else [], [e.metrics for e in last])
    losses = [evaluation.loss for evaluation in last if evaluation.loss is not None]
    return Summary(
        id=folder.resolve().name,
        name=job.name,
        scheme=job.scheme,
        kind=family_of(job).kind,
        seed=job.seed,
        state=FINISHED if finished else CUT_SHORT,
        cycles_done=sum(done),
        cycles=sum(task.cycles for task in tasks),
        metric=metric,
        value=values[metric.name] if metric else None,
        loss=fmean(losses) if losses else None,
        time_s=max((e.time_s for e in last), default=None),
        learners=len(
            {r.learner for rows in by_task for r in rows if type(r) is Joined}
        ),
        modified=modified,
        size=size,
    )


def progress(path: Path) -> list[Record]:
    """Read the evaluations, which learners joined, and which tasks ended early."""
    try:
        with path.open("rb") as file:
            lines = [line for line in file if line.startswith(_NEEDED)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    whole = b"".join(line for line in lines if line.endswith(b"\n"))
    return records.decode(whole)


def _last_evaluation(rows: Sequence[Record]) -> Evaluated | None:
    return next((r for r in reversed(rows) if isinstance(r, Evaluated)), None)


def _metric(by_task: Sequence[Sequence[Record]]) -> Metric | None:
    """Return *the* metric of all tasks that have one so far; None if they differ."""
    known = [m for rows in by_task for m in metrics_by_task(rows).values()]
    first = {metrics[0] for metrics in known}
    return first.pop() if len(first) == 1 else None
