from collections.abc import Iterator

import pytest
from tests.web.browser import Page, browsing


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
