"""What docs/papers says is what its results say."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from papers import find
from papers.claims import Kind, Verdict
from papers.pages import Results, Row
from papers.regenerate import judge
from papers.store import SMALL_BYTES

DOCS = Path(__file__).parents[2] / "docs/papers"
KEYS = sorted(file.parent.name for file in DOCS.glob("*/results.json"))
Tally = dict[str, Counter[str]]


def results_of(key: str) -> Results:
    return msgspec.json.decode((DOCS / key / "results.json").read_bytes(), type=Results)


def rows_of(key: str) -> list[Row]:
    shown = [one for exhibit in results_of(key).shown for one in [exhibit.outcomes]]
    return [
        row for outcomes in shown for one in outcomes.values() for row in one.claims
    ]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def recounted(key: str) -> Tally:
    """Rows of the page itself, of the last variant of each exhibit."""
    found: Tally = {kind.value: Counter() for kind in Kind}
    for section in (DOCS / f"{key}.md").read_text("utf-8").split("\n## ")[1:]:
        lines = [cells(line) for line in section.splitlines() if line.startswith("| ")]
        rows = [line for line in lines if len(line) == 8 and line[5].startswith("**")]
        for row in rows:
            if row[3] == rows[-1][3]:
                found[row[1]][row[5].strip("*")] += 1
    return found


def told(text: str) -> dict[str, Counter[str]]:
    """What a line of tallies says of each kind."""
    names = {
        "Claims of the papers": "paper",
        "Rows of our own": "ours",
        "Given by construction or calibration": "given",
    }
    found: Tally = {kind.value: Counter() for kind in Kind}
    for name, total, inside in re.findall(r"([A-Z][a-z ]+): (\d+) \((.*?)\)", text):
        pairs = [part.rsplit(" ", 1) for part in inside.split(", ")]
        found[names[name]] = Counter(
            {verdict: int(n) for verdict, n in pairs if n != "0"}
        )
        assert found[names[name]].total() == int(total)
    return found


@pytest.mark.parametrize("key", KEYS)
def test_every_verdict_follows_from_what_is_kept(key: str) -> None:
    for row in rows_of(key):
        assert row.judged() == row, row.what


@pytest.mark.parametrize("key", KEYS)
def test_a_page_counts_what_it_shows(key: str) -> None:
    (line,) = re.findall(
        r"^(?:Claims of the papers|Rows of our own): .*$",
        (DOCS / f"{key}.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert told(line) == recounted(key)


def test_index_and_gallery_count_what_the_pages_show() -> None:
    every = {key: recounted(key) for key in KEYS}
    total = {
        kind.value: sum((e[kind] for e in every.values()), Counter()) for kind in Kind
    }
    gallery = (DOCS / "gallery.md").read_text("utf-8")
    (line,) = re.findall(r"^that was run\. (.*)$", gallery, re.MULTILINE)
    assert told(line) == total
    index = (DOCS / "README.md").read_text("utf-8").splitlines()
    for key, tally in [*every.items(), ("all", total)]:
        start = (
            "| all |" if key == "all" else f"| [{results_of(key).title}]({key}.md) |"
        )
        (row,) = [cells(line) for line in index if line.startswith(start)]
        counts = [str(tally["paper"][verdict]) for verdict in Verdict]
        others = [
            f"{tally[k]['holds']} of {tally[k].total()}" for k in ("ours", "given")
        ]
        assert row[1:] == counts + others, key


@pytest.mark.parametrize("key", KEYS)
def test_main_claims_have_rows_of_the_paper(key: str) -> None:
    results = results_of(key)
    assert len(results.main) == len(find(key).main)
    for claim in results.main:
        row = results.judging(claim)
        assert row is not None, claim.row
        assert row.kind != Kind.OWN, claim.row


@pytest.mark.parametrize("key", KEYS)
def test_every_link_to_a_row_has_its_place(key: str) -> None:
    page = (DOCS / f"{key}.md").read_text("utf-8")
    index = (DOCS / "README.md").read_text("utf-8")
    places = re.findall(r'<a id="(.*?)">', page)
    assert len(set(places)) == len(places) == len(results_of(key).main)
    assert set(re.findall(rf"\({key}\.md#(.*?)\)", index)) == set(places)


def test_the_league_has_no_claims_of_the_papers() -> None:
    assert {row.kind for row in rows_of("peers")} == {Kind.OWN}


@pytest.mark.parametrize("key", KEYS)
def test_one_fact_has_one_row(key: str) -> None:
    for exhibit in results_of(key).shown:
        for outcome in exhibit.outcomes.values():
            names = [row.what for row in outcome.claims]
            assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_judged_again_nothing_changes(key: str, tmp_path: Path) -> None:
    docs = tmp_path / "papers"
    shutil.copytree(DOCS, docs, ignore=shutil.ignore_patterns("*.png"))
    judge(find(key), docs)
    for name in (f"{key}.md", f"{key}/results.json", "gallery.md", "README.md"):
        assert (docs / name).read_text("utf-8") == (DOCS / name).read_text("utf-8")


def test_trials_are_small_and_each_is_shown() -> None:
    files = {file.relative_to(DOCS).as_posix() for file in DOCS.glob("*/trials/*.npz")}
    assert all((DOCS / file).stat().st_size <= SMALL_BYTES for file in files)
    shown: set[Any] = {
        outcome.trials
        for key in KEYS
        for exhibit in results_of(key).shown
        for outcome in exhibit.outcomes.values()
    }
    assert files == shown - {None}
