"""From a paper to its pictures, claims and page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from melisma.comparison import Engine, in_turn
from melisma.errors import DataError
from melisma.learning import data
from melisma.views import plots

from . import pages, store
from .kit import Data, Exhibit, Paper, Study, Variant
from .spread import Begin

#: Where the pages and raw trials of the repository lie, from the folder in which the
#: command is given.
DOCS = Path("docs/papers")
#: Where pages are written otherwise.
PAGES = Path("runs/papers/pages")


def regenerate(
    paper: Paper,
    variant: Variant,
    *,
    figure: str | None = None,
    engine: Engine = in_turn,
    begin: Begin = lambda trials: lambda: None,
    runs: Path = Path("runs"),
    docs: Path = PAGES,
    shipped: Path = DOCS,
    watch: Callable[[str], None] = lambda label: None,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[Path, dict[str, pages.Outcome]]:
    """Run what was not run before, draw all, write the page.

    Returns the page and what was made. Pages and raw trials are written to ``docs``;
    trials that ``shipped`` has are not run. ``watch`` is told what comes next, and
    ``begin`` how many trials that takes; ``warn`` is told which data set stands in for
    another. Raises ConfigError if there is no such figure, DataError if a data set is
    not to be had and nothing stands in for it.
    """
    made: dict[str, pages.Outcome] = {}
    for exhibit in paper.named(figure):
        watch(exhibit.label)
        # What takes no time has one study, and is shown once.
        own = Variant.QUICK if exhibit.quick == exhibit.full else variant
        folder = runs / "papers" / paper.key
        trials = trials_of(docs, paper.key)
        for study in exhibit.studies(own):
            store.take(folder, trials_of(shipped, paper.key), exhibit.run, study)
        study = available(exhibit, own, folder, warn)
        found = store.result(folder, exhibit.run, study, engine, begin)
        file = store.file_of(folder, exhibit.run, study)
        store.ship(file, trials)
        where = store.made(file)
        made[exhibit.label] = _outcome(paper, exhibit, own, study, found, where, docs)
        # Read again, since others may have written, and kept at once, since the next
        # may take an hour.
        known = pages.kept(docs, paper)
        known.setdefault(exhibit.label, {})[own] = made[exhibit.label]
        page = pages.write(docs, _results(paper, known))
    return page, made


def trials_of(docs: Path, key: str) -> Path:
    """The folder of a paper's raw trials."""
    return docs / key / "trials"


def judge(paper: Paper, docs: Path = DOCS) -> Path:
    """Judge again all that is known of a paper, without a run, and write its page.

    From raw trials where they are shipped, else by the number, interval and rule of
    each row. Nothing is drawn. DataError if nothing is known.
    """
    known = pages.kept(docs, paper)
    if not known:
        file = pages.results_file(docs, paper.key)
        raise DataError(f"{file}: nothing is kept of {paper.key}: run it first")
    for exhibit in paper.exhibits:
        outcomes = known.get(exhibit.label, {})
        for variant, outcome in outcomes.items():
            outcomes[variant] = _judged(exhibit, outcome, docs, paper.key)
    return pages.write(docs, _results(paper, known))


def _judged(
    exhibit: Exhibit[Any], outcome: pages.Outcome, docs: Path, key: str
) -> pages.Outcome:
    file = trials_of(docs, key) / f"{outcome.mark}.npz"
    if not file.exists():
        rows = [row.judged() for row in outcome.claims]
        return msgspec.structs.replace(outcome, claims=rows, trials=None)
    data = store.read(file)
    return msgspec.structs.replace(
        outcome,
        made=store.made(file) or outcome.made,
        table=exhibit.table(data) if exhibit.table else [],
        claims=[pages.Row.of(claim) for claim in exhibit.claims(data)],
        trials=file.relative_to(docs).as_posix(),
    )


def available(
    exhibit: Exhibit[Study],
    variant: Variant,
    folder: Path,
    warn: Callable[[str], None] = lambda text: None,
) -> Study:
    """The first study that was run before, or whose data set is to be had.

    ``warn`` is told why an earlier one is not. DataError if there is none.
    """
    studies = exhibit.studies(variant)
    for n, study in enumerate(studies, start=1):
        if store.kept(folder, exhibit.run, study):
            return study
        try:
            if (dataset := getattr(study, "dataset", None)) is not None:
                data.load(dataset)
        except DataError as error:
            if n == len(studies):
                raise
            other = getattr(studies[n], "dataset", "another")
            warn(f"{exhibit.label} is made with {other} in place of {dataset}: {error}")
        else:
            return study
    raise AssertionError("an exhibit has a study")


def _outcome(
    paper: Paper,
    exhibit: Exhibit[Any],
    variant: Variant,
    study: Any,
    found: Data,
    made: str,
    docs: Path,
) -> pages.Outcome:
    told = store.fields(study)
    file = store.file_of(trials_of(docs, paper.key), exhibit.run, study)
    picture = None
    if (draw := exhibit.draw) is not None:
        ending = "" if variant == Variant.QUICK else f"_{variant}"
        picture = f"{paper.key}/{exhibit.file}{ending}.png"
        (docs / paper.key).mkdir(parents=True, exist_ok=True)
        plots.save(docs / picture, lambda drawing: draw(drawing, found))
    return pages.Outcome(
        mark=store.mark(exhibit.run, study),
        made=made,
        study=told,
        caption=exhibit.caption.format(**{k: _said(v) for k, v in told.items()}),
        picture=picture,
        trials=file.relative_to(docs).as_posix() if file.exists() else None,
        table=exhibit.table(found) if exhibit.table else [],
        claims=[pages.Row.of(claim) for claim in exhibit.claims(found)],
    )


def _said(value: Any) -> Any:
    """A field of a study as a caption says it."""
    if isinstance(value, list | tuple):
        told = [f"({_said(v)})" if isinstance(v, list) else str(v) for v in value]
        return ", ".join(told)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


def _results(paper: Paper, known: dict[str, dict[str, pages.Outcome]]) -> pages.Results:
    """All that is known of a paper, but for results of studies that it has no more."""
    shown = []
    for exhibit in paper.exhibits:
        outcomes = {
            variant.value: outcome
            for variant in Variant
            if (outcome := known.get(exhibit.label, {}).get(variant))
            and outcome.mark
            in [store.mark(exhibit.run, study) for study in exhibit.studies(variant)]
        }
        if outcomes:
            shown.append(
                pages.Shown(label=exhibit.label, title=exhibit.title, outcomes=outcomes)
            )
    full = {
        one.title: one.outcomes[Variant.FULL].table
        for one in shown
        if Variant.FULL in one.outcomes
    }
    return pages.Results(
        key=paper.key,
        title=paper.title,
        citation=paper.citation,
        differences=list(paper.differences),
        takes=paper.takes or msgspec.UNSET,
        shown=shown,
        main=[
            pages.MainClaim(says=one.says, label=one.exhibit, row=one.row)
            for one in paper.main
        ],
        summary=paper.summary(full) if paper.summary and full else [],
    )
