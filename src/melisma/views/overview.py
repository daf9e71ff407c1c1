"""How well each of several tasks of one run was served, as rows of text."""

from collections.abc import Sequence

from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import Record
from melisma.views.tasks import COLUMNS, Served, served, together


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
