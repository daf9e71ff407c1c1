"""The JavaScript's encoder and decoder, held to the vectors that Python is held to."""

import pytest
from tests.browser.pages import opened, serving
from tests.web.browser import Page

pytestmark = pytest.mark.browser

LOADED = """(async () => {
  const vectors = await (await fetch("/vectors.json")).json();
  const tests = await import("/tests/vectors.js");
  %s
})()"""


def test_the_browser_reads_and_writes_what_the_vectors_say(page: Page) -> None:
    with serving() as server:
        opened(page, server)
        assert page.look(LOADED % "return tests.check(vectors)") == []


def test_spoilt_bytes_are_refused_by_name_and_at_once(page: Page) -> None:
    with serving() as server:
        opened(page, server)
        found = page.look(LOADED % "return tests.fuzz(vectors, 20000, 25)")
    assert found["wrong"] == []
    assert found["refused"] > 5_000
    assert found["slowest"] < 1_000


def test_without_a_secure_page_hashes_are_the_same(page: Page) -> None:
    script = """
    const { sha256, plainSha256 } = await import("/static/learner/sha256.js");
    const found = [];
    for (const size of [0, 1, 55, 56, 63, 64, 65, 1000, 100003]) {
      const data = Uint8Array.from({ length: size }, (_, i) => (i * 31) % 251);
      found.push((await sha256([data])) === plainSha256([data]));
    }
    return [crypto.subtle !== undefined, ...found, plainSha256([new Uint8Array(0)])];
    """
    with serving() as server:
        opened(page, server)
        *alike, empty = page.look(LOADED % script)
    assert all(alike)
    assert empty.startswith("e3b0c44298fc1c14")
