"""A run as a notebook shows it: its metric as a line, its last cycles in a table.

Both are drawn in the page's own colour, so that they stand on light and dark alike.
"""

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

from melisma.jobs.schema import Job, tasks_of
from melisma.views import scores
from melisma.views.history import History

#: Cycles in the table, the newest last.
CYCLES = 5
#: Size of the chart in pixels, its words included; a digit is about so wide.
WIDTH, HEIGHT, TOP, BOTTOM, DIGIT = 320, 136, 20, 18, 7


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
    blocks = []
    for name, history in histories.items():
        title = f"<p><b>{escape(name)}</b></p>" if len(histories) > 1 else ""
        blocks.append(f"<div>{title}{_chart(history)}{_table(history)}</div>")
    row = "display: flex; flex-wrap: wrap; gap: 0 2em"
    return f'<div>{"".join(parts)}<div style="{row}">{"".join(blocks)}</div></div>'


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
    kind = history.kinds[0]
    least, most = scores.cell(kind, low), scores.cell(kind, high)
    left, right, floor = (
        DIGIT * max(len(least), len(most)) + 8,
        WIDTH - 4,
        HEIGHT - BOTTOM,
    )
    line = " ".join(
        f"{left + (right - left) * (t - times[0]) / span_s:.1f},"
        f"{TOP + (floor - TOP) * (high - value) / span:.1f}"
        for t, value in points[:: -(1 + len(points) // WIDTH)][::-1]  # one a pixel
    )
    first, last = scores.cell(kind, values[0]), scores.cell(kind, values[-1])
    label = f"{scores.title(kind)} from {first} to {last} in {times[-1]:,.1f} s"
    x, y = line.rpartition(" ")[2].split(",")
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{escape(label)}" fill="currentColor" '
        f'font-size="11"><title>{escape(label)}</title>'
        + _words(left, 10, scores.axis(kind), "start")
        + _words(left - 6, TOP + 4, most, "end")
        + _words(left - 6, floor + 4, least, "end")
        + _words(left, HEIGHT - 4, f"{times[0]:,.2f} s", "start")
        + _words(right, HEIGHT - 4, f"{times[-1]:,.2f} s", "end")
        + f'<path d="M{left} {TOP}H{right}M{left} {floor}H{right}" '
        'stroke="currentColor" stroke-opacity="0.3"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" '
        f'stroke-width="1.5"/><circle cx="{x}" cy="{y}" r="3"/></svg>'
    )


def _words(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
