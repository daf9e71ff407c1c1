"""The page of a run in which learners take part by options, or draw known watts."""

from pathlib import Path

import msgspec
import pytest
from tests.views.test_page import happened
from tests.web.browser import Page
from tests.web.sights import cell, frame, report
from tests.web.test_auto import TEXT, leave

from melisma.runs import records
from melisma.runs.records import Record

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def chosen(row: Record) -> Record:
    """Let a take part by int8 in the first cycle and by int4 in the second."""
    if not isinstance(row, records.Allocated) or row.learner != "a":
        return row
    option, saved = [("int8", 1_500_000), ("int4", 1_750_000)][row.cycle - 1]
    return msgspec.structs.replace(row, option=option, saved_bytes=saved)


def test_learners_have_their_option_and_what_it_saved(
    tmp_path: Path, page: Page
) -> None:
    rows = [chosen(row) for row in happened(["a", "b", "c"], cycles=2)]
    report(page, leave(tmp_path / "made", rows), "learners")
    frame(page)
    assert page.look(cell("a", "option")) == "int4"
    assert page.look(cell("a", "saved")) == "3.3 MB"  # 1.5 and 1.75
    assert page.look(cell("b", "option")) == "–"
    assert page.errors == []


def test_learners_have_their_joules(tmp_path: Path, page: Page) -> None:
    def drawn(row: Record) -> Record:
        if isinstance(row, records.Allocated):
            return msgspec.structs.replace(row, predicted_j=620.0)
        if isinstance(row, records.Uploaded):
            return msgspec.structs.replace(row, spent_j=7.25)
        return row

    rows = [drawn(row) for row in happened(["a", "b", "c"], cycles=2)]
    report(page, leave(tmp_path / "made", rows), "learners")
    frame(page)
    assert page.look(cell("a", "energy planned")) == "1.2 kJ"  # twice 620 J
    assert page.look(cell("a", "spent")) == "14.5 J"
    assert page.errors == []


def test_where_nothing_was_chosen_there_is_no_column(
    tmp_path: Path, page: Page
) -> None:
    rows = list(happened(["a", "b"], cycles=2))
    report(page, leave(tmp_path / "made", rows), "learners")
    frame(page)
    assert "learner" in page.look(TEXT)
    assert "saved" not in page.look(TEXT)
    assert "energy" not in page.look(TEXT)
