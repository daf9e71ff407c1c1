"""Keyboards and screen readers: what axe-core finds on every view of the page."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from tests.comparison.test_metrics import compared, outcome
from tests.web.browser import Page
from tests.web.clients import MAE
from tests.web.sights import frame, press, quiet, report, tab
from tests.web.test_waiting import PANEL, waiting

from melisma import rpc
from melisma.comparison import report as comparison
from melisma.views.web import Dashboard

pytestmark = [pytest.mark.slow, pytest.mark.browser]

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
#: What is wrong, and where.
FOUND = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
    violations.flatMap(({id, nodes}) => nodes.map((node) =>
        `${id}: ${node.target.join(" ")} ${node.html.slice(0, 200)}`)))"""
Screen = tuple[tuple[int, int], bool]  #: width and height, whether it is dark
SCREENS: list[Screen] = list(product([(1280, 900), (390, 844)], [False, True]))


#: Of views that are seen in all ways already: other widths in other colours.
TWO = [SCREENS[0], SCREENS[-1]]


def violations(page: Page, screens: Sequence[Screen] = SCREENS) -> list[str]:
    """What axe finds on what is seen now, on desktop and phone, light and dark."""
    found = []
    page.look(f"typeof axe === 'undefined' ? eval({json.dumps(AXE)}) && 0 : 0")
    for (width, height), dark in screens:
        page.screen(width, height, dark=dark)
        frame(page)
        found += [f"{width} {dark} {one}" for one in page.look(FOUND)]
    page.screen(1280, 900)
    return found


@pytest.mark.parametrize("name", ["demo", "coded", "fog", "tasks", "async"])
def test_no_view_of_a_run_violates_a_rule(made: Path, page: Page, name: str) -> None:
    report(page, made / name)
    keys = page.look(
        "[...document.querySelectorAll('[role=tab]')].map((one) => one.id.slice(4))"
    )
    assert len(keys) >= 7
    for key in keys:
        tab(page, key)
        frame(page)
        assert violations(page, SCREENS if name == "demo" else TWO) == [], key
    assert page.errors == []


def test_no_comparison_violates_a_rule(tmp_path: Path, page: Page) -> None:
    comparison.write(compared(outcome("csa", MAE), outcome("eta", MAE)), "", tmp_path)
    page.go(f"file://{tmp_path}/report.html")
    page.until("!!document.querySelector('main table')")
    assert violations(page) == []
    page.look("document.querySelector('details').open = true")
    assert violations(page) == []


def test_neither_waiting_nor_steering_violates_a_rule(
    tmp_path: Path, page: Page
) -> None:
    with waiting(tmp_path / "run", 2) as run:
        page.go(run.link)
        run.join("a")
        page.until(f"{PANEL}.innerText.includes('1 of 2 learners ready')")
        page.until(f"!!{PANEL}.querySelector('code')")
        assert violations(page) == []
        tab(page, "learners")
        page.until("!!document.querySelector('main td.act button')")
        assert violations(page) == []
        press(page, "Stop …")
        page.until("!!document.querySelector('dialog[open]')")
        assert violations(page) == []
        press(page, "Cancel")


def test_the_question_for_a_token_violates_no_rule(
    made: Path, tmp_path: Path, page: Page
) -> None:
    page.call("Security.setIgnoreCertificateErrors", ignore=True)
    options = {"port": 0, "secure": True, "folder": tmp_path}
    with rpc.serve(routes=Dashboard(made).routes, say=quiet, **options) as server:
        page.go(f"{server.url}/#token=wrong")
        page.until("!!document.querySelector('form.token')")
        assert violations(page) == []
