"""A run, and the same run stopped on the way and resumed."""

from pathlib import Path

from melisma.algorithms.control import Control
from melisma.jobs.schema import Job
from melisma.launch.api import resume, simulate
from melisma.runs.files import RECORDS
from melisma.runs.records import Evaluated, Record

Files = dict[Path, bytes]


def whole_and_resumed(job: Job, folder: Path, after: int) -> tuple[Files, Files]:
    """Return the records of both, by file; the second was stopped after a cycle."""
    control = Control()

    def watch(record: Record) -> None:
        if isinstance(record, Evaluated) and record.cycle == after:
            control.stop()

    whole = simulate(job, runs=folder / "whole")
    part = simulate(job, runs=folder / "part", watch=watch, control=control)
    assert whole.folder is not None
    assert part.folder is not None
    stopped = files(part.folder)
    resume(part.folder)
    resumed = files(part.folder)
    assert all(len(resumed[path]) > len(lines) for path, lines in stopped.items())
    return files(whole.folder), resumed


def files(folder: Path) -> Files:
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob(RECORDS)
    }
