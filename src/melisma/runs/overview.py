"""Several tasks of one run on one page: who served which when, and how well."""

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from melisma import pages, plots
from melisma.config import Job, dump, tasks_of
from melisma.runs import ledger, pictures
from melisma.runs.tasks import COLUMNS, Served, served, together
from melisma.runtime.records import Allocated, Evaluated, Record

#: Learners that a picture shows.
LANES = 60


def page(job: Job, records: Sequence[Record], folder: Path) -> str:
    """Return the page as HTML; its pictures are drawn into ``folder``."""
    parts = [pages.facts(_facts(job, records))]
    if any(isinstance(record, Evaluated) for record in records):
        parts += [_courses(job, records, folder), _service(job, records, folder)]
    parts += [_tasks(job, records), pages.section("The job", pages.code(dump(job)))]
    return pages.page(f"{job.name}: several tasks by {job.scheme}", *parts)


def _facts(job: Job, records: Sequence[Record]) -> dict[str, str]:
    jobs = tasks_of(job)
    _, refused = served(jobs, records)
    learners = {r.learner for r in records if isinstance(r, Allocated)}
    return {
        "tasks": f"{len(jobs):,}" + (f", {len(refused)} refused" if refused else ""),
        "learners": f"{len(learners):,}",
        "time": f"{max((r.time_s for r in records), default=0.0):,.1f} s",
        "scheme": job.scheme,
        "budget": "none" if job.budget is None else f"{job.budget:,g}",
    }


def _courses(job: Job, records: Sequence[Record], folder: Path) -> str:
    lines = {
        one.name: [
            (record.time_s, 100 * record.accuracy)
            for record in records
            if isinstance(record, Evaluated) and record.task == one.name
        ]
        for one in tasks_of(job)
    }
    plots.save(folder / "tasks.png", partial(pictures.tasks, lines=lines))
    picture = (folder / "tasks.png").read_bytes()
    return pages.section("Course", pages.picture(picture, "Test accuracy by time"))


def _service(job: Job, records: Sequence[Record], folder: Path) -> str:
    """Who served which task when."""
    names = [one.name for one in tasks_of(job)]
    spans = [
        pictures.Span(turn.learner, task, began_s, turn.measured_s, turn.halted)
        for task in names
        for turn, began_s in _turns([r for r in records if r.task == task])
        if turn.samples and turn.measured_s is not None
    ]
    learners = sorted({span.learner for span in spans})
    draw = partial(
        pictures.service, spans=spans, learners=learners[:LANES], tasks=names
    )
    plots.save(folder / "service.png", draw)
    text = "A lane for each learner, coloured by its task; hatched: it halted. "
    if len(learners) > LANES:
        text += f"Shown are {LANES} of {len(learners):,} learners."
    return pages.section(
        "Who served which task",
        pages.paragraph(text),
        pages.picture((folder / "service.png").read_bytes(), "Tasks of each learner"),
    )


def _turns(records: Sequence[Record]) -> list[tuple[ledger.Turn, float]]:
    """Each learner's part in a cycle, and when its order came."""
    began_s = {
        (record.cycle, record.learner): record.time_s
        for record in records
        if isinstance(record, Allocated)
    }
    return [(turn, began_s[turn.cycle, turn.learner]) for turn in ledger.turns(records)]


def _tasks(job: Job, records: Sequence[Record]) -> str:
    jobs = tasks_of(job)
    known, refused = served(jobs, records)
    rows = [_row(one.name, known, refused) for one in jobs]
    if len(known) > 1:
        both = together([one for one in jobs if one.name in known], records)
        rows.append(pages.row(["all", *(column.text(both) for column in COLUMNS)]))
    return pages.section(
        "Tasks",
        pages.paragraph("Means over the cycles of a task; each has a page of its own."),
        pages.table(["task", *(column.title for column in COLUMNS)], rows),
    )


def _row(name: str, known: dict[str, Served], refused: dict[str, str]) -> str:
    link = f'<a href="{escape(name)}/report.html">{escape(name)}</a>'
    if name in known:
        cells = "".join(f"<td>{column.text(known[name])}</td>" for column in COLUMNS)
        return f"<tr><th>{link}</th>{cells}</tr>"
    why = f"refused: {refused[name]}" if name in refused else "no cycle has ended"
    cell = f'<td class="why" colspan="{len(COLUMNS)}">{escape(why)}</td>'
    return f"<tr><th>{link}</th>{cell}</tr>"
