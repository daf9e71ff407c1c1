"""The table of service figures of a run with several tasks, as text."""

from collections.abc import Sequence

from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import Record
from melisma.views.tasks import cells, served, titles, together


def service(job: Job, records: Sequence[Record]) -> dict[str, object]:
    """Return titles and rows: each task's figures, then those of all together."""
    jobs = tasks_of(job)
    known, refused = served(jobs, records)
    rows = [
        [task.name, *cells(known[task.name], known.values())]
        if task.name in known
        else [task.name, _why_not(refused.get(task.name))]
        for task in jobs
    ]
    if len(known) > 1:
        finished = [task for task in jobs if task.name in known]
        rows.append(["all", *cells(together(finished, records), known.values())])
    return {"titles": titles(known.values()), "rows": rows}


def _why_not(refused: str | None) -> str:
    return "no cycle has ended" if refused is None else f"refused: {refused}"
