"""A testbed for one test."""

from collections.abc import Iterator

import pytest

from melisma.testbed import Testbed


@pytest.fixture
def testbed() -> Iterator[Testbed]:
    with Testbed("test") as testbed:
        yield testbed
