"""The page of a run that chooses its deadlines."""

from pathlib import Path

import pytest
from tests.views.test_page import at, happened
from tests.web.browser import Page
from tests.web.sights import frame, report, tab, tile

from melisma import views as runs
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs import records
from melisma.runs.records import Record
from melisma.units import Deadline
from melisma.views.document import document

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TITLES = (
    "[...document.querySelectorAll('main figcaption')]"
    ".filter((one) => one.checkVisibility()).map((one) => one.textContent).join(' ')"
)
TEXT = "document.querySelector('main').innerText"


def leave(folder: Path, rows: list[Record]) -> Path:
    folder.mkdir()
    job = Job(name="made", deadline=Deadline.of("auto"), cycles=2)
    (folder / "config.toml").write_text(dump(job))
    with (folder / "records.jsonl").open("wb") as file:
        for row in rows:
            records.write(row, file)
    runs.write(folder)
    return folder


def chosen(number: int, expected: float | None) -> Record:
    facts = {"deadline_s": 1.5 * number, "trained": 3.0, "expected": expected}
    return at(9.9 * number, number, records.Steered, why="3 passes in 1 s", **facts)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    rows = list(happened(["a", "b", "c"], cycles=2))
    second = next(n for n, row in enumerate(rows) if row.cycle == 2)
    rows = [chosen(1, None), *rows[:second], chosen(2, 0.5), *rows[second:]]
    return leave(tmp_path / "made", rows)


def test_it_shows_deadlines_expectations_and_the_last_reason(
    made: Path, page: Page
) -> None:
    report(page, made)
    titles = page.look(TITLES)
    assert "Deadline that the run chose" in titles
    assert "what was expected of the deadline" in titles
    assert "Deadline 3 s: 3 passes in 1 s." in page.look(TEXT)
    assert page.look(tile("deadline of a cycle")) == "3 s"
    for view in ("learners", "curves", "allocation", "predictions", "cycles"):
        tab(page, view)
        frame(page)
    tab(page, "incidents")
    frame(page)
    assert "steered" not in page.look(TEXT)
    assert page.errors == []


def test_before_the_first_cycle_there_is_no_deadline_and_no_error(
    tmp_path: Path, page: Page
) -> None:
    first = at(0.0, 1, records.Metrics, metrics=(records.ACCURACY,), batch=32)
    made = leave(tmp_path / "made", [first])
    assert document(made)["run"]["deadline_s"] is None
    assert document(made)["tasks"][0]["deadline_s"] is None
    report(page, made)
    assert "Deadline that the run chose" not in page.look(TITLES)
    assert page.errors == []


def test_no_number_is_written_that_json_does_not_have(made: Path) -> None:
    assert "Infinity" not in (made / "report.html").read_text()
