"""What ``melisma papers run`` does and prints."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from melisma.comparison import Engine

from . import KEYS, find, pages, regenerate
from .kit import Paper, Variant
from .pages import Outcome
from .regenerate import DOCS, PAGES
from .spread import Begin


def report(
    paper: Paper,
    full: bool,
    figure: str | None,
    engine: Engine,
    docs: Path = PAGES,
    *,
    out: Console | None,
    err: Console,
) -> dict[str, Any]:
    """Regenerate a paper, write its page to ``docs``, print and return its claims."""
    variant = Variant.FULL if full else Variant.QUICK
    with _bar(err) as (watch, begin):
        page, made = regenerate.regenerate(
            paper,
            variant,
            figure=figure,
            engine=engine,
            begin=begin,
            docs=docs,
            watch=watch,
            warn=lambda text: err.print(text, style="yellow", soft_wrap=True),
        )
    if out:
        for label, outcome in made.items():
            out.print(_table(f"{label}, {variant}", outcome))
        out.print(f"Written: {page}", highlight=False)
    claims = {label: outcome.claims for label, outcome in made.items()}
    return {"page": str(page), "variant": variant, "claims": claims}


def judge(keys: Sequence[str], *, out: Console | None, docs: Path = DOCS) -> list[Path]:
    """Judge papers again from what is kept of them; all of which something is."""
    written = []
    every = [key for key in KEYS if pages.results_file(docs, key).exists()]
    for paper in [find(key) for key in keys or every]:
        written.append(regenerate.judge(paper, docs))
        if out:
            out.print(f"Written: {written[-1]}", highlight=False)
    return written


@contextmanager
def _bar(err: Console) -> Iterator[tuple[Callable[[str], None], Begin]]:
    """A bar that names what is run, and moves with each trial that ends."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("trials"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=err, disable=not err.is_terminal, transient=True
    ) as progress:
        bar = progress.add_task("", total=None)

        def begin(trials: int) -> Callable[[], None]:
            progress.reset(bar, total=trials)
            return lambda: progress.advance(bar)

        yield lambda label: progress.reset(bar, total=None, description=label), begin


def _table(title: str, outcome: Outcome) -> Table:
    table = Table(
        "claim",
        "whose",
        "printed",
        "ours",
        "verdict",
        title=title,
        title_justify="left",
    )
    for row in outcome.claims:
        table.add_row(row.what, row.kind, row.printed, row.ours, row.verdict)
    return table
