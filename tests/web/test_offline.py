"""The page in one file, and what holds for all of its files."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from melisma.views import offline, plots

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "melisma" / "views" / "web" / "static"
OURS = sorted(STATIC.glob("*.js"))
EVIL = "</script><script>alert(1)</script><!-- \u2028 &amp;"


def held(page: str) -> Any:
    """The documents within a page."""
    pattern = r'<script type="application/json" id="documents">(.*?)</script>'
    return json.loads(re.findall(pattern, page, flags=re.DOTALL)[0])


def test_the_page_needs_no_other_file() -> None:
    page = offline.page([{}], "made")
    assert not re.search(r"https?://", page)
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    assert "default-src 'none'" in page


def test_what_a_document_says_stays_within_it() -> None:
    document = {"learners": [EVIL]}
    page = offline.page([document], EVIL)
    assert held(page) == [document]
    assert page.count("<script") == 3  # modules, documents, start
    assert "<title>&lt;/script&gt;" in page


def test_a_document_may_be_json_already() -> None:
    assert held(offline.page([b'{"a":[1,null]}'], "made")) == [{"a": [1, None]}]


def test_every_module_travels_and_is_found_by_its_name() -> None:
    modules = offline.modules()
    names = {f"melisma/{path.relative_to(STATIC)}" for path in STATIC.rglob("*.js")}
    assert set(modules) == names
    for url in modules.values():
        text = base64.b64decode(url.partition(",")[2]).decode()
        assert '"./' not in text
        assert set(re.findall(r'from "(melisma/[^"]+)"', text)) <= names


def test_the_same_page_is_made_twice() -> None:
    assert offline.page([{"a": 1}], "made") == offline.page([{"a": 1}], "made")


def test_all_files_together_are_light() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*.*")) < 500_000


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.name))
def test_no_module_makes_markup_of_text(path: Path) -> None:
    text = path.read_text("utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"):
        assert way not in text
    assert not re.search(r"\beval\(|new Function", text)


def colours(table: str) -> dict[str, str]:
    """A table of colours in the page's code."""
    text = (STATIC / "format.js").read_text("utf-8")
    body = re.findall(rf"const {table} = {{(.*?)}}", text, flags=re.DOTALL)[0]
    return dict(re.findall(r'"?([\w:-]+)"?: "(#\w{6})"', body))


def test_a_scheme_has_the_colour_that_it_has_in_pictures() -> None:
    on_page = colours("SCHEMES")
    black = {name for name, look in plots.LOOKS.items() if look.colour == "#000000"}
    assert on_page == {n: k.colour for n, k in plots.LOOKS.items() if n not in black}
    assert colours("COSTS") == plots.COSTS
