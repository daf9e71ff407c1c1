from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.web.browser import Page, browsing

from melisma import views
from melisma.jobs.files import load
from melisma.launch.simulate import build

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Page:
    """The browser's page, as large as a laptop's, without complaints."""
    fresh(browser)
    return browser


def fresh(page: Page) -> None:
    page.go("about:blank")
    page.screen(1280, 900)
    page.errors.clear()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short runs of each kind, simulated."""
    root = tmp_path_factory.mktemp("made")
    for name in ("demo", "coded", "fog", "tasks", "async"):
        job = msgspec.structs.replace(load(EXAMPLES / f"{name}.toml"), cycles=3)
        (root / name).mkdir()
        build(job).run(root / name)
        views.write(root / name)
    return root
