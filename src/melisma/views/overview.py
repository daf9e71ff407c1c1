"""Several tasks of one run in pictures: who served which when, and how well."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import Allocated, Evaluated, Record
from melisma.views import ledger, pictures, plots
from melisma.views.tasks import COLUMNS, Served, served, together

#: Learners that a picture shows.
LANES = 60


def draw(job: Job, records: Sequence[Record], folder: Path) -> None:
    """Draw tasks.png and service.png into ``folder``, once a cycle has ended."""
    if not any(isinstance(record, Evaluated) for record in records):
        return
    _courses(job, records, folder)
    _service(job, records, folder)


def service(job: Job, records: Sequence[Record]) -> dict[str, object]:
    """How well each task was served, and all of them together: titles, and rows."""
    jobs = tasks_of(job)
    known, refused = served(jobs, records)
    rows = [
        _cells(one.name, known[one.name])
        if one.name in known
        else [one.name, _why_not(refused.get(one.name))]
        for one in jobs
    ]
    if len(known) > 1:
        some = [one for one in jobs if one.name in known]
        rows.append(_cells("all", together(some, records)))
    return {"titles": [column.title for column in COLUMNS], "rows": rows}


def _why_not(refused: str | None) -> str:
    return "no cycle has ended" if refused is None else f"refused: {refused}"


def _cells(name: str, how: Served) -> list[str]:
    return [name, *(column.text(how) for column in COLUMNS)]


def _courses(job: Job, records: Sequence[Record], folder: Path) -> None:
    lines = {
        one.name: [
            (record.time_s, 100 * record.accuracy)
            for record in records
            if isinstance(record, Evaluated) and record.task == one.name
        ]
        for one in tasks_of(job)
    }
    plots.save(folder / "tasks.png", partial(pictures.tasks, lines=lines))


def _service(job: Job, records: Sequence[Record], folder: Path) -> None:
    """Who served which task when."""
    names = [one.name for one in tasks_of(job)]
    spans = [
        pictures.Span(turn.learner, task, began_s, turn.measured_s, turn.halted)
        for task in names
        for turn, began_s in _turns([r for r in records if r.task == task])
        if turn.samples and turn.measured_s is not None
    ]
    learners = sorted({span.learner for span in spans})[:LANES]
    draw = partial(pictures.service, spans=spans, learners=learners, tasks=names)
    plots.save(folder / "service.png", draw)


def _turns(records: Sequence[Record]) -> list[tuple[ledger.Turn, float]]:
    """Each learner's part in a cycle, and when its order came."""
    began_s = {
        (record.cycle, record.learner): record.time_s
        for record in records
        if isinstance(record, Allocated)
    }
    return [(turn, began_s[turn.cycle, turn.learner]) for turn in ledger.turns(records)]
