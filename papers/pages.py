"""Pages of results: one for each paper, a gallery, an index. Generated, never typed.

What a page shows is kept beside it, in ``KEY/results.json``: who runs the quick
variant alone leaves what the page says of the full one as it was. A row keeps its
number, interval and rule, so that its verdict follows from the file alone; trials that
are small enough lie in ``KEY/trials``, from which all rows follow.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from melisma.errors import DataError

from .claims import Claim, Kind, Measured, Rule, Verdict, reason
from .kit import Paper

Cells = Sequence[str]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as it is kept."""

    what: str
    printed: str
    ours: str
    value: float
    half: float | None
    kind: Kind = Kind.PAPER
    holds_if: str  #: text of its rule
    verdict: Verdict
    why: str  #: where it does not hold

    @classmethod
    def of(cls, claim: Claim) -> "Row":
        """Write a claim down, to nine digits: CPUs differ in the last of sixteen."""
        value, half = claim.ours
        row = cls(
            what=claim.what,
            printed=claim.printed,
            ours=claim.shown,
            value=float(f"{value:.9g}"),
            half=None if half is None else float(f"{half:.9g}"),
            kind=claim.kind,
            holds_if=claim.rule.text,
            verdict=claim.verdict,
            why=claim.why,
        )
        return row.judged()

    def judged(self) -> "Row":
        """Judge it again, by what is kept of it."""
        verdict = Rule(self.holds_if).verdict(Measured(self.value, self.half))
        return msgspec.structs.replace(self, verdict=verdict)

    @property
    def reason(self) -> str:
        """Why it does not hold, or not as printed."""
        return reason(Rule(self.holds_if), Measured(self.value, self.half), self.why)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of an exhibit came to."""

    mark: str  #: of the run and its study
    made: str = ""  #: on which commit and CPU, and when
    study: dict[str, Any]
    caption: str
    picture: str | None  #: relative to the page
    trials: str | None = None  #: the file of the raw trials, likewise, where kept
    table: list[list[str]]
    claims: list[Row]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A figure or table, in every variant that was run."""

    label: str
    title: str
    outcomes: dict[str, Outcome]  #: by variant

    @property
    def last(self) -> Outcome:
        """The variant that says most: the full one, where there is one."""
        return list(self.outcomes.values())[-1]


class MainClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A main claim of a paper, and the row that judges it."""

    says: str
    label: str
    row: str


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page of a paper shows."""

    key: str
    title: str
    citation: str
    differences: list[str]
    takes: str | msgspec.UnsetType = msgspec.UNSET  #: how long its command does
    shown: list[Shown]
    main: list[MainClaim] = []
    summary: list[list[str]] = []

    def judging(self, claim: MainClaim) -> Row | None:
        """Return the row that judges a main claim, unless that was not run."""
        rows = [
            row
            for shown in self.shown
            if shown.label == claim.label
            for row in shown.last.claims
            if row.what == claim.row
        ]
        return rows[0] if rows else None


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
    """Write results, page, gallery and index; return the page."""
    file = results_file(docs, results.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    page = docs / f"{results.key}.md"
    every = [_read(one) for one in sorted(docs.glob("*/results.json"))]
    for name, lines in (
        (page, page_lines(results)),
        (docs / "gallery.md", gallery_lines(every)),
        (docs / "README.md", index_lines(every)),
    ):
        name.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def page_lines(results: Results) -> Iterable[str]:
    """Lines of a paper's page."""
    yield f"# {results.title}\n"
    yield "*You will know which of its claims hold here, and why the others do not.*\n"
    yield f"{results.citation}\n"
    command = f"melisma papers run {results.key}"
    yield "Made by these commands, as everything on this page:\n\n```"
    yield f"{command} --quick --docs\n{command} --full --docs\n```\n"
    if results.takes:
        yield f"{results.takes}\n"
    yield _tally([results])
    yield "[How verdicts are made](README.md#verdicts).\n"
    if results.main:
        yield "## Main claims\n"
        yield from table(_main_rows(results, own_page=True))
        yield ""
    if results.summary:
        yield from table(results.summary)
        yield ""
    yield "## Differences from the paper\n"
    yield from (f"{n}. {text}" for n, text in enumerate(results.differences, start=1))
    for shown in results.shown:
        yield f"\n## {shown.label}: {shown.title}\n"
        for variant, outcome in shown.outcomes.items():
            yield from _picture(f"{shown.label}, {variant}", outcome)
        main = [one.row for one in results.main if one.label == shown.label]
        yield from _claims(shown, main)
        for variant, outcome in shown.outcomes.items():
            yield from _details(variant, outcome)


INDEX = """# The papers, regenerated

*You will know what the papers promise, and how much of it holds.*

What became of each paper's main claims, by its abstract and conclusion. A verdict leads
to the row that it is of, with its rule; all other rows are on the papers' pages, and
with pictures in the [gallery](gallery.md). The [league](peers.md) races algorithms of
others. `make papers` makes the quick variants, from kept trials where there are some,
`melisma papers run KEY --full --docs` those of a paper's own size, and `melisma papers
judge` all pages from what is kept, without a run.
"""

VERDICTS = """## Verdicts

A rule is stated beside each claim before it is run. It names a range, and may name a
wider, weaker one: of *41 % less*, that it is less at all. The mean proposes a verdict,
and its 95 % interval bears it out or withdraws it
([papers/claims.py](../../papers/claims.py)):

| verdict | the mean lies | and the interval |
|---|---|---|
| **holds** | in the range | lies in the weaker range |
| **holds weaker** | in the weaker range | lies in it, and misses the range |
| **does not hold** | in neither | misses the range |
| **not decided** | anywhere else | more trials must tell |

So an interval that shrinks decides what was open, and overturns nothing. *Weaker* is
the statement, not the effect. A gain "by 46 %" or "by up to 46 %" has two sides;
"over", "within", "at most" and "only" have one. A row is a claim of the *paper*, or
*ours* (another reading, a prototype, theory, the league), or *given*: the setting was
built or calibrated to show it. Counted is the last variant that was run, the full one
before the quick.
"""


def index_lines(every: Sequence[Results]) -> Iterable[str]:
    """Lines of the index: main claims of all papers, then how all rows came out."""
    yield INDEX
    yield from table(_main_counts(every))
    yield ""
    for results in every:
        if results.main:
            yield f"## [{results.title}]({results.key}.md)\n"
            yield from table(_main_rows(results))
            yield ""
    yield VERDICTS
    yield "## All rows\n"
    yield from table(_counts(every))


def _main_counts(every: Sequence[Results]) -> list[list[str]]:
    """How many main claims of each paper came out how."""
    rows = [["main claims of", *(f"{verdict}" for verdict in Verdict)]]
    for results in every:
        judging = [row for one in results.main if (row := results.judging(one))]
        count = Counter(row.verdict for row in judging)
        if judging:
            link = f"[{results.title}](#{_anchor(results.title)})"
            rows.append([link, *(str(count[verdict]) for verdict in Verdict)])
    return rows


def _main_rows(results: Results, *, own_page: bool = False) -> list[list[str]]:
    """The main claims, each linked to its row."""
    rows = [["claim", "printed", "ours", "verdict", "why"]]
    page = "" if own_page else f"{results.key}.md"
    for claim in results.main:
        row = results.judging(claim)
        if row is None:
            rows.append([claim.says, "", "", "not run", ""])
        else:
            link = f"[{row.verdict}]({page}#{_anchor(claim.label, claim.row)})"
            given = " (given)" if row.kind == Kind.GIVEN else ""
            why = row.reason if own_page else _short(row.reason)
            rows.append([claim.says, row.printed, row.ours, link + given, why])
    return rows


def _short(why: str) -> str:
    """A reason up to the first pause of its own, after what the mean alone says."""
    found = re.match(r"(of the mean alone: [a-z ]+; )?.*?(?=[;.] |$)", why)
    return found.group() if found else why


def _anchor(*names: str) -> str:
    """The place of a row on its page, or of a heading, as its link has it."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(names).lower()).strip("-")


def _counts(every: Sequence[Results]) -> list[list[str]]:
    """Verdicts of each paper's own claims; how many other rows hold, of how many."""
    rows = [["", *(f"{verdict}" for verdict in Verdict), "ours: hold", "given: hold"]]
    total = {kind: Counter[Verdict]() for kind in Kind}
    for results in every:
        counts = tallied([results])
        rows.append([f"[{results.title}]({results.key}.md)", *_counted(counts)])
        for kind in Kind:
            total[kind] += counts[kind]
    return [*rows, ["all", *_counted(total)]]


def _counted(counts: dict[Kind, Counter[Verdict]]) -> list[str]:
    own, given = (counts[kind] for kind in (Kind.OWN, Kind.GIVEN))
    others = [f"{one[Verdict.HOLDS]} of {one.total()}" for one in (own, given)]
    return [*(str(counts[Kind.PAPER][verdict]) for verdict in Verdict), *others]


def gallery_lines(every: Sequence[Results]) -> Iterable[str]:
    """Lines of the gallery."""
    yield "# Gallery\n"
    yield "*You will have seen every figure and table of the papers, as they came.*\n"
    yield "Every figure, table and row of the [papers](README.md), in the last variant"
    yield f"that was run. {_tally(every)}\n"
    for results in every:
        yield f"## [{results.title}]({results.key}.md)\n"
        for shown in results.shown:
            variant = list(shown.outcomes)[-1]
            yield f"### {shown.label}: {shown.title} ({variant})\n"
            yield from _picture(shown.label, shown.last)
            heading = ["claim", "whose", "printed", "ours", "verdict"]
            rows = [
                [r.what, r.kind, r.printed, r.ours, r.verdict]
                for r in shown.last.claims
            ]
            yield from table([heading, *rows])
            yield ""


def _picture(name: str, outcome: Outcome) -> Iterable[str]:
    if outcome.picture:
        yield f"![{name}]({outcome.picture})\n"
    yield f"*{name}. {outcome.caption}*\n"
    if outcome.table:
        yield from table(outcome.table)
        yield ""


def _claims(shown: Shown, linked: Sequence[str]) -> Iterable[str]:
    """All rows; those of the last variant that are linked to have a name."""
    heading = ["claim", "whose", "printed", "run", "ours", "verdict", "holds if", "why"]
    rows = [heading]
    for variant, outcome in shown.outcomes.items():
        for r in outcome.claims:
            name = f'<a id="{_anchor(shown.label, r.what)}"></a>'
            place = name if outcome is shown.last and r.what in linked else ""
            verdict = f"**{r.verdict}**"
            cells = [place + r.what, r.kind, r.printed, variant, r.ours, verdict]
            rows.append([*cells, r.holds_if, r.reason])
    if len(rows) > 1:
        yield from table(rows)
        yield ""


def _details(variant: str, outcome: Outcome) -> Iterable[str]:
    told = ", ".join(f"{name} = {value}" for name, value in outcome.study.items())
    made = f" ({outcome.made})" if outcome.made else ""
    trials = f"[kept]({outcome.trials})" if outcome.trials else "not kept"
    summary = f"<details><summary>The {variant} study{made}</summary>"
    yield f"{summary}\n\n`{told}`\n\nIts raw trials are {trials}.\n\n</details>\n"


def table(rows: Sequence[Cells]) -> Iterable[str]:
    """A Markdown table, its heading first."""
    for n, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        if n == 0:
            yield "|" + "---|" * len(row)


def tallied(every: Sequence[Results]) -> dict[Kind, Counter[Verdict]]:
    """How many rows of each kind came out how, by the last variant that was run."""
    count = {kind: Counter[Verdict]() for kind in Kind}
    for results in every:
        for shown in results.shown:
            for row in shown.last.claims:
                count[row.kind][row.verdict] += 1
    return count


#: How a tally speaks of each kind.
SPOKEN = {
    Kind.PAPER: "Claims of the papers",
    Kind.OWN: "Rows of our own",
    Kind.GIVEN: "Given by construction or calibration",
}


def _tally(every: Sequence[Results]) -> str:
    """Each kind that there is, with its verdicts."""
    return " ".join(
        f"{SPOKEN[kind]}: {count.total()} ("
        + ", ".join(f"{verdict} {count[verdict]}" for verdict in Verdict)
        + ")."
        for kind, count in tallied(every).items()
        if count
    )
