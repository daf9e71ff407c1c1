"""Commands that show runs: `report`, `runs`, `dashboard` and `export`."""

from pathlib import Path
from typing import Annotated

import typer

from melisma.cli.options import Json, Port, RunFolder
from melisma.cli.output import json_line, known, line, note, show
from melisma.errors import ConfigError


def report(run: RunFolder, as_json: Json = False) -> None:
    """Print what a run came to, and write its report: an offline page, and a CSV.

    Both go into the run's folder, which may be of a run that is still under way.
    """
    from melisma import views
    from melisma.cli.tables import moves, power, print_run

    page = views.write(run)
    job, records = views.read(run)
    if as_json and not job.tasks:
        rows = views.account(job, records)
        json_line(
            {
                "job": job.name,
                "scheme": job.scheme,
                "seed": job.seed,
                "report": str(page),
                "cycles": rows.cycles,
                "learners": rows.learners,
                "turns": rows.learner_cycles,
                "incidents": rows.incidents,
                **moves(records),
                **power(records),
            }
        )
        return
    print_run(job, run, records, as_json)
    if not as_json:
        line(f"Report: {page}")


def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER | RUN RUN…]",
            help="A folder of runs to list, or several runs to compare.",
            show_default="runs",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the runs in a folder, or show the results of several runs side by side."""
    folders = folders or [Path("runs")]
    if len(folders) == 1:
        _list_runs(folders[0], as_json)
        return
    from melisma.views.final import final
    from melisma.views.final import table as rows_of

    results = [final(folder) for folder in folders]
    if as_json:
        json_line(results)
        return
    from melisma.cli.tables import show_rows

    show_rows("", rows_of(results), "", *(result.id for result in results))


def _list_runs(root: Path, as_json: bool) -> None:
    """Print a line for each run, the latest first."""
    from datetime import datetime

    from melisma.views.library import Library

    summaries = Library(root).summaries()
    if as_json:
        json_line(summaries)
        return
    if not summaries:
        line(f"No runs in {root} yet.")
        return
    from melisma.cli.tables import table_of
    from melisma.views import scores

    # Where all runs have one metric, its name stands once, at the top.
    kinds = {run.metric for run in summaries if run.metric}
    title = scores.title(next(iter(kinds))) if len(kinds) == 1 else "metric"
    text = scores.cell if len(kinds) == 1 else scores.text
    table = table_of(
        *("run", "scheme", "state", "cycles", title.replace(" (", "\n("), "loss"),
        *("time\n(s)", "learners", "when"),
        text_columns=3,
    )
    table.columns[-1].justify = "left"
    table.columns[-1].no_wrap = table.columns[2].no_wrap = True
    for run in summaries:
        value = text(run.metric, run.value) if run.metric else "–"
        table.add_row(
            *(run.id, run.scheme, run.state),
            f"{run.cycles_done:,}/{run.cycles:,}",
            *(value, scores.plain(run.loss), known(run.time_s, 1)),
            f"{run.learners:,}",
            f"{datetime.fromtimestamp(run.modified):%d %b %H:%M}",
        )
    show(table)


def dashboard(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="Folder in which the runs are.")
    ] = Path("runs"),
    port: Port = 8765,
) -> None:
    """Show the runs in a folder in the browser of this machine, until Ctrl-C.

    A run that is under way has a dashboard of its own: the command that trains prints
    its link.
    """
    from melisma import rpc
    from melisma.views.web import Dashboard

    if not runs.is_dir():
        raise ConfigError(f"{runs} is no folder: give the one in which runs are kept")
    site = Dashboard(runs)
    with rpc.serve(port=port, routes=site.routes, say=lambda text: None) as server:
        note(f"Dashboard: {server.url}/   (Ctrl-C to end)")
        server.wait()


def export(
    run: RunFolder,
    to: Annotated[str, typer.Option(metavar="NAME", help="tensorboard or mlflow.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to write into.",
            show_default="RUN/tensorboard, or mlruns beside RUN",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's figures by cycle for TensorBoard or MLflow."""
    from melisma.errors import unknown
    from melisma.views.export import to_mlflow, to_tensorboard

    formats = {
        "tensorboard": (to_tensorboard, run / "tensorboard"),
        "mlflow": (to_mlflow, run.parent / "mlruns"),
    }
    if to not in formats:
        raise unknown("--to", to, formats)
    write, usual = formats[to]
    folder = folder or usual
    count = write(run, folder)
    if as_json:
        json_line({"folder": str(folder), "figures": count})
    else:
        line(f"{count:,} figures: {folder}")
