"""A comparison's report: plots, and one HTML file that opens offline."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeGuard

import msgspec
import numpy as np
from matplotlib.figure import Figure

from melisma.comparison.outcomes import (
    AnyOutcome,
    Comparison,
    Outcome,
    TaskOutcome,
    cells,
    figure_of,
)
from melisma.jobs.columns import FOG_COLUMNS
from melisma.jobs.families import CENTRAL, FEDERATED, family_of_scheme, is_priced
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval
from melisma.views import offline, plots, scores
from melisma.views.differing import differing_of

RESULTS, PICTURE, PAGE = "comparison.json", "comparison.png", "report.html"
#: The second plot of a comparison of fog schemes.
COSTS_PICTURE = "costs.png"


def write(comparison: Comparison, config: str, folder: Path) -> None:
    """Write results, plots and page into ``folder``."""
    tasks = [outcome for outcome in comparison.finished if _is_of_tasks(outcome)]
    page = _write_tasks if tasks else _write_single
    page(comparison, config, folder)


def _is_of_tasks(outcome: AnyOutcome) -> TypeGuard[TaskOutcome]:
    return isinstance(outcome, TaskOutcome)


def _write_single(comparison: Comparison, config: str, folder: Path) -> None:
    shown = _single(comparison)
    plots.save(folder / PICTURE, lambda figure: metric_figure(figure, comparison))
    if priced(comparison):
        plots.save(
            folder / COSTS_PICTURE, lambda figure: costs_figure(figure, comparison)
        )
    curves = [_curve(outcome) for outcome in shown]
    costs = [_costs(outcome) for outcome in priced(comparison)]
    facts = _page(comparison, config, _notes(comparison))
    facts |= {"metric": shown[0].kinds[0], "curves": curves, "costs": costs}
    _leave(comparison, facts, folder)


def _single(comparison: Comparison) -> list[Outcome]:
    """Return the outcomes of a job with one task that did not fail."""
    return [o for o in comparison.finished if isinstance(o, Outcome)]


def _leave(
    comparison: Comparison,
    facts: dict[str, object],
    folder: Path,
) -> None:
    (folder / RESULTS).write_bytes(msgspec.json.encode(comparison))
    title = f"{comparison.job}: schemes compared"
    offline.write([{"comparison": facts}], folder / PAGE, title)


def _page(comparison: Comparison, config: str, notes: str) -> dict[str, object]:
    """Return the data of every comparison's page; a failed scheme's row is one text."""
    return {
        "job": comparison.job,
        "caption": caption(comparison),
        "titles": comparison.titles,
        "rows": [
            [outcome.scheme, f"failed: {outcome.failed}"]
            if outcome.failed
            else [outcome.scheme, *cells(outcome)]
            for outcome in comparison.outcomes
        ],
        "notes": notes,
        "curves": [],
        "costs": [],
        "changed": differing_of(config),
        "config": config,
    }


def _curve(outcome: Outcome) -> dict[str, object]:
    """Return the mean of *the* metric with half of its interval, by cycle and time."""
    mean, half = mean_interval(outcome.metric_over_seeds(outcome.kinds[0]))
    return {
        "scheme": outcome.scheme,
        "cycle": _cycles(outcome).tolist(),
        "time_s": _times_s(outcome).tolist(),
        "mean": mean.tolist(),
        "half": half.tolist(),
    }


def _costs(outcome: Outcome) -> dict[str, object]:
    """Return the cost per sample collected, in its parts."""
    means = {column.figure: figure_of(outcome, column).mean for column in FOG_COLUMNS}
    costs = {name: means[f"{name}_cost"] for name in plots.COSTS}
    return {"scheme": outcome.scheme, **costs}


def priced(comparison: Comparison) -> list[Outcome]:
    """Return the outcomes of schemes under which data have a price."""
    return [outcome for outcome in _single(comparison) if is_priced(outcome.scheme)]


def _write_tasks(comparison: Comparison, config: str, folder: Path) -> None:
    """Write results, plot and page of a job with several tasks into ``folder``."""
    plots.save(folder / PICTURE, lambda figure: tasks_figure(figure, comparison))
    notes = (
        "All tasks together: a metric is the mean over tasks, in the end, or each "
        "task's own where not all have it; the rest are means over cycles, halted "
        "learners counted until the deadline. Cost is of one cycle of each task."
    )
    _leave(comparison, _page(comparison, config, notes), folder)


def tasks_figure(figure: Figure, comparison: Comparison) -> None:
    """Draw the schemes' figures, one panel per figure."""
    shown = comparison.finished
    figure.set_size_inches(7.2, 1.3 + 0.5 * len(shown))
    panels = figure.subplots(2, -(-len(comparison.titles) // 2), sharey=True)
    for number, ax in enumerate(panels.flat):
        if number >= len(comparison.titles):
            ax.set_visible(False)
            continue
        for row, outcome in enumerate(shown):
            look, value = plots.look(outcome.scheme), outcome.figures()[number]
            half = 0.0 if math.isnan(value.half) else value.half
            ax.errorbar(
                value.mean, row, xerr=half, color=look.colour, marker=look.marker
            )
        ax.set_title(comparison.titles[number], fontsize="small")
        ax.set_yticks(range(len(shown)), [outcome.scheme for outcome in shown])
        ax.set_ylim(len(shown) - 0.5, -0.5)
        ax.margins(x=0.15)


def metric_figure(figure: Figure, comparison: Comparison) -> None:
    """Draw *the* metric against cycles, and against time on the learners' clock."""
    metric = _single(comparison)[0].kinds[0]
    by_cycle, by_time = figure.subplots(1, 2, sharey=True)
    plots.curves(by_cycle, _lines(comparison, _cycles))
    by_cycle.set(title="By cycle", xlabel="cycle", ylabel=scores.axis(metric))
    plots.curves(by_time, _lines(comparison, _times_s))
    by_time.set(title="By time", xlabel="time on the learners' clock (s)")


def costs_figure(figure: Figure, comparison: Comparison) -> None:
    """Draw the cost per sample collected, one bar per scheme."""
    shown = priced(comparison)
    figure.set_size_inches(7.2, 1.1 + 0.4 * len(shown))
    plots.costs(
        figure.subplots(),
        {
            outcome.scheme: {
                column.figure: figure_of(outcome, column) for column in FOG_COLUMNS
            }
            for outcome in shown
        },
    )


def _cycles(outcome: Outcome) -> Floats:
    return np.arange(1.0, len(outcome.histories[0].metric) + 1)


def _times_s(outcome: Outcome) -> Floats:
    return np.asarray(outcome.over_seeds("time_s").mean(axis=0))


def _lines(comparison: Comparison, x: Callable[[Outcome], Floats]) -> list[plots.Line]:
    return [
        plots.Line(
            outcome.scheme,
            x(outcome),
            *mean_interval(outcome.metric_over_seeds(outcome.kinds[0])),
        )
        for outcome in _single(comparison)
    ]


def caption(comparison: Comparison) -> str:
    """Say over how many seeds the figures are means."""
    seeds = len(comparison.seeds)
    if seeds == 1:
        return "One seed: no interval."
    return f"Mean of {seeds} seeds; bands and ± are 95 % intervals (Student's t)."


def _notes(comparison: Comparison) -> str:
    """Explain the figures."""
    schemes = [outcome.scheme for outcome in comparison.outcomes]
    kinds = _single(comparison)[0].kinds
    less = [kind.name for kind in kinds if not kind.more_is_better]
    ends = "Metrics and loss are of the last cycle"
    if less:
        ends += f" (of {' and '.join(less)} less is better)"
    if family_of_scheme(schemes[0]).columns is not FOG_COLUMNS:
        return (
            f"{ends}, the rest means over cycles. "
            "Staleness is the difference between learners in epochs."
        )
    notes = {
        FEDERATED: f"{FEDERATED} averages after every slot: its cycles are shorter. ",
        CENTRAL: f"{CENTRAL} is a yardstick, without costs. ",
    }
    return (
        f"{ends}. Costs and shares are sums over all slots, per sample collected; "
        "the unit cost is all costs together. "
        + "".join(notes.get(scheme, "") for scheme in schemes)
    )
