"""Every view of every kind of run, in a real browser."""

import re
from pathlib import Path

import pytest
from tests.web.browser import Page
from tests.web.sights import frame, press, report, shown, tab, tile

pytestmark = [pytest.mark.slow, pytest.mark.browser]

TABS = "[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id.slice(4))"
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


@pytest.mark.parametrize("name", ["demo", "coded", "fog", "tasks"])
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_every_view_opens_and_fits(
    made: Path, page: Page, name: str, width: int, dark: bool
) -> None:
    page.screen(width, 800, dark=dark)
    page.go(f"file://{made}/{name}/report.html")
    page.until(tile("scheme"))
    tabs = page.look(TABS)
    assert {"overview", "learners", "curves"} <= set(tabs)
    for key in tabs:
        tab(page, key)
        frame(page)
        assert page.look("document.querySelector('main').innerText.length") > 0, key
        assert page.look(OVERFLOW) <= 0, key
    theme = page.look("document.documentElement.dataset.theme")
    assert theme == ("dark" if dark else "light")
    assert page.errors == []


def test_several_tasks_are_told_apart(made: Path, page: Page) -> None:
    report(page, made / "tasks")
    text = page.text()
    for name in ("digits", "digits-deep", "latecomer"):
        assert f"{name}: cycle, accuracy" in text
    assert "cost of a cycle, budget" in text
    assert "How well they were served" in text


def test_a_coded_run_says_who_answered(made: Path, page: Page) -> None:
    report(page, made / "coded", "coded")
    page.look("document.querySelector('main canvas[tabindex]').focus()")
    page.key("ArrowRight")
    assert re.search(
        r"two-cores-1, cycle 1: (answered after|not needed)",
        page.look("document.querySelector('main .said').textContent"),
    )


def test_a_fog_shows_its_devices_and_flows(made: Path, page: Page) -> None:
    report(page, made / "fog")
    assert page.look("document.querySelectorAll('svg circle').length") == 10
    assert page.look("document.querySelectorAll('svg path.flow').length") > 0
    assert "gateway-1" in page.look("document.querySelector('svg').textContent")


def test_arrow_keys_move_through_cycles_and_learners(made: Path, page: Page) -> None:
    report(page, made / "demo")
    page.look("document.querySelector('.lanes').focus()")
    said = "document.querySelector('.timeline .said').textContent"
    page.key("ArrowRight")
    assert page.look(said).startswith("laptop-1, cycle 1; given")
    page.key("ArrowRight")
    page.key("ArrowDown", 2)
    assert page.look(said).startswith("jetson-1, cycle 2; given")
    page.key("End")
    assert page.look(said).startswith("jetson-1, cycle 3; given")


def test_pointing_at_a_bar_says_what_it_is(made: Path, page: Page) -> None:
    report(page, made / "demo")
    corner = page.look(
        "(({ left, top }) => [left, top])"
        "(document.querySelector('.lanes').getBoundingClientRect())"
    )
    x, y = corner[0] + 200, corner[1] + 40 + 5  # into the first lane's first bar
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    said = page.until("document.querySelector('.tip:not([hidden])').innerText")
    assert said.startswith("laptop-1, cycle 1\ngiven ")
    assert "update here after" in said


def test_arrow_keys_move_between_tabs(made: Path, page: Page) -> None:
    report(page, made / "demo")
    page.look("document.getElementById('tab-overview').focus()")
    page.key("ArrowRight")
    assert page.look("document.activeElement.id") == "tab-learners"
    assert page.look("document.querySelector('main table') !== null")


def test_learners_are_sorted_and_filtered(made: Path, page: Page) -> None:
    report(page, made / "demo", "learners")
    names = (
        "[...document.querySelectorAll('main tbody th')].map((th) => th.textContent)"
    )
    press(page, "learner")
    assert page.look(names) == sorted(page.look(names))
    press(page, "learner")
    assert page.look(names) == sorted(page.look(names), reverse=True)
    page.look(
        "(() => { const input = document.querySelector('main input[type=search]');"
        "input.value = 'jetson'; input.dispatchEvent(new Event('input')) })()"
    )
    assert page.look(names) == ["jetson-3", "jetson-2", "jetson-1"]


def test_two_runs_are_laid_over_each_other(made: Path, page: Page) -> None:
    with shown(made, port=0) as url:
        page.go(f"{url}/#run=demo&view=curves")
        page.until(f"{tile('scheme')} === 'csa'")
        page.look(
            "(() => { const over = document.querySelectorAll('.choosers select')[1];"
            "over.value = 'fog'; over.dispatchEvent(new Event('change')) })()"
        )
        page.until("document.querySelector('.legend').textContent.includes('fog: fog')")
        assert page.errors == []
