"""A run as one HTML file that opens anywhere, offline, and as rows for a spreadsheet.

runs/<name>/report.html     all of it, pictures included
            learners.csv    a row for each learner and cycle
            course.png, timeline.png, overview.png, predicted.png

Of a fog run the pages and pictures of `fog_page` take the place of the last three.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from melisma import pages
from melisma.config import dump, tasks_of
from melisma.errors import DataError
from melisma.moving import is_fog
from melisma.runs import fog_page, ledger, overview, parts, pictures
from melisma.runs.accounts import Account, account, read
from melisma.runs.ledger import Cycle, Incident, Tally, Turn
from melisma.schemes import DECENTRALISED

PAGE, ROWS = "report.html", "learners.csv"

#: What a page shows of long runs; all of it is in the rows and the records.
LANES, PANELS, OVERVIEW, TABLE, DETAIL = 24, 6, 400, 200, 300


def write(folder: Path) -> Path:
    """Write page, rows and pictures of the run in ``folder``; return the page's path.

    Of several tasks each has a page of its own, and there is one over all of them.
    DataError if there is no run, or it cannot be written there.
    """
    job, records = read(folder)
    try:
        if job.task:
            for one in tasks_of(job):
                write(folder / one.name)
            text = overview.page(job, records, folder)
        else:
            run = account(job, records)
            _write_rows(folder / ROWS, run.turns)
            if is_fog(job.scheme):
                fog_page.write_rows(folder / fog_page.ROWS, run.moved)
            text = page(run, folder)
        (folder / PAGE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    return folder / PAGE


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


def page(run: Account, folder: Path) -> str:
    """Return the report as HTML; its pictures are drawn into ``folder``."""
    job = run.job
    return pages.page(
        f"{job.name}: a run by {job.scheme}",
        pages.facts(_facts(run)),
        *_course(run, folder),
        *(fog_page.sections if is_fog(job.scheme) else _sections)(run, folder),
        *_incidents(run.incidents),
        pages.section("The job", pages.code(dump(job))),
    )


def _sections(run: Account, folder: Path) -> list[str]:
    """What there is to tell of allocations."""
    return [
        *_timeline(run, folder),
        *_predictions(run, folder),
        *_learners(run.learners),
        *_cycles(run.cycles),
    ]


def _facts(run: Account) -> dict[str, str]:
    job, last = run.job, run.tested[-1] if run.tested else None
    off = parts.text(ledger.off_percent(run.turns), 1, unit=" %")
    more = fog_page.facts(run) if is_fog(job.scheme) else {"predictions off by": off}
    return {
        "test accuracy": parts.text(
            last.accuracy if last else None, 1, scale=100.0, unit=" %"
        ),
        "test loss": parts.text(last.loss if last else None, 3, unit=" nats"),
        "cycles": f"{len(run.tested):,} of {job.cycles:,}",
        "time": parts.text(run.time_s, 1, unit=" s"),
        "deadline of a cycle": f"{run.deadline_s:,g} s",
        "learners": f"{len(run.learners):,}",
        "scheme": job.scheme,
        "mode": job.mode.value,
        **more,
    }


def _course(run: Account, folder: Path) -> list[str]:
    if not run.tested:
        return [pages.paragraph("No cycle has come to its end.")]
    draw = partial(pictures.courses, scheme=run.job.scheme, cycles=run.tested)
    alt = "Test accuracy and loss by cycle and by time"
    return [pages.section("Course", parts.picture(folder, "course.png", alt, draw))]


def _timeline(run: Account, folder: Path) -> list[str]:
    if not run.turns:
        return []
    names, numbers = run.names[:LANES], [cycle.cycle for cycle in run.cycles]
    shown = numbers
    if len(numbers) > PANELS:
        shown = numbers[: PANELS // 2] + numbers[-(PANELS // 2) :]
    lanes = partial(
        pictures.timeline,
        turns=run.turns,
        learners=names,
        cycles=shown,
        deadline_s=run.deadline_s,
    )
    told = [
        pages.paragraph(
            "Seconds since each learner's order; the dashed line is the deadline. "
            + parts.rest(len(names), len(run.names), "learners")
            + parts.rest(len(shown), len(numbers), "cycles, the first and the last")
        ),
        parts.picture(folder, "timeline.png", "What each learner did when", lanes),
    ]
    if len(names) < len(run.names) or shown != numbers:
        told += _overview(run, folder)
    return [pages.section("Timeline", *told)]


def _overview(run: Account, folder: Path) -> list[str]:
    names = run.names[:OVERVIEW]
    share = ledger.spent(run.turns, names, run.cycles[-1].cycle, run.deadline_s)
    draw = partial(pictures.overview, spent=share, learners=names)
    return [
        pages.paragraph(
            "When each update was here, in % of the deadline. Orange does not count, "
            "white had no work or was not there. "
            + parts.rest(len(names), len(run.names), "learners")
        ),
        parts.picture(folder, "overview.png", "Share of the deadline used", draw),
    ]


def _predictions(run: Account, folder: Path) -> list[str]:
    title, off = "Predicted against measured", ledger.off_percent(run.turns)
    if off is None:
        why = (
            "Under this scheme, what learners predict is their own."
            if run.job.scheme in DECENTRALISED
            else "No update has come back to compare with."
        )
        return [pages.section(title, pages.paragraph(why))]
    known = [turn for turn in run.turns if turn.off_percent is not None]
    halted = sum(turn.halted for turn in known)
    text = (
        f"Mean absolute error {off:.1f} % of the measured time, over {len(known):,} "
        "updates. On the line, a prediction came true; above it, the learner was "
        "slower than predicted. "
    )
    if halted:
        text += (
            f"{halted:,} halted: their work would have taken longer than was measured, "
            "so they count for less than they were off."
        )
    draw = partial(
        pictures.predictions,
        turns=run.turns,
        cycles=run.cycles,
        deadline_s=run.deadline_s,
    )
    alt = "Predicted against measured times, and the error by cycle"
    shown = parts.picture(folder, "predicted.png", alt, draw)
    return [pages.section(title, pages.paragraph(text), shown)]


def _learners(tallies: Sequence[Tally]) -> list[str]:
    if not tallies:
        return []
    titles = [
        *("learner", "cycles", "samples, mean", "steps, mean", "predicted (s)"),
        *("measured (s)", "off (%)", "trained, mean", "halted", "lost", "offences"),
    ]
    checked = any(tally.checked for tally in tallies)
    titles += ["distance, max"] if checked else []
    rows = (_learner(tally, checked) for tally in tallies[:TABLE])
    text = (
        "Means over the cycles in which a learner had work. "
        + parts.rest(min(TABLE, len(tallies)), len(tallies), "learners")
        + f"Each learner in each cycle is in {ROWS}."
    )
    return [pages.section("Learners", pages.paragraph(text), pages.table(titles, rows))]


def _learner(tally: Tally, checked: bool) -> str:
    cells = [
        tally.learner,
        f"{tally.cycles:,}",
        parts.text(tally.samples, 1),
        parts.text(tally.steps, 1),
        parts.text(tally.predicted_s, 3),
        parts.text(tally.measured_s, 3),
        parts.text(tally.off_percent, 1),
        parts.text(tally.trained, 1),
        *(f"{n:,}" for n in (tally.halted, tally.lost, tally.offences)),
    ]
    if checked:
        cells.append("–" if tally.distance is None else f"{tally.distance:.1g}")
    return pages.row(cells)


def _cycles(cycles: Sequence[Cycle]) -> list[str]:
    if not cycles:
        return []
    titles = (
        *("cycle", "time (s)", "accuracy (%)", "loss (nats)", "learners", "counted"),
        *("halted", "lost", "samples", "cycle time (s)", "staleness, max"),
        *("utilisation (%)", "off (%)"),
    )
    rows = (
        pages.row(
            [
                f"{cycle.cycle:,}",
                parts.text(cycle.time_s, 2),
                parts.text(cycle.accuracy, 2, scale=100.0),
                parts.text(cycle.loss, 3),
                *(f"{n:,}" for n in (cycle.learners, cycle.counted)),
                *(f"{n:,}" for n in (cycle.halted, cycle.lost)),
                parts.text(cycle.samples),
                parts.text(cycle.cycle_s, 3),
                parts.text(cycle.max_staleness),
                parts.text(cycle.utilisation, 1, scale=100.0),
                parts.text(cycle.off_percent, 1),
            ]
        )
        for cycle in cycles[-TABLE:]
    )
    text = parts.rest(min(TABLE, len(cycles)), len(cycles), "cycles, the last ones")
    return [pages.section("Cycles", pages.paragraph(text), pages.table(titles, rows))]


def _incidents(incidents: Sequence[Incident]) -> list[str]:
    if not incidents:
        return [pages.section("Incidents", pages.paragraph("None."))]
    kinds = Counter(incident.what for incident in incidents)
    shown = ledger.gravest(incidents, TABLE)
    text = ", ".join(
        f"{kinds[what]:,} {what}" for what in ledger.GRAVITY if kinds[what]
    )
    rest = parts.rest(len(shown), len(incidents), "incidents, the gravest")
    rows = (
        pages.row(
            [
                f"{incident.time_s:,.2f}",
                f"{incident.cycle:,}",
                incident.learner,
                incident.what,
                incident.detail[:DETAIL],
            ]
        )
        for incident in shown
    )
    titles = ("time (s)", "cycle", "learner", "what", "why")
    table = pages.table(titles, rows, words=True)
    return [pages.section("Incidents", pages.paragraph(f"{text}. {rest}"), table)]
