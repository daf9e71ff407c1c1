"""What the README promises; `tests/docs/test_newcomer.py` runs what it shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from melisma.errors import InfeasibleError
from melisma.system import cell

README = Path(__file__).parents[1] / "README.md"


def test_the_first_lines_install_and_train() -> None:
    text = README.read_text(encoding="utf-8")
    first = re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)[0]
    commands = [line.partition("#")[0].strip() for line in first.splitlines()]
    assert commands[:2] == ["pip install melisma", "melisma run"]
    assert "uvx melisma run" in first
    assert "pipx run melisma run" in first


def test_runnable_code_comes_before_line_30() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert lines.index("```python") < 30
    assert len(lines) < 150


def test_every_link_leads_somewhere() -> None:
    for page in (README, *README.parent.glob("docs/*.md"), *README.parent.glob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", prose):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", sorted(README.parent.glob("docs/*.md")), ids=str)
def test_every_table_of_a_benchmark_says_commit_and_date(page: Path) -> None:
    for section in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE):
        # A table that follows the command, in the same section.
        if re.search(r"benchmarks/.*^\|[-:|]+\|$", section, re.DOTALL | re.MULTILINE):
            for fact in (r"\b[Cc]ommit [0-9a-f]{7}\b", r"\b20\d\d-\d\d-\d\d\b"):
                assert re.search(fact, section), section.splitlines()[0]


@pytest.mark.parametrize(
    "page", sorted(README.parent.glob("docs/papers/*.md")), ids=str
)
def test_every_study_of_a_paper_says_commit_and_date(page: Path) -> None:
    for study in re.findall(r"<summary>(.*?)</summary>", page.read_text("utf-8")):
        assert re.fullmatch(
            r"The \w+ study \(commit [0-9a-f]{7}(-dirty)? · .+ · 20\d\d-\d\d-\d\d"
            r"( · took [\w ]+)?\)",
            study,
        )


def test_the_scheme_that_contributing_shows_works() -> None:
    text = (README.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    room: dict[str, Any] = {}
    exec(code, room)
    allocation = room["fastest"](cell(4, 150.0))
    # The first laptop alone: 60,000 samples a step at 468 µs each, 1.9 s to come.
    assert allocation.samples.tolist() == [60_000, 0, 0, 0]
    assert allocation.steps.tolist() == [5, 0, 0, 0]
    with pytest.raises(InfeasibleError, match="no learner trains 60000 samples once"):
        room["fastest"](cell(4, 15.0))
