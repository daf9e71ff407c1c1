"""The dashboard as a person sees it while a run goes on, in a real browser."""

import json
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.launch.chaos.processes import (
    GUARD_S,
    MELISMA,
    Processes,
    free_port,
    learners_in,
    processes,
    rows_of,
    seen,
    until,
)
from tests.web.browser import Page
from tests.web.sights import (
    CYCLE,
    STATE,
    WIDTH,
    cell,
    events,
    press,
    quiet,
    shown,
    tab,
    tile,
)

from melisma import rpc
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs.lock import lock
from melisma.units import Deadline
from melisma.views.web import Dashboard

pytestmark = [pytest.mark.slow, pytest.mark.browser]

EVIL = "<b>pi</b>"
JOB = f"""
name = "watched"
scheme = "csa"
cycles = 6
samples = 1000
deadline = "3 s"
shard = 50

[[learners]]
name = "calm"
rate = "1500 samples/s"
bandwidth = "8 MB/s"

[[learners]]
name = "doomed"
rate = "800 samples/s"
bandwidth = "8 MB/s"

[[learners]]
name = "{EVIL}"
rate = "800 samples/s"
bandwidth = "8 MB/s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What was seen of a run while it went on."""

    folder: Path
    address: str  #: after the page was opened
    cycles: list[int]
    widths: list[int]  #: of the timeline, in those cycles
    states: list[str]  #: of the run, while it was steered
    asked: str  #: before it would be stopped
    state: str  #: of the learner that was killed
    accuracy: str  #: at the end
    names: list[str]
    bold: int  #: elements that a name would be, were it markup
    errors: list[str]


def link_of(started: Processes, run: Any) -> str:
    """The link that the orchestrator prints."""
    pattern = r"Dashboard: (\S+)"
    until(lambda: re.search(pattern, started.said(run)), "a link", alive=run)
    return str(re.findall(pattern, started.said(run))[0])


@pytest.fixture(scope="module")
def watched(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Watch a run from its first cycle to its last; kill a learner on the way."""
    page, folder = browser, tmp_path_factory.mktemp("watched")
    (folder / "job.toml").write_text(JOB)
    page.go("about:blank")
    page.errors.clear()
    with processes(folder) as start:
        run = start(*MELISMA, "run", "job.toml")
        page.go(link_of(start, run))
        cycles, widths = [], []
        for cycle in (2, 3, 4):
            page.until(f"{CYCLE} >= {cycle}")
            cycles.append(page.look(CYCLE))
            widths.append(page.look(WIDTH))
        states = []
        for word, then in (("Pause", "paused"), ("Resume", "running")):
            press(page, word)
            page.until(f"{STATE} === '{then}'")
            states.append(then)
        press(page, "Stop …")
        asked = page.until("document.querySelector('dialog p').textContent")
        press(page, "Cancel")
        os.kill(learners_in(folder)["doomed"], signal.SIGKILL)
        tab(page, "learners")
        page.until(f"{cell('doomed', 'state')} === 'lost'")
        page.until(f"{STATE} === 'finished'")
        states.append("finished")
        assert run.wait(GUARD_S) == 0  # the report comes last
        names = "[...document.querySelectorAll('main tbody th')].map((th) => "
        return Watched(
            folder=folder / "runs" / "watched",
            address=page.look("location.href"),
            cycles=cycles,
            widths=widths,
            states=states,
            asked=asked,
            state=page.look(cell("doomed", "state")),
            accuracy=page.look(tile("test accuracy")),
            names=page.look(names + "th.textContent)"),
            bold=page.look("document.querySelectorAll('main b').length"),
            errors=list(page.errors),
        )


def as_shown(accuracy: float) -> str:
    """Accuracy as the page prints it."""
    return f"{100 * accuracy:.1f} %"


def final(folder: Path) -> float:
    last = seen(rows_of(folder), "evaluated", cycle=6)[0]
    return float(last["metrics"]["accuracy"])


def test_the_cycle_advances_and_the_timeline_grows(watched: Watched) -> None:
    assert watched.cycles == sorted(set(watched.cycles))
    assert watched.widths == sorted(set(watched.widths))


def test_a_killed_learner_is_lost(watched: Watched) -> None:
    assert watched.state == "lost"


def test_who_may_steer_pauses_and_resumes_and_is_asked_before_a_stop(
    watched: Watched,
) -> None:
    assert watched.states == ["paused", "running", "finished"]
    assert watched.asked.startswith("Stop the run?")


def test_the_final_accuracy_is_that_of_the_records(watched: Watched) -> None:
    assert watched.accuracy == as_shown(final(watched.folder))


def test_markup_in_a_name_is_text(watched: Watched) -> None:
    assert EVIL in watched.names
    assert watched.bold == 0


def test_the_token_does_not_stay_in_the_address(watched: Watched) -> None:
    assert "token" not in watched.address


def test_a_run_is_watched_without_complaint(watched: Watched) -> None:
    assert watched.errors == []


def test_the_report_shows_the_same_from_disk(watched: Watched, page: Page) -> None:
    page.errors.clear()
    page.go(f"file://{watched.folder}/report.html#view=learners")
    assert page.until(tile("test accuracy")) == watched.accuracy
    assert page.look(tile("cycle")) == "6 of 6"
    assert EVIL in page.text()
    assert page.look("document.querySelectorAll('main b').length") == 0
    assert page.errors == []


def test_the_page_is_light(watched: Watched, page: Page) -> None:
    with shown(watched.folder.parent) as url:
        page.weight = 0
        page.go(f"{url}/")
        page.until(f"{tile('cycle')} === '6 of 6'")
        assert 50_000 < page.weight < 500_000


def test_a_wrong_token_sees_nothing(watched: Watched, page: Page) -> None:
    page.call("Security.setIgnoreCertificateErrors", ignore=True)
    site = Dashboard(watched.folder.parent)
    folder = watched.folder.parent / "keys"
    with rpc.serve(
        routes=site.routes, say=quiet, port=0, secure=True, folder=folder
    ) as server:
        page.go(f"{server.url}/#token=wrong")
        page.until("!!document.querySelector('form.token')")
        assert "watched" not in page.text()
        asked = "fetch('api/runs/watched').then((answer) => answer.status)"
        assert page.look(asked) == 401
        token = json.dumps(site.attend(server).partition("=")[2])
        page.look(f"document.querySelector('.token input').value = {token}")
        press(page, "Look")
        page.until(f"{tile('cycle')} === '6 of 6'")


def test_who_may_steer_sets_a_deadline_sends_a_learner_away_and_stops(
    tmp_path: Path, page: Page
) -> None:
    (tmp_path / "job.toml").write_text(JOB.replace("cycles = 6", "cycles = 500"))
    records = tmp_path / "runs" / "watched"
    with processes(tmp_path) as start:
        run = start(*MELISMA, "run", "job.toml")
        page.go(link_of(start, run))
        page.until(f"{CYCLE} >= 2")
        field = "document.querySelector('[aria-label=\"deadline in seconds\"]')"
        page.look(f"{field}.value = '3.5'")
        press(page, "Set for the next cycle")
        until(lambda: seen(rows_of(records), "steered", deadline_s=3.5), "a deadline")
        tab(page, "learners")
        page.until(f"!!{cell('doomed', 'state')}")
        page.look(
            "[...document.querySelectorAll('main tbody tr')].find((row) => row.cells[0]"
            ".textContent === 'doomed').querySelector('button').click()"
        )
        press(page, "Expel it")
        page.until(f"{cell('doomed', 'state')} === 'expelled'")
        press(page, "Stop …")
        press(page, "Stop the run")
        page.until(f"{STATE} === 'cut short'")
        assert run.wait(GUARD_S) == 0
    happened = rows_of(records)
    assert [row["learner"] for row in seen(happened, "expelled")] == ["doomed"]
    assert 2 <= len(seen(happened, "evaluated")) < 500
    assert page.errors == []


def test_the_page_reconnects_by_itself_and_says_so(tmp_path: Path, page: Page) -> None:
    run = tmp_path / "going"
    run.mkdir()
    job = Job(name="going", cycles=9, deadline=Deadline(1.0))
    (run / "config.toml").write_text(dump(job))
    lines = list(events("going", 2, 2))
    half = len(lines) // 2
    (run / "records.jsonl").write_bytes(b"".join(lines[:half]))
    port, link = free_port(), "document.querySelector('.link').textContent"
    with (run / "records.jsonl").open("rb") as held:
        lock(held)
        with shown(tmp_path, port=port) as url:
            page.go(f"{url}/")
            page.until(f"{CYCLE} === 1 && {STATE} === 'running'")
        page.until(f"{link}.startsWith('connection lost, trying again')")
        page.until(f"{STATE} === 'out of touch'")
        with (run / "records.jsonl").open("ab") as file:
            file.writelines(lines[half:])
        with shown(tmp_path, port=port):
            page.until(f"{CYCLE} === 2 && {STATE} === 'running'")
            page.until(f"{link} === 'live'")
