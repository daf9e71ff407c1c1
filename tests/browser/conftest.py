from collections.abc import Iterator

import pytest
from tests.web.browser import Page, browsing
from tests.web.conftest import fresh


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Page:
    """The browser's page, without complaints."""
    fresh(browser)
    return browser
