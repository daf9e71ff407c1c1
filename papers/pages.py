"""Pages of results: one for each paper, and a gallery of all. Generated, never typed.

What a page shows is kept beside it, in ``KEY/results.json``: who runs the quick
variant alone leaves what the page says of the full one as it was.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from melisma.errors import DataError

from .claims import Claim, Verdict
from .kit import Paper

Cells = Sequence[str]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as a page shows it."""

    what: str
    printed: str
    ours: str
    value: float
    half: float | None
    verdict: str
    holds_if: str
    why: str

    @classmethod
    def of(cls, claim: Claim) -> "Row":
        """Write a claim down."""
        return cls(
            what=claim.what,
            printed=claim.printed,
            ours=claim.shown,
            value=claim.ours.value,
            half=claim.ours.half,
            verdict=claim.verdict.value,
            holds_if=claim.rule.text,
            why=claim.reason,
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of an exhibit came to."""

    mark: str  #: of the run and its study
    made: str = ""  #: on which commit and CPU, and when
    study: dict[str, Any]
    caption: str
    picture: str | None  #: relative to the page
    table: list[list[str]]
    claims: list[Row]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A figure or table, in every variant that was run."""

    label: str
    title: str
    outcomes: dict[str, Outcome]  #: by variant


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page of a paper shows."""

    key: str
    title: str
    citation: str
    differences: list[str]
    shown: list[Shown]
    summary: list[list[str]] = []


def results_file(docs: Path, key: str) -> Path:
    """Where the results of a paper are kept."""
    return docs / key / "results.json"


def kept(docs: Path, paper: Paper) -> dict[str, dict[str, Outcome]]:
    """What is known already: outcomes by exhibit and variant."""
    file = results_file(docs, paper.key)
    if not file.exists():
        return {}
    return {shown.label: shown.outcomes for shown in _read(file).shown}


def _read(file: Path) -> Results:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Results)
    except msgspec.DecodeError as error:
        raise DataError(f"{file}: {error}: delete it, and run its paper") from error


def write(docs: Path, results: Results) -> Path:
    """Write results, page and gallery; return the page."""
    file = results_file(docs, results.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    page = docs / f"{results.key}.md"
    page.write_text("\n".join(page_lines(results)) + "\n", encoding="utf-8")
    every = [_read(one) for one in sorted(docs.glob("*/results.json"))]
    lines = "\n".join(gallery_lines(every)) + "\n"
    (docs / "README.md").write_text(lines, encoding="utf-8")
    return page


def page_lines(results: Results) -> Iterable[str]:
    """Lines of a paper's page."""
    command = f"melisma papers run {results.key}"
    yield f"# {results.title}\n"
    yield f"{results.citation}\n"
    yield f"Made by this command, as everything on this page:\n\n```\n{command} --quick"
    yield f"{command} --full\n```\n\n{_tally([results])}\n"
    if results.summary:
        yield from table(results.summary)
        yield ""
    yield "## Differences from the paper\n"
    yield from (f"{n}. {text}" for n, text in enumerate(results.differences, start=1))
    for shown in results.shown:
        yield f"\n## {shown.label}: {shown.title}\n"
        for variant, outcome in shown.outcomes.items():
            yield from _picture(f"{shown.label}, {variant}", outcome)
        yield from _claims(shown)
        for variant, outcome in shown.outcomes.items():
            yield from _details(variant, outcome)


def gallery_lines(every: Sequence[Results]) -> Iterable[str]:
    """Lines of the gallery."""
    yield "# The papers, regenerated\n"
    yield "Made by `make papers`, which runs the quick variant of all, and by"
    yield "`melisma papers run KEY --full`. How a verdict is made is said in"
    yield "[papers/claims.py](../../papers/claims.py), how a paper is added in"
    yield f"[papers/README.md](../../papers/README.md). {_tally(every)}\n"
    for results in every:
        yield f"## [{results.title}]({results.key}.md)\n"
        for shown in results.shown:
            # The full variant says more, where there is one.
            variant, outcome = list(shown.outcomes.items())[-1]
            yield f"### {shown.label}: {shown.title} ({variant})\n"
            yield from _picture(shown.label, outcome)
            heading = ["claim", "printed", "ours", "verdict"]
            rows = [[r.what, r.printed, r.ours, r.verdict] for r in outcome.claims]
            yield from table([heading, *rows])
            yield ""


def _picture(name: str, outcome: Outcome) -> Iterable[str]:
    if outcome.picture:
        yield f"![{name}]({outcome.picture})\n"
    yield f"*{name}. {outcome.caption}*\n"
    if outcome.table:
        yield from table(outcome.table)
        yield ""


def _claims(shown: Shown) -> Iterable[str]:
    heading = ["claim", "printed", "run", "ours", "verdict", "holds if", "why"]
    rows = [
        [r.what, r.printed, variant, r.ours, f"**{r.verdict}**", r.holds_if, r.why]
        for variant, outcome in shown.outcomes.items()
        for r in outcome.claims
    ]
    if rows:
        yield from table([heading, *rows])
        yield ""


def _details(variant: str, outcome: Outcome) -> Iterable[str]:
    told = ", ".join(f"{name} = {value}" for name, value in outcome.study.items())
    made = f" ({outcome.made})" if outcome.made else ""
    summary = f"<details><summary>The {variant} study{made}</summary>"
    yield f"{summary}\n\n`{told}`\n\n</details>\n"


def table(rows: Sequence[Cells]) -> Iterable[str]:
    """A Markdown table, its heading first."""
    for n, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        if n == 0:
            yield "|" + "---|" * len(row)


def _tally(every: Sequence[Results]) -> str:
    """How many claims came out how, each by the last variant that was run."""
    count = Counter(
        row.verdict
        for results in every
        for shown in results.shown
        for row in list(shown.outcomes.values())[-1].claims
    )
    parts = ", ".join(f"{verdict} {count[verdict]}" for verdict in Verdict)
    return f"Claims judged: {count.total()} ({parts})."
