"""Read a run from its folder and add up its records."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from melisma.errors import DataError
from melisma.jobs.files import load
from melisma.jobs.schema import Job, tasks_of
from melisma.runs import records
from melisma.runs.files import CONFIG, RECORDS
from melisma.runs.records import Record
from melisma.views import ledger
from melisma.views.incidents import Incident, incidents
from melisma.views.ledger import Cycle, LearnerCycle, LearnerTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A run's job, and the tables made from its records."""

    job: Job
    learner_cycles: list[LearnerCycle]
    learners: list[LearnerTotals]
    cycles: list[Cycle]
    incidents: list[Incident]
    time_s: float  #: of the last event


def read(folder: Path) -> tuple[Job, list[Record]]:
    """Read job and records of a run, finished or not; DataError if there is none.

    The records of several tasks come one task after the other.
    """
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} is no run: there is no {CONFIG} in it")
    job = load(folder / CONFIG)
    if not job.tasks:
        return job, records.read(folder / RECORDS)
    folders = [folder / task.name for task in tasks_of(job)]
    return job, [
        record
        for task in folders
        if (task / RECORDS).is_file()
        for record in records.read(task / RECORDS)
    ]


def account(job: Job, happened: Sequence[Record]) -> Account:
    """Return the rows that the records add up to."""
    rows = ledger.learner_cycles(happened)
    return Account(
        job=job,
        learner_cycles=rows,
        learners=ledger.totals(rows),
        cycles=ledger.cycles(happened, rows),
        incidents=incidents(happened),
        time_s=max((record.time_s for record in happened), default=0.0),
    )
