"""What pictures say of themselves: legends, numbers under the pointer and by keys."""

from pathlib import Path
from typing import Any

import pytest
from tests.web.browser import Page
from tests.web.sights import frame, press, report
from tests.web.test_pictures import drawing, texts

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LEGEND = "[...document.querySelectorAll('.legend > *')].map((one) => one.textContent)"
TIP = "document.querySelector('.tip:not([hidden])').innerText"
SAID = "document.querySelector('main figure .said').textContent"
CANVAS = "document.querySelector('main figure canvas[tabindex]')"


def point(page: Page, x: float, y: float) -> None:
    """Move the mouse to a place of the first picture, in its pixels."""
    left, top = page.look(
        f"(({{ left, top }}) => [left, top])({CANVAS}.getBoundingClientRect())"
    )
    spot: dict[str, Any] = {"x": left + x, "y": top + y}
    page.call("Input.dispatchMouseEvent", type="mouseMoved", **spot)


def test_the_timelines_legend_has_what_is_in_sight_alone(
    made: Path, page: Page
) -> None:
    report(page, made / "demo")
    told = page.look(LEGEND)
    assert told == ["download", "training", "upload", "predicted", "deadline (1 s)"]
    report(page, made / "coded")
    told = page.look(LEGEND)
    assert {"not needed", "gradient known"} <= set(told)
    assert not {"goes on", "does not count", "halted"} & set(told)


def test_a_cell_says_its_number_under_the_pointer_and_by_keys(
    made: Path, page: Page
) -> None:
    report(page, made / "demo", "allocation")
    point(page, 150, 30)
    assert page.until(TIP).startswith("laptop-1, cycle 1\n")
    assert "samples × " in page.look(TIP)
    page.look(f"{CANVAS}.focus()")
    page.key("ArrowRight")
    page.key("ArrowDown")
    assert page.look(SAID).startswith("laptop-2, cycle 2: ")


def test_numbers_stand_in_cells_that_have_room(
    made: Path, page: Page, tmp_path: Path
) -> None:
    report(page, made / "demo", "allocation")
    page.look(f"{CANVAS}.focus()")
    page.key("ArrowRight")
    samples = page.look(SAID).split(": ")[1].split(" ")[0]
    assert texts(drawing(page, tmp_path)).count(samples) >= 3  # in each cycle


def test_dots_of_predictions_are_their_learners(made: Path, page: Page) -> None:
    report(page, made / "demo", "predictions")
    names = page.look(LEGEND)
    assert names[:2] == ["laptop-1", "laptop-2"]
    assert len(names) == 10
    page.look(f"{CANVAS}.focus()")
    page.key("ArrowRight")
    assert page.look(SAID).startswith("laptop-1, cycle 1, predicted ")
    page.key("ArrowRight")
    page.key("ArrowDown")
    assert page.look(SAID).startswith("laptop-2, cycle 2, predicted ")


def test_a_learners_dots_are_hidden_and_shown_again(made: Path, page: Page) -> None:
    report(page, made / "demo", "predictions")
    press(page, "laptop-1")
    frame(page)
    page.look(f"{CANVAS}.focus()")
    page.key("ArrowRight")
    assert page.look(SAID).startswith("laptop-2, cycle 1")
    press(page, "laptop-1")
    frame(page)
    page.look(f"{CANVAS}.focus()")
    page.key("ArrowUp")
    assert page.look(SAID).startswith("laptop-1, cycle 1")
