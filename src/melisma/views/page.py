"""A run's report: a page to read offline, and tables for a spreadsheet.

runs/<name>/report.html     the dashboard's page with the run in it; it opens offline
            learners.csv    a row for each learner and cycle
            moves.csv       a row for each device and slot, if the run is a fog

The page draws its pictures in the browser; each can be saved as SVG or PNG there.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from melisma.errors import DataError
from melisma.jobs.families import family_of
from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import Moved, Record
from melisma.views import document, fog, ledger, offline, overview, parts
from melisma.views.accounts import read

PAGE, ROWS, MOVES = "report.html", "learners.csv", "moves.csv"


def write(folder: Path) -> Path:
    """Write page and tables of the run in ``folder``; return the page's path.

    If there are several tasks, each also gets a page of its own. DataError if there is
    no run or the folder cannot be written.
    """
    job, records = read(folder)
    try:
        if job.tasks:
            for task in tasks_of(job):
                write(folder / task.name)
        else:
            _write_learners(folder / ROWS, records)
            if family_of(job).moves_data:
                _write_moves(folder / MOVES, records)
        offline.write([_document(job, records, folder)], folder / PAGE, job.name)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    return folder / PAGE


def _document(job: Job, records: Sequence[Record], folder: Path) -> object:
    """Return the dashboard's document; of several tasks, with their service."""
    if not job.tasks:
        return document.encoded(folder)
    return document.document(folder) | {"service": overview.service(job, records)}


#: Columns of ``learners.csv``, and the fields of `LearnerCycle` that they hold.
_LEARNERS = {
    **{name: name for name in ("cycle", "learner", "samples")},
    "epochs": "steps",
    **{name: name for name in ("predicted_s", "downloaded_s", "trained_s")},
    **{name: name for name in ("measured_s", "trained", "batches", "halted")},
    **{name: name for name in ("outcome", "distance", "planned_s", "late")},
    **{name: name for name in ("option", "saved_bytes")},
    **{name: name for name in ("predicted_j", "spent_j")},
}


def _write_learners(path: Path, records: Sequence[Record]) -> None:
    rows = (
        [getattr(row, field) for field in _LEARNERS.values()]
        for row in ledger.learner_cycles(records)
    )
    _write_rows(path, list(_LEARNERS), rows)


_AMOUNTS = (
    *("collected", "trained", "sent", "arrived", "discarded"),
    *("process_cost", "transfer_cost", "error_cost"),
)


def _write_moves(path: Path, records: Sequence[Record]) -> None:
    """Write one line for each device and slot; ``to`` is DEVICE:SAMPLES, by spaces."""
    moved = [record for record in records if isinstance(record, Moved)]
    rows = (
        [
            *(row.cycle, row.slot, row.learner),
            *(getattr(fog.total([row]), name) for name in _AMOUNTS),
            " ".join(f"{name}:{samples}" for name, samples in row.sent.items()),
        ]
        for row in moved
    )
    _write_rows(path, ["cycle", "slot", "learner", *_AMOUNTS, "to"], rows)


def _write_rows(
    path: Path, titles: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(titles)
        lines.writerows([parts.cell(value) for value in row] for row in rows)
