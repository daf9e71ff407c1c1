"""The page on a phone: the timeline first, tables as wide as the screen."""

from pathlib import Path

import pytest
from tests.web.browser import Page
from tests.web.sights import frame, press, report, tab, tile
from tests.web.test_waiting import waiting

pytestmark = [pytest.mark.slow, pytest.mark.browser]

WIDTH, HEIGHT = 390, 844
LONG = "the-raspberry-pi-behind-the-flower-pots-on-the-balcony"
HEADS = "[...document.querySelectorAll('main thead th')].filter((one) => one.checkVisibility()).map((one) => one.innerText)"  # noqa: E501


@pytest.fixture
def phone(page: Page) -> Page:
    page.screen(WIDTH, HEIGHT)
    return page


@pytest.mark.parametrize("name", ["demo", "coded", "tasks", "async"])
def test_the_timeline_is_on_the_first_screen(
    made: Path, phone: Page, name: str
) -> None:
    report(phone, made / name)
    box = "document.querySelector('.lanes').getBoundingClientRect()"
    assert phone.look(f"{box}.top") < 0.4 * HEIGHT
    assert phone.look(f"{box}.bottom") < HEIGHT


def test_figures_that_matter_less_are_shown_on_demand(made: Path, phone: Page) -> None:
    report(phone, made / "demo")
    seen = "[...document.querySelectorAll('.tiles dt')].filter((one) => one.checkVisibility()).map((one) => one.textContent)"  # noqa: E501
    assert phone.look(seen) == ["cycle", "test accuracy", "learners"]
    press(phone, "all figures")
    assert {"scheme", "test loss", "time"} <= set(phone.look(seen))


@pytest.mark.parametrize("name", ["demo", "coded", "fog", "tasks"])
def test_no_view_is_wider_than_the_screen(made: Path, phone: Page, name: str) -> None:
    report(phone, made / name)
    keys = "[...document.querySelectorAll('[role=tab]')].map((one) => one.id.slice(4))"
    for key in phone.look(keys):
        tab(phone, key)
        frame(phone)
        assert phone.look("document.documentElement.scrollWidth") <= WIDTH, key
        over = "[...document.querySelectorAll('.wide')].map((one) => one.scrollWidth - one.clientWidth)"  # noqa: E501
        assert max(phone.look(over), default=0) <= 1, key


def test_names_of_devices_in_a_fog_can_be_read(made: Path, page: Page) -> None:
    """A wide window that becomes narrow, and wide again."""
    report(page, made / "fog")
    for width in (1280, WIDTH, 1280):
        page.screen(width, HEIGHT)
        frame(page)
        frame(page)
        names = "[...document.querySelectorAll('figure svg text')].map((one) => one.getBoundingClientRect().height)"  # noqa: E501
        heights = page.look(names)
        assert len(heights) == 10
        assert min(heights) >= 11


def test_a_table_shows_what_matters_and_the_rest_on_demand(
    made: Path, page: Page
) -> None:
    report(page, made / "demo", "learners")
    whole = page.look(HEADS)
    page.screen(WIDTH, HEIGHT)
    frame(page)
    few = page.look(HEADS)
    assert few[:3] == ["learner", "state", "trained"]
    press(page, f"{len(whole) - len(few)} more columns")
    assert page.look(HEADS) == whole
    press(page, "fewer columns")
    assert page.look(HEADS) == few
    page.screen(1280, 900)
    frame(page)
    assert page.look(HEADS) == whole


@pytest.mark.parametrize("width", [320, WIDTH, 768, 1280])
def test_the_button_to_expel_is_never_clipped(
    tmp_path: Path, page: Page, width: int
) -> None:
    with waiting(tmp_path / "run", 3) as run:  # for one more than there are
        page.screen(width, HEIGHT)
        page.go(run.link)
        run.join(LONG, "b")
        page.until(f"{tile('learners')} === '2 of 3'")
        tab(page, "learners")
        button = "[...document.querySelectorAll('td.act button')]"
        page.until(f"{button}.length === 2")
        frame(page)
        for place in (0, 1):
            page.look(f"{button}[{place}].scrollIntoView({{block: 'center'}})")
            box = f"{button}[{place}].getBoundingClientRect()"
            assert page.look(f"{box}.left") >= 0
            assert page.look(f"{box}.right") <= width
            # What is at its middle is the button: nothing lies over it.
            middle = f"document.elementFromPoint(({box}.left + {box}.right) / 2, ({box}.top + {box}.bottom) / 2)"  # noqa: E501
            assert page.look(f"{middle} === {button}[{place}]")
