"""What a run leaves to look at: a page, pictures, and rows for a spreadsheet.

runs/<name>/report.html     the dashboard's page with the run in it; it opens offline
            learners.csv    a row for each learner and cycle
            course.png, timeline.png, overview.png, predicted.png

Of a fog run the pictures of `fog_page` take the place of the last three, and of several
tasks those of `overview`.
"""

import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from melisma.errors import DataError
from melisma.jobs.families import family_of
from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import Record
from melisma.views import document, fog_page, ledger, overview, parts, pictures, plots
from melisma.views.accounts import Account, account, read
from melisma.views.ledger import Turn
from melisma.views.web import offline

PAGE, ROWS = "report.html", "learners.csv"

#: What pictures show of long runs; all of it is on the page and in the rows.
LANES, PANELS, OVERVIEW = 24, 6, 400


def write(folder: Path) -> Path:
    """Write page, rows and pictures of the run in ``folder``; return the page's path.

    Of several tasks each has a page of its own, too. DataError if there is no run, or
    it cannot be written there.
    """
    job, records = read(folder)
    try:
        if job.task:
            for one in tasks_of(job):
                write(folder / one.name)
            overview.draw(job, records, folder)
        else:
            _leave(job, records, folder)
        offline.write([_document(job, records, folder)], folder / PAGE, job.name)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    return folder / PAGE


def _document(job: Job, records: Sequence[Record], folder: Path) -> object:
    """The run as the dashboard knows it; of several tasks, how each was served too."""
    if not job.task:
        return document.encoded(folder)
    return document.document(folder) | {"service": overview.service(job, records)}


def _leave(job: Job, records: Sequence[Record], folder: Path) -> None:
    """Write rows and pictures of a run of one task."""
    run = account(job, records)
    _write_rows(folder / ROWS, run.turns)
    _course(run, folder)
    if family_of(job).moves_data:
        fog_page.write_rows(folder / fog_page.ROWS, run.moved)
        fog_page.draw(run, folder)
    else:
        _timeline(run, folder)
        _predictions(run, folder)


_COLUMNS = (
    *("cycle", "learner", "samples", "steps", "predicted_s", "downloaded_s"),
    *("trained_s", "measured_s", "trained", "batches", "halted", "outcome", "distance"),
)


def _write_rows(path: Path, turns: Sequence[Turn]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(_COLUMNS)
        for turn in turns:
            rows.writerow([parts.cell(getattr(turn, column)) for column in _COLUMNS])


def _course(run: Account, folder: Path) -> None:
    if run.tested:
        draw = partial(pictures.courses, scheme=run.job.scheme, cycles=run.tested)
        plots.save(folder / "course.png", draw)


def _timeline(run: Account, folder: Path) -> None:
    """Draw some learners in some cycles; where these are not all, an overview too."""
    if not run.turns:
        return
    names, numbers = run.names[:LANES], [cycle.cycle for cycle in run.cycles]
    shown = numbers
    if len(numbers) > PANELS:
        shown = numbers[: PANELS // 2] + numbers[-(PANELS // 2) :]
    draw = partial(
        pictures.timeline,
        turns=run.turns,
        learners=names,
        cycles=shown,
        deadline_s=run.deadline_s,
    )
    plots.save(folder / "timeline.png", draw)
    if len(names) < len(run.names) or shown != numbers:
        _overview(run, folder)


def _overview(run: Account, folder: Path) -> None:
    names = run.names[:OVERVIEW]
    share = ledger.spent(run.turns, names, run.cycles[-1].cycle, run.deadline_s)
    draw = partial(pictures.overview, spent=share, learners=names)
    plots.save(folder / "overview.png", draw)


def _predictions(run: Account, folder: Path) -> None:
    """Draw them, where there are any that can be compared."""
    if ledger.off_percent(run.turns) is None:
        return
    draw = partial(
        pictures.predictions,
        turns=run.turns,
        cycles=run.cycles,
        deadline_s=run.deadline_s,
    )
    plots.save(folder / "predicted.png", draw)
