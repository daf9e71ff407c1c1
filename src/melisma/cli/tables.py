"""What a run, a benchmark or a comparison came to, as tables."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from rich.table import Table

from melisma.cli.output import json_line, known, line, show

if TYPE_CHECKING:
    from melisma.comparison.outcomes import Comparison
    from melisma.fog.traces import Trace
    from melisma.jobs.schema import Job
    from melisma.learning.forecast import Forecast
    from melisma.runs.records import Record
    from melisma.views.batteries import Battery
    from melisma.views.fog import Totals
    from melisma.views.history import History
    from melisma.views.ledger import LearnerTotals

T = TypeVar("T")
#: How each column shows what a row is about, by its title.
Columns = dict[str, Callable[[T], str]]

#: Learners that a table shows.
SHOWN = 30


def table_of(*titles: str, text_columns: int = 1) -> Table:
    """Return a table without rows: columns of text first, then of numbers."""
    table = Table(*titles, header_style="bold", box=None)
    for column in table.columns[text_columns:]:
        column.justify = "right"
    for column in table.columns[:text_columns]:
        column.overflow = "fold"
    return table


def show_rows(
    caption: str, rows: Iterable[Sequence[str]], *titles: str, text_columns: int = 1
) -> None:
    """Print rows of text as a table, under its caption."""
    table = table_of(*titles, text_columns=text_columns)
    for row in rows:
        table.add_row(*row)
    show(table, caption)


def show_costs(trace: "Trace", devices: Sequence[str]) -> None:
    """Print how long a sample took each device, and its links to others."""
    from melisma.fog.traces import series

    table = table_of("", "ms a sample", "spread", "autocorrelation")
    for k, name in enumerate(devices):
        ways = [trace.sample_s[:, k, j] for j in range(trace.devices) if j != k]
        for what, measured in (
            ("trains", trace.sample_s[:, k, k, None]),
            ("sends", np.column_stack(ways)),
        ):
            row = series(measured)
            table.add_row(
                f"{k}: {name} {what}",
                f"{1e3 * row.mean:.3f}",
                f"{row.spread:.2f}",
                known(row.autocorrelation, 2),
            )
    show(table, f"{trace.slots} slots; spread: σ of the logarithm over slots")


def print_run(job: "Job", folder: Path, records: "list[Record]", as_json: bool) -> None:
    """Print what a run came to, by learner and by cycle."""
    from melisma.jobs.families import family_of
    from melisma.views.history import history
    from melisma.views.summary import summary

    head = {"job": job.name, "scheme": job.scheme, "seed": job.seed}
    head |= {"folder": str(folder), "state": summary(folder).state}
    if job.tasks:
        _print_tasks(job, head, records, as_json)
        return
    if as_json:
        json_line(head | {"cycles": history(records)})
        return
    family = family_of(job)
    if family.moves_data:
        _show_devices(job, moves(records).get("devices", {}))
    else:
        _show_learners(job, records)
    _show_batteries(power(records).get("batteries", {}))
    _show_cycles(history(records), family.staleness)
    line(f"Configuration, records and model: {folder}")
    _print_next(folder)


def _print_tasks(
    job: "Job", head: dict[str, Any], records: "list[Record]", as_json: bool
) -> None:
    """Print how each of several tasks was served."""
    from melisma.jobs.schema import tasks_of
    from melisma.views.tasks import cells, served, titles

    tasks, refused = served(tasks_of(job), records)
    if as_json:
        json_line(head | {"tasks": tasks, "refused": refused})
        return
    columns = [titles(tasks.values())]
    columns += [cells(task, tasks.values()) for task in tasks.values()]
    rows = zip(*columns, strict=True)
    show_rows("Tasks: means over their cycles", rows, "", *tasks)
    for name, reason in refused.items():
        line(f"{name} was refused: {reason}")
    line(f"Configuration, records and model of each task: {head['folder']}")
    _print_next(Path(head["folder"]))


def _print_next(folder: Path) -> None:
    """Print what of a run can be opened, and the command that shows it."""
    from melisma.runs.files import MODEL
    from melisma.views.page import PAGE

    for what, name in (("Model", MODEL), ("Report", PAGE)):
        if (folder / name).exists():
            line(f"{what}: {folder / name}")
    line(f"Next: melisma report {shlex.quote(str(folder))}")


def _show_learners(job: "Job", records: "list[Record]") -> None:
    """Show what each learner was given and did, over all cycles."""
    from melisma.views.ledger import learner_cycles, totals

    learners, why = totals(learner_cycles(records)), dict[str, list[str]]()
    columns = _learner_columns(job, learners)
    table = table_of("learner", *columns)
    for learner in learners[:SHOWN]:
        if learner.cycles:
            table.add_row(
                learner.learner, *(cell(learner) for cell in columns.values())
            )
        else:
            table.add_row(learner.learner, "0", "sits out")
            why.setdefault(learner.outcome, []).append(learner.learner)
    show(table, "Learners: means over their cycles")
    for outcome, names in why.items():
        line(f"{outcome.capitalize()} ({', '.join(names)}).")
    if job.late_at_most:
        line(_kept(job.late_at_most, learners))
    _say_rest(learners, "learners")


def _learner_columns(
    job: "Job", learners: "list[LearnerTotals]"
) -> "Columns[LearnerTotals]":
    """Return the columns that a job's learners have something in."""
    columns: Columns[LearnerTotals] = {
        "cycles": lambda own: f"{own.cycles:,}",
        "samples": lambda own: known(own.samples, 0),
        "epochs": lambda own: known(own.steps, 1),
        "predicted\n(s)": lambda own: _or_its_own(own.predicted_s, 3),
        "measured\n(s)": lambda own: known(own.measured_s, 3),
        "error\n(%)": lambda own: known(own.off_percent, 1),
        "samples\ntrained": lambda own: known(own.trained, 0),
        "updates\nlost": lambda own: f"{own.lost:,}",
    }
    if job.late == "carry":
        columns["updates\ncarried"] = lambda own: f"{own.carried:,}"
    if job.late_at_most:
        columns["late\n(%)"] = lambda own: known(100 * own.late / own.cycles, 1)
        columns["reserve\n(%)"] = lambda own: _or_its_own(own.reserve, 1, 100)
    if any(learner.option for learner in learners):
        columns["option"] = lambda own: own.option
        columns["saved\n(MB)"] = lambda own: f"{own.saved_bytes / 1e6:,.1f}"
    if any(group.power for group in job.learners):
        columns["predicted\n(J)"] = lambda own: known(own.predicted_j, 2)
        columns["spent\n(J)"] = lambda own: known(own.spent_j, 2)
    return columns


def _or_its_own(value: float | None, digits: int, times: float = 1) -> str:
    """Return what was predicted of a learner, unless that predicts it itself."""
    return "its own" if value is None else known(times * value, digits)


def _kept(late_at_most: float, learners: "list[LearnerTotals]") -> str:
    cycles = sum(learner.cycles for learner in learners)
    late = sum(learner.late for learner in learners)
    share = f"{100 * late / cycles:.1f} %" if cycles else "none"
    return (
        f"Late: {share} of {cycles:,} cycles of learners; at most "
        f"{100 * late_at_most:g} % of each one's were promised."
    )


def moves(records: "list[Record]") -> dict[str, Any]:
    """Return what became of a fog's data, by device, by slot and by link."""
    from melisma.runs.records import Moved
    from melisma.views import fog

    moved = [record for record in records if isinstance(record, Moved)]
    if not moved:
        return {}
    return {
        "devices": fog.by_device(moved),
        "slots": fog.by_slot(moved),
        "flows": [(*pair, samples) for pair, samples in fog.flows(moved).items()],
    }


def _show_devices(job: "Job", devices: "dict[str, Totals]") -> None:
    """Show what each device of a fog did with its data, over all slots."""
    from melisma.jobs.families import is_priced

    priced = is_priced(job.scheme)
    columns: Columns[Totals] = {
        "collected": lambda own: f"{own.collected:,}",
        "trained": lambda own: f"{own.trained:,}",
        "sent": lambda own: f"{own.sent:,}",
        "arrived": lambda own: f"{own.arrived:,}",
        "discarded": lambda own: f"{own.discarded:,}",
        "cost": lambda own: known(own.cost if priced else None, 2),
    }
    caption = "Devices: samples, and what they cost, over all slots"
    _show_each("device", devices, columns, caption, "devices")


def power(records: "list[Record]") -> dict[str, Any]:
    """Return what became of each coded worker's battery, if they have any."""
    from melisma.runs.records import Powered
    from melisma.views.batteries import batteries

    found = batteries(r for r in records if isinstance(r, Powered))
    return {"batteries": found} if found else {}


def _show_batteries(batteries: "dict[str, Battery]") -> None:
    """Show what each worker's battery held, took and gave, over all cycles."""
    columns: Columns[Battery] = {
        "in the end\n(J)": lambda own: f"{own.end_j:,.1f}",
        "lowest\n(J)": lambda own: f"{own.lowest_j:,.1f}",
        "stored\n(J)": lambda own: f"{own.stored_j:,.1f}",
        "computing\n(J)": lambda own: f"{own.computing_j:,.1f}",
        "sending\n(J)": lambda own: f"{own.sending_j:,.1f}",
        "answers\nwaited (s)": lambda own: f"{own.waited_s:,.1f}",
    }
    caption = "Batteries: over all cycles"
    if batteries:
        _show_each("battery of", batteries, columns, caption, "batteries")


def _show_each(
    title: str, each: dict[str, T], columns: "Columns[T]", caption: str, what: str
) -> None:
    """Show a row for each, under the names that they have by ``title``."""
    shown = list(each.items())[:SHOWN]
    rows = ([name, *(cell(own) for cell in columns.values())] for name, own in shown)
    show_rows(caption, rows, title, *columns)
    _say_rest(each, what)


def _say_rest(rows: "Sequence[Any] | dict[str, Any]", what: str) -> None:
    if len(rows) > SHOWN:
        line(f"… and {len(rows) - SHOWN:,} more {what}")


def _show_cycles(course: "History", staleness: str) -> None:
    from melisma.views import scores

    last = "collected" if course.collected else f"staleness\n({staleness})"
    # Where the metric is the loss itself, that has its column already.
    kinds = [kind for kind in course.kinds if kind.name != "loss"]
    metrics = [scores.title(kind) for kind in kinds]
    titles = ("cycle", "time (s)", *metrics, "loss", "samples", last)
    table = table_of(*titles, text_columns=0)
    for i in range(len(course.time_s)):
        table.add_row(
            str(i + 1),
            f"{course.time_s[i]:.2f}",
            *(scores.cell(kind, course.metrics[kind.name][i]) for kind in kinds),
            scores.plain(course.loss[i]),
            f"{course.samples[i]:,}",
            f"{(course.collected or course.max_staleness)[i]:,}",
        )
    show(table, "Cycles")


def show_machine(forecast: "Forecast", title: str) -> None:
    """Show what a benchmark measured, and under which conditions."""
    machine = forecast.machine
    load = "not known" if machine.load is None else f"{machine.load:.2f}"
    rows = {
        "compute rate (samples/s)": f"{forecast.samples_per_s:,.0f}",
        "compute rate (shards/s)": f"{forecast.shards_per_s:,.2f}",
        "latency of a call (ms)": f"{1e3 * forecast.latency_s:.2f}",
        "matrix products (GFLOP/s)": f"{forecast.flops / 1e9:,.1f}",
        "threads, of cores": f"{machine.threads}, of {machine.cores}",
        "machine load before": load,
    }
    table = table_of("", "")
    table.show_header = False
    for name, value in rows.items():
        table.add_row(name, value)
    show(table, title)


def show_forecast(forecast: "Forecast", title: str) -> None:
    """Show what a cycle takes this machine: predicted, and trained if it was."""
    predictions = {
        "subset benchmark": forecast.subset_s,
        "FLOPS, machine-independent": forecast.flops_s,
    }
    rows = [
        (
            name,
            "not counted" if predicted_s is None else f"{predicted_s:.3f}",
            "" if forecast.trained_s is None else f"{forecast.trained_s:.3f}",
            "" if error is None else f"{error:+.1f}",
        )
        for (name, predicted_s), error in zip(
            predictions.items(), forecast.errors_percent, strict=True
        )
    ]
    caption = f"\nA cycle of this machine alone, no network: {title}"
    show_rows(caption, rows, "by", "predicted (s)", "trained (s)", "error (%)")
    line(
        "FLOPS: the model's operations, counted and not run, over the FLOP/s above."
        if forecast.flops_s is not None
        else "FLOPS: this model's operations cannot be counted: give workload.cycles."
    )


def show_comparison(comparison: "Comparison") -> None:
    """Show each scheme's figures in a column, and why others failed."""
    from melisma.comparison.outcomes import cells
    from melisma.comparison.report import caption

    finished = comparison.finished
    schemes = [outcome.scheme for outcome in finished]
    rows = zip(comparison.titles, *map(cells, finished), strict=True)
    show_rows(caption(comparison), rows, "", *schemes)
    for outcome in comparison.outcomes:
        if outcome.failed:
            line(f"{outcome.scheme} failed: {outcome.failed}")
