"""A comparison as a picture and as one HTML file that opens anywhere, offline."""

import base64
import math
from collections.abc import Callable
from html import escape
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.figure import Figure

from melisma import plots
from melisma.comparison import COLUMNS, Comparison, Outcome
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval

RESULTS, PICTURE, PAGE = "comparison.json", "accuracy.png", "report.html"


def write(comparison: Comparison, config: str, folder: Path) -> None:
    """Write results, picture and page into ``folder``."""
    (folder / RESULTS).write_bytes(msgspec.json.encode(comparison))
    plots.save(folder / PICTURE, lambda figure: accuracy_figure(figure, comparison))
    picture = (folder / PICTURE).read_bytes()
    (folder / PAGE).write_text(page(comparison, config, picture), encoding="utf-8")


def accuracy_figure(figure: Figure, comparison: Comparison) -> None:
    """Draw test accuracy against cycles, and against time on the learners' clock."""
    by_cycle, by_time = figure.subplots(1, 2, sharey=True)
    plots.curves(by_cycle, _lines(comparison, _cycles))
    by_cycle.set(title="By cycle", xlabel="cycle", ylabel="test accuracy (%)")
    plots.curves(by_time, _lines(comparison, _times_s))
    by_time.set(title="By time", xlabel="time on the learners' clock (s)")


def _cycles(outcome: Outcome) -> Floats:
    return np.arange(1.0, len(outcome.courses[0].accuracy) + 1)


def _times_s(outcome: Outcome) -> Floats:
    return np.asarray(outcome.over_seeds("time_s").mean(axis=0))


def _lines(comparison: Comparison, x: Callable[[Outcome], Floats]) -> list[plots.Line]:
    return [
        plots.Line(
            outcome.scheme,
            x(outcome),
            *mean_interval(100.0 * outcome.over_seeds("accuracy")),
        )
        for outcome in comparison.finished
    ]


def caption(comparison: Comparison) -> str:
    """How many runs stand behind the figures."""
    seeds = len(comparison.seeds)
    if seeds == 1:
        return "One seed: no interval."
    return f"Mean of {seeds} seeds; bands and ± are 95 % intervals (Student's t)."


def cells(outcome: Outcome) -> list[str]:
    """One scheme's row of the table, as text."""
    row = []
    for column in COLUMNS:
        mean, half = column.of(outcome)
        text = f"{mean:,.{column.digits}f}"
        row.append(text if math.isnan(half) else f"{text} ± {half:,.{column.digits}f}")
    return row


def page(comparison: Comparison, config: str, picture: bytes) -> str:
    """Return the report as HTML that needs no other file."""
    head = "".join(f"<th>{escape(column.title)}</th>" for column in COLUMNS)
    rows = "".join(_row(outcome) for outcome in comparison.outcomes)
    image = base64.b64encode(picture).decode()
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(comparison.job)}: schemes compared</title>
<style>{_STYLE}</style>
<h1>{escape(comparison.job)}: schemes compared</h1>
<p>{escape(caption(comparison))}</p>
<figure><img alt="Test accuracy of each scheme against cycles and against time"
src="data:image/png;base64,{image}"></figure>
<div class="wide"><table><thead><tr><th>scheme</th>{head}</tr></thead>
<tbody>{rows}</tbody></table></div>
<p>Accuracy and loss are of the last cycle, the rest means over cycles. Staleness
is the difference between learners in steps.</p>
<h2>The job</h2>
<pre>{escape(config)}</pre>
</html>
"""


def _row(outcome: Outcome) -> str:
    name = f"<th>{escape(outcome.scheme)}</th>"
    if outcome.failed:
        why = f"failed: {escape(outcome.failed)}"
        return f'<tr>{name}<td class="why" colspan="{len(COLUMNS)}">{why}</td></tr>'
    data = "".join(f"<td>{escape(cell)}</td>" for cell in cells(outcome))
    return f"<tr>{name}{data}</tr>"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto;
  padding: 0 1rem; }
figure { margin: 1rem 0; padding: .5rem; background: #fff; border-radius: 6px; }
img { width: 100%; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: right;
  white-space: nowrap; }
th:first-child, td.why { text-align: left; }
td.why { white-space: normal; }
pre { padding: 1rem; background: #8881; border-radius: 6px; overflow-x: auto; }
"""
