"""`melisma schemes`, run as a user runs it."""

import json

from tests.cli.running import Melisma


def test_schemes_lists_them_with_a_line_each(melisma: Melisma) -> None:
    shown = json.loads(melisma("schemes", "--json").out)
    assert {"eta", "sync", "csa", "csa-strict", "csa-relaxed", "csa-sai", "dab"} <= set(
        shown
    )
    assert all(shown.values())
    assert "csa-strict" in melisma("schemes").out


def test_schemes_names_the_pages_of_the_others(melisma: Melisma) -> None:
    shown = melisma("schemes").out
    assert "docs/fog.md" in shown
    assert "docs/coding.md" in shown
