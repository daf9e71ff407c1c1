"""What the site generates, and how its versions lie side by side."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import melisma as mel
from melisma.cli import _SECTIONS
from melisma.jobs.schema import Job

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(DOCS / "_site")
    before = set(sys.modules)
    yield
    for name in {"reference", "sources", "make_site"} & (set(sys.modules) - before):
        del sys.modules[name]


def test_every_key_of_a_job_is_in_the_reference() -> None:
    import reference

    page = reference.job_keys()
    for path, table in reference.tables(Job):
        section = page.split("\n## ")[1:]
        header = path.replace("[]", "")
        (own,) = [
            text
            for text in section
            if text.startswith("The job itself" if not path else f"`[{header}]`")
            or text.startswith(f"`[[{header}]]`")
        ]
        said = reference.comments(table)
        for field in msgspec.structs.fields(table):
            assert f"| `{field.encode_name}` |" in own, f"{path}.{field.name}"
            kind = reference.kind(field.type)
            assert said.get(field.name) or kind.endswith("table"), (
                f"{field.name} says nothing"
            )
    assert "quantity in s, ms, us, min, h" in page
    assert '| `"parallel"` or `"federated"` | `"parallel"` |' in page


def test_every_command_and_option_is_in_the_reference() -> None:
    import reference

    page = reference.commands()
    for commands in _SECTIONS.values():
        for name in commands:
            assert f"\n## {name}" in page
    (seeds,) = {one for one in page.splitlines() if one.startswith("| `--seeds` `N` |")}
    assert seeds.endswith(" | `5` |")
    assert "\n## token add\n" in page


def test_every_public_record_is_in_the_reference() -> None:
    import reference

    page = reference.record_fields()
    for kind in reference.kinds():
        assert f"\n## `{kind.__struct_config__.tag}`\n" in page
        if kind.__name__ in mel.__all__:
            assert f"`mel.{kind.__name__}`" in page
    assert "\n## `event`" not in page


def test_signatures_call_the_union_of_all_records_by_its_name() -> None:
    import reference
    from sphinx.util.inspect import signature, stringify_signature

    spelled = stringify_signature(signature(mel.run), unqualified_typehints=True)
    assert "Refused" in spelled
    app: Any = None  # unused
    shown, returned = reference.fold(app, "", "", mel.run, None, spelled, None)
    assert shown
    assert "watch: ~collections.abc.Callable[[Record], None]" in shown
    assert "Refused" not in shown
    assert returned is None


def test_links_to_folders_and_root_pages_lead_to_what_the_site_has() -> None:
    import sources

    text = (
        "[a](../src/melisma/maths) [b](../CHANGELOG.md#here) [c](../papers) [d](x.md)"
    )
    adapted = sources._adapted(text, DOCS, DOCS)
    assert adapted == (
        "[a](../src/melisma/maths/__init__.py) [b](reference/changelog.md#here) "
        "c [d](x.md)"
    )


@pytest.mark.parametrize(
    "page",
    sorted(
        page.relative_to(DOCS)
        for page in DOCS.rglob("*.md")
        if "_" not in page.parts[0]
    ),
    ids=str,
)
def test_every_page_opens_with_what_its_reader_will_have(page: Path) -> None:
    if page.parts[0] == "reference":
        return  # looked up, not read
    opening = " ".join((DOCS / page).read_text("utf-8").split()[:80])
    assert re.search(r"\byou (will|can)\b", opening, re.IGNORECASE), opening


def test_versions_lie_side_by_side_and_the_newest_leads(tmp_path: Path) -> None:
    import make_site

    for version in ("0.9.0", "0.10.0", "0.2.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    (tmp_path / "unfinished").mkdir()
    assert make_site.list_versions(tmp_path) == ["0.10.0", "0.9.0", "0.2.0"]
    assert 'url=0.10.0/index.html"' in (tmp_path / "index.html").read_text()
    assert (tmp_path / "versions.js").read_text() == (
        'window.MELISMA_VERSIONS = ["0.10.0", "0.9.0", "0.2.0"];\n'
    )
