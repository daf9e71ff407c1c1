"""A run as a notebook shows it: its last cycles in a table, its metric as a line.

Whoever shows a run again sees what has happened since: nothing is kept of it here.
"""

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

from melisma.jobs.schema import Job, tasks_of
from melisma.views import scores
from melisma.views.history import History

#: Cycles in the table, the newest last; size of the chart.
CYCLES, WIDTH, HEIGHT = 5, 320, 80


def html(
    job: Job,
    folder: Path | None,
    state: str,
    histories: Mapping[str, History],
    note: str = "",
) -> str:
    """Return a run as HTML without scripts: a part for the history of each task."""
    done = sum(len(history.loss) for history in histories.values())
    cycles = sum(task.cycles for task in tasks_of(job))
    where = "in memory" if folder is None else str(folder)
    facts = f"by {job.scheme}, {state}, {done} of {cycles} cycles, {where}"
    parts = [f"<p><b>{escape(job.name)}</b> {escape(facts)}</p>"]
    parts += [f"<p>{escape(note)}</p>"] if note else []
    for name, history in histories.items():
        if len(histories) > 1:
            parts.append(f"<p><b>{escape(name)}</b></p>")
        parts.append(_chart(history) + _table(history))
    return f"<div>{''.join(parts)}</div>"


def _table(history: History) -> str:
    """Return a table of the last cycles."""
    done = len(history.loss)
    if not done:
        return "<p>no cycle yet</p>"
    titles = ["cycle", "time (s)", *map(scores.title, history.kinds), "loss"]
    rows = [titles]
    for i in range(max(0, done - CYCLES), done):
        values = (
            scores.cell(kind, history.metrics[kind.name][i]) for kind in history.kinds
        )
        loss = scores.plain(history.loss[i])
        rows.append([str(i + 1), f"{history.time_s[i]:,.2f}", *values, loss])
    head, *body = (
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
        for tag, row in zip(["th"] + ["td"] * len(rows), rows, strict=False)
    )
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _chart(history: History) -> str:
    """Return *the* metric against time as a line, once there are two points."""
    points = [
        (time_s, value)
        for time_s, value in zip(history.time_s, history.metric, strict=True)
        if math.isfinite(value)
    ]
    if len(points) < 2:
        return ""
    times, values = zip(*points, strict=True)
    low, high = min(values), max(values)
    span_s, span = (times[-1] - times[0]) or 1.0, (high - low) or 1.0
    line = " ".join(
        f"{2 + (WIDTH - 4) * (t - times[0]) / span_s:.1f},"
        f"{2 + (HEIGHT - 4) * (high - value) / span:.1f}"
        for t, value in points
    )
    kind = history.kinds[0]
    label = (
        f"{scores.title(kind)} from {scores.cell(kind, values[0])} to "
        f"{scores.cell(kind, values[-1])} in {times[-1]:,.1f} s"
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" '
        'stroke-width="1.5"/></svg>'
    )
