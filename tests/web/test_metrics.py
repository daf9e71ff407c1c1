"""Metrics of a run's own, on the dashboard: in its answers, and in a real browser."""

from pathlib import Path

import pytest
from tests.comparison.test_metrics import compared, outcome
from tests.views.test_metrics import leave_tasks
from tests.web.browser import Page
from tests.web.clients import ERROR, MAE, Visitor, happened, serving, write_run
from tests.web.sights import frame, report, shown, tab, tile
from tests.web.test_live import scraped

from melisma import views
from melisma.comparison import report as comparison
from melisma.runs.lock import lock
from melisma.runs.records import Metric, write
from melisma.runs.store import RECORDS
from melisma.views.document import Document
from melisma.views.web import metrics

CAPTIONS = (
    "[...document.querySelectorAll('figcaption > span:first-child')]"
    ".map((one) => one.textContent)"
)
HEADS = "[...document.querySelectorAll('main th button')].map((one) => one.textContent)"
NOTHING = {"learners": {}, "sent_bytes": 0, "received_bytes": 0}


def test_the_api_says_what_the_metrics_are(tmp_path: Path) -> None:
    write_run(tmp_path / "one", metrics=(MAE, ERROR))
    with serving(tmp_path) as (server, _):
        visitor = Visitor(server.url)
        answer = visitor.get("/api/runs/one")
        (listed,) = visitor.get("/api/runs")["runs"]
    first, second = answer["tasks"][0]["metrics"]
    assert first == {"name": "mae", "more_is_better": False, "percent": False}
    assert second["name"] == "error"
    assert answer["cycles"]["metrics"]["mae"] == [6.0, 3.0, 2.0]
    assert (listed["metric"], listed["value"]) == (first, 2.0)


def test_metrics_that_become_known_are_a_change(tmp_path: Path) -> None:
    run = Document(write_run(tmp_path / "one", done=0))
    run.refresh()
    assert run.since(0)["tasks"][0]["metrics"] == ()
    with (tmp_path / "one" / RECORDS).open("ab") as file:
        for record in happened(1, metrics=(MAE,)):
            write(record, file)
    run.refresh()
    assert run.since(0, run.epoch)["tasks"][0]["metrics"] == (MAE,)
    assert "tasks" in run.since(0, run.epoch)
    assert "tasks" not in run.since(1, run.epoch)  # they are the first record


def test_prometheus_has_every_metric_by_its_name(tmp_path: Path) -> None:
    run = Document(write_run(tmp_path / "one", metrics=(MAE, ERROR)))
    run.refresh()
    samples = scraped(metrics.text(run, NOTHING, None))
    assert samples["melisma_metric", "gauge", "job", "mae"] == 2.0
    assert samples["melisma_metric", "gauge", "job", "error"] == 0.3
    assert samples["melisma_loss", "gauge", "job"] == pytest.approx(1 / 3)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_is_titled_by_the_metrics(tmp_path: Path, page: Page) -> None:
    run = write_run(tmp_path / "one", metrics=(MAE, ERROR))
    views.write(run)
    report(page, run)
    assert page.look(tile("test mae")) == "2.000"
    assert page.look(CAPTIONS)[-2:] == ["Test mae by cycle", "Test loss by cycle"]
    tab(page, "curves")
    frame(page)
    assert page.look(CAPTIONS)[:4] == [
        *("Test mae by cycle", "Test mae by time"),
        *("Test error by cycle", "Test error by time"),
    ]
    tab(page, "cycles")
    frame(page)
    assert page.look(HEADS)[2:5] == ["mae", "error", "loss"]
    cells = "[...document.querySelector('main tbody tr').cells].map((c) => c.innerText)"
    assert page.look(cells)[2:5] == ["2.000", "30.00 %", "0.333"]
    assert "accuracy" not in page.text()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_where_the_metric_is_the_loss_it_is_shown_once(
    tmp_path: Path, page: Page
) -> None:
    run = write_run(tmp_path / "one", metrics=(Metric("loss", more_is_better=False),))
    views.write(run)
    report(page, run)
    assert page.look(CAPTIONS).count("Test loss by cycle") == 1
    tab(page, "curves")
    frame(page)
    assert page.look(CAPTIONS)[:2] == ["Test loss by cycle", "Test loss by time"]
    assert page.look(CAPTIONS).count("Test loss by cycle") == 1
    tab(page, "cycles")
    frame(page)
    assert page.look(HEADS).count("loss") == 1
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_tasks_of_unlike_metrics_have_charts_of_their_own(
    tmp_path: Path, page: Page
) -> None:
    run = leave_tasks(tmp_path / "run", (MAE,), (ERROR,))
    views.write(run)
    report(page, run)
    frame(page)
    assert page.look(tile("t0: cycle, mae")) == "3 of 3, 2.000"
    assert page.look(tile("t1: cycle, error")) == "3 of 3, 200.0 %"
    captions = page.look(CAPTIONS)
    assert {"Test mae by time", "Test error by time"} <= set(captions)
    assert "metric" in page.look(HEADS)
    assert "error 200.0 %" in page.text()
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_a_page_that_was_open_first_learns_what_the_metrics_are(
    tmp_path: Path, page: Page
) -> None:
    run = write_run(tmp_path / "one", done=0)
    with (run / RECORDS).open("rb") as held:
        lock(held)
        with shown(tmp_path) as url:
            page.go(f"{url}/#run=one")
            page.until(tile("scheme"))
            assert "Test loss by cycle" in page.look(CAPTIONS)
            with (run / RECORDS).open("ab") as file:
                for record in happened(2, metrics=(MAE,)):
                    write(record, file)
            page.until(f"{tile('test mae')} === '3.000'")
            assert "Test mae by cycle" in page.look(CAPTIONS)
    assert page.errors == []


@pytest.mark.slow
@pytest.mark.browser
def test_a_comparison_is_titled_by_the_metric(tmp_path: Path, page: Page) -> None:
    comparison.write(compared(outcome("csa", MAE), outcome("eta", MAE)), "", tmp_path)
    page.go(f"file://{tmp_path}/report.html")
    page.until("!!document.querySelector('h1')")
    assert page.look(CAPTIONS)[:2] == ["Test mae by cycle", "Test mae by time"]
    assert "less is better" in page.text()
    assert page.errors == []
