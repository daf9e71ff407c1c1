"""What releases promise: the changelog's shape, versions, deprecations, templates."""

import ast
import re
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from melisma import __version__
from melisma.deprecation import deprecated

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
#: Parts of a release, in the order of Keep a Changelog.
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def releases() -> dict[str, str]:
    """Return what the changelog has of each release, by its heading."""
    _, *parts = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)
    return {part.splitlines()[0]: part for part in parts}


def test_the_changelog_begins_with_what_is_unreleased() -> None:
    first, *others = releases()
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", o) for o in others)


def test_releases_stand_in_order_and_the_last_is_this_version() -> None:
    _, *headings = releases()
    versions = [re.findall(r"\[(.*)\]", heading)[0] for heading in headings]
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert versions[0] == __version__
    assert numbers == sorted(numbers, reverse=True)
    dates = [date.fromisoformat(heading[-10:]) for heading in headings]
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize("heading", releases())
def test_each_release_has_the_known_parts_in_order(heading: str) -> None:
    parts = re.findall(r"^### (.*)$", releases()[heading], flags=re.MULTILINE)
    assert parts == [kind for kind in KINDS if kind in parts]
    for part in re.split(r"^### .*$", releases()[heading], flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line]
        assert lines
        assert all(line.startswith(("- ", "  ")) for line in lines)


def test_the_version_to_cite_is_this_one() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_a_deprecation_names_the_callers_line() -> None:
    def old() -> None:
        deprecated("old()", "new()", gone_in="99.0")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        old()
    (warning,) = told
    assert warning.category is DeprecationWarning
    assert warning.filename == __file__
    assert str(warning.message) == "old() goes with melisma 99.0: use new()"


def overdue(source: str, version: str) -> list[str]:
    """Return the releases of deprecations that a module still has, and should not."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    named = [n for n in calls if getattr(n.func, "id", None) == "deprecated"]
    gone: list[Any] = [k.value for n in named for k in n.keywords if k.arg == "gone_in"]
    releases = [ast.literal_eval(value) for value in gone]
    return [r for r in releases if numbers(r) <= numbers(version)[:2]]


def numbers(version: str) -> list[int]:
    return list(map(int, version.split(".")))


@pytest.mark.slow
def test_what_was_to_be_gone_is_gone() -> None:
    for source in (ROOT / "src").rglob("*.py"):
        assert overdue(source.read_text("utf-8"), __version__) == [], source


def test_a_planted_deprecation_is_overdue_with_its_release() -> None:
    source = 'deprecated("a", "b", gone_in="0.10")'
    assert overdue(source, "0.9.3") == []
    assert overdue(source, "0.10.0") == ["0.10"]


@pytest.mark.parametrize("file", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")))
def test_issue_templates_are_forms(file: Path) -> None:
    form = yaml.safe_load(file.read_text("utf-8"))
    if file.name == "config.yml":
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_a_bug_report_has_what_the_doctor_found() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text("utf-8"))
    (field,) = (f for f in form["body"] if f.get("id") == "doctor")
    assert "melisma doctor --json" in field["attributes"]["label"]
    assert field["validations"]["required"]


def test_security_says_where_to_report_and_what_is_promised() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    assert "Report a vulnerability" in text
    assert "(docs/security.md)" in text
