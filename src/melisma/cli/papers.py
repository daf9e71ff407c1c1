"""`melisma papers`: regenerate figures and tables, by the package of the papers."""

from importlib import import_module
from typing import Annotated, Any

import typer

from melisma.cli.help import Command, Group
from melisma.cli.options import Json, grouped
from melisma.cli.output import console, json_line
from melisma.cli.sweeping import Spread, resumable
from melisma.errors import ConfigError

app = typer.Typer(
    cls=Group,
    help="Regenerate the papers' figures and tables, and judge their claims.",
    no_args_is_help=True,
)


@app.command("list", cls=Command)
def list_papers(as_json: Json = False) -> None:
    """List the papers, and the figures and tables that can be regenerated of each."""
    package = _package()
    papers = {}
    for paper in map(package.find, package.KEYS):
        exhibits = [exhibit.name for exhibit in paper.exhibits]
        papers[paper.key] = {"title": paper.title, "exhibits": exhibits}
    if as_json:
        json_line(papers)
        return
    from melisma.cli.tables import show_rows

    rows = [(k, v["title"], ", ".join(v["exhibits"])) for k, v in papers.items()]
    show_rows("", rows, "key", "paper", "figures and tables", text_columns=3)


@app.command("run", cls=Command)
@grouped
def run_paper(
    key: Annotated[
        str, typer.Argument(help="The paper, as `melisma papers list` shows it.")
    ],
    *,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="The paper's own size, or one that takes minutes."
        ),
    ] = False,
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="One figure or table alone, as printed: 3.6."
        ),
    ] = None,
    docs: Annotated[
        bool,
        typer.Option(
            "--docs",
            help="Update docs/papers here, pictures, claims and raw trials.",
            show_default="write to runs/papers/pages",
        ),
    ] = False,
    spread: Spread,
    as_json: Json = False,
) -> None:
    """Run a paper's trials, draw its figures, and write runs/papers/pages/KEY.md.

    Where a data set is not to be had a smaller one stands in, and a line says so.
    Trials are kept in runs/papers as they end and not run again: the same command draws
    from them, and goes on with a run that was stopped.
    """
    paper = _package().find(key)
    with resumable(), spread.over() as over:
        report, place = _package("report"), _package("regenerate")
        into = place.DOCS if docs else place.PAGES
        out, err = console(), console(stderr=True)
        made = report.report(
            paper, full, figure, over, into, out=None if as_json else out, err=err
        )
    if as_json:
        json_line(made)


@app.command("judge", cls=Command)
def judge_papers(
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="The papers; all that are kept if none."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge the claims of papers again, and write their pages, without a run.

    From the raw trials that are kept in docs/papers/KEY/trials, and where there are
    none from the number, interval and rule of each row in docs/papers/KEY/results.json.
    """
    pages = _package("report").judge(keys or [], out=None if as_json else console())
    if as_json:
        json_line({"pages": [str(page) for page in pages]})


def _package(module: str = "") -> Any:
    """Return a module of the papers' package, which is no part of this one."""
    try:
        return import_module(".".join(filter(None, ("melisma_papers", module))))
    except ModuleNotFoundError as error:
        if error.name != "melisma_papers":
            raise
        raise ConfigError(
            "the papers are not installed: install melisma from a clone or its wheel"
        ) from error
