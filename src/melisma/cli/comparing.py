"""`melisma compare`: schemes on one job, side by side."""

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli import options
from melisma.cli.output import json_line, line
from melisma.cli.progress import sweep_bar
from melisma.cli.sweeping import Spread, resumable
from melisma.errors import ConfigError

if TYPE_CHECKING:
    from melisma.jobs.schema import Job


@options.grouped
def compare(
    job_file: options.JobFile = None,
    *,
    schemes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Schemes, with commas between; `melisma schemes` lists them.",
            show_default="csa,eta,sync,dab; for several tasks med,mmtt,med-probe,"
            "mmtt-ideal; for a fog fog:alone,fog:windows,fog:rolling,fog:known",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Runs of each scheme, a seed each."),
    ] = 5,
    spread: Spread,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Go on with a comparison that was stopped: give the same job, schemes "
            "and seeds, and its folder.",
        ),
    ] = None,
    runs: options.Runs = Path("runs"),
    as_json: options.Json = False,
) -> None:
    """Simulate a job under several schemes and seeds; show means and 95 % intervals.

    Each run is kept as it ends, so a comparison that was stopped can go on. Beside the
    runs it leaves a picture and a report that opens offline.
    """
    job = options.read_job(job_file)
    names = _names(job, schemes)
    from melisma.cli.tables import show_comparison
    from melisma.comparison import report
    from melisma.comparison.outcomes import compare as compare_schemes
    from melisma.comparison.trials import SWEEP
    from melisma.jobs.files import dump
    from melisma.runs.store import run_folder

    if resume and not (resume / SWEEP).is_file():
        raise ConfigError(f"--resume {resume}: no comparison was begun there")
    kept = nullcontext(resume) if resume else run_folder(runs, f"{job.name}-compared")
    with (
        kept as folder,
        resumable(None if resume else folder),
        spread.over() as over,
        sweep_bar(f"{job.name}: {len(names) * seeds} runs", as_json) as begin,
    ):
        comparison = compare_schemes(job, names, seeds, folder, over, begin)
        report.write(comparison, dump(job), folder)
    if as_json:
        json_line({"folder": str(folder), "comparison": comparison})
        return
    show_comparison(comparison)
    for path in sorted(folder.glob("*.png")):
        line(f"Picture: {path}")
    line(f"Report:  {folder / report.PAGE}")
    line(f"Next: melisma dashboard {shlex.quote(str(folder))}")


def _names(job: "Job", schemes: str | None) -> list[str]:
    """Return the schemes to compare, each of which the job can have; ConfigError."""
    import msgspec

    from melisma.jobs.families import family_of

    if schemes is None:
        schemes = ",".join(family_of(job).usual)
    names = options.names_in(schemes)
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"--schemes {schemes!r}: give different names, e.g. csa,eta")
    for name in names:
        given = msgspec.structs.replace(job, scheme=name)
        family_of(given).check(given)
    return names
