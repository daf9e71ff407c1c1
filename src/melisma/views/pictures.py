"""Pictures of one run: they draw what they are given and compute no result."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from melisma.maths.arrays import Floats
from melisma.views.ledger import SITS_OUT, Cycle, Turn
from melisma.views.plots import LOOKS, OTHER, label_ends

DOWNLOAD, TRAINING, UPLOAD, WHOLE = "#56B4E9", "#0072B2", "#E69F00", "#7F8FA6"
LOST = "#D55E00"
#: Of tasks, in their order.
TASKS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288")


def courses(figure: Figure, scheme: str, cycles: Sequence[Cycle]) -> None:
    """Draw one run's accuracy and loss, by cycle and by time."""
    figure.set_size_inches(7.2, 4.2)
    look = LOOKS.get(scheme, OTHER)
    accuracy = np.array([100.0 * (cycle.accuracy or 0.0) for cycle in cycles])
    loss = np.array([_number(cycle.loss) for cycle in cycles])
    numbers = np.array([cycle.cycle for cycle in cycles])
    times_s = np.array([_number(cycle.time_s) for cycle in cycles])
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, x in enumerate((numbers, times_s)):
        for ax, y in zip(axes[:, column], (accuracy, loss), strict=True):
            marker = look.marker if len(cycles) <= 30 else ""
            ax.plot(x, y, color=look.colour, marker=marker)
    axes[0, 0].set(title="By cycle", ylabel="test accuracy (%)")
    axes[0, 1].set(title="By time")
    axes[1, 0].set(xlabel="cycle", ylabel="test loss (nats)")
    axes[1, 0].xaxis.set_major_locator(whole_numbers())
    axes[1, 1].set(xlabel="time on the learners' clock (s)")


class Span(NamedTuple):
    """A learner's part in one cycle of a task."""

    learner: str
    task: str
    began_s: float
    took_s: float
    halted: bool


def tasks(figure: Figure, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw each task's accuracy by time: (seconds, percent) of its cycles."""
    figure.set_size_inches(7.2, 3.2)
    ax = figure.subplots()
    ends = []
    for (name, points), colour in zip(lines.items(), cycle(TASKS), strict=False):
        if points:
            ax.plot(*zip(*points, strict=True), color=colour, marker="o")
            ends.append((name, colour, points[-1][1]))
    ax.set(xlabel="time on the learners' clock (s)", ylabel="test accuracy (%)")
    label_ends(ax, ends)


def service(
    figure: Figure,
    spans: Sequence[Span],
    learners: Sequence[str],
    tasks: Sequence[str],
) -> None:
    """Draw a lane for each learner, coloured by the task that it serves."""
    figure.set_size_inches(7.2, 1.2 + 0.21 * len(learners))
    ax = figure.subplots()
    colours = dict(zip(tasks, cycle(TASKS), strict=False))
    lanes = {name: lane for lane, name in enumerate(learners)}
    for span in spans:
        if span.learner in lanes:
            ax.barh(
                lanes[span.learner],
                span.took_s,
                left=span.began_s,
                height=0.7,
                color=colours[span.task],
                edgecolor="white",
                linewidth=0.5,
                hatch="////" if span.halted else "",
            )
    ax.set(xlabel="time on the learners' clock (s)", ylim=(len(learners) - 0.4, -0.6))
    ax.set_yticks(
        range(len(learners)), [short(name) for name in learners], parse_math=False
    )
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    handles = [Patch(color=colours[name], label=short(name)) for name in tasks]
    figure.legend(handles=handles, loc="outside upper left", ncols=6)


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def timeline(
    figure: Figure,
    turns: Iterable[Turn],
    learners: Sequence[str],
    cycles: Sequence[int],
    deadline_s: float,
) -> None:
    """Draw a lane for each learner and a panel for each cycle, against the deadline."""
    figure.set_size_inches(7.2, 1.1 + 0.21 * len(learners))
    lanes = {name: lane for lane, name in enumerate(learners)}
    panels = figure.subplots(1, len(cycles), sharex=True, sharey=True, squeeze=False)[0]
    of_cycle: dict[int, list[Turn]] = {number: [] for number in cycles}
    for turn in turns:
        if turn.cycle in of_cycle and turn.learner in lanes:
            of_cycle[turn.cycle].append(turn)
    for ax, number in zip(panels, cycles, strict=True):
        for turn in of_cycle[number]:
            _lane(ax, turn, lanes[turn.learner])
        ax.axvline(deadline_s, color="black", linewidth=1.0, linestyle="--")
        ax.set(title=f"Cycle {number}", xticks=[0.0, deadline_s])
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False)
    shown = [turn for group in of_cycle.values() for turn in group]
    last_s = max((t.measured_s or t.dropped_s or 0.0 for t in shown), default=0.0)
    panels[0].set_xlim(0.0, 1.08 * max(last_s, deadline_s))
    panels[0].set_ylim(len(learners) - 0.4, -0.6)
    panels[0].set_yticks(
        range(len(learners)), [short(name) for name in learners], parse_math=False
    )
    figure.supxlabel("seconds since the order", fontsize="medium")
    figure.legend(
        handles=_legend(shown),
        loc="outside upper left",
        ncols=8,
        fontsize="small",
        handlelength=1.0,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def _lane(ax: Axes, turn: Turn, lane: int) -> None:
    """Draw what one learner did in one cycle."""
    ends_s = (turn.downloaded_s, turn.trained_s, turn.measured_s)
    if turn.downloaded_s is None:
        bars = [(0.0, turn.measured_s or turn.dropped_s or 0.0, WHOLE)]
    else:
        d, t, u = (end_s or 0.0 for end_s in ends_s)
        bars = [(0.0, d, DOWNLOAD), (d, t, TRAINING), (t, u, UPLOAD)]
    faint = 0.35 if turn.dropped_s is not None else 1.0
    for left, right, colour in bars:
        ax.barh(lane, right - left, 0.62, left, color=colour, alpha=faint)
    if turn.predicted_s is not None and turn.samples:
        ax.plot(turn.predicted_s, lane, **_PREDICTED)
    if turn.halted and turn.trained_s is not None:
        ax.plot(turn.trained_s, lane, **_HALTED)
    elif turn.halted and turn.measured_s is not None:
        ax.plot(turn.measured_s, lane, **_HALTED)
    if turn.dropped_s is not None:
        ax.plot(turn.dropped_s, lane, **_DROPPED)
    elif turn.outcome == SITS_OUT:
        ax.plot(0.0, lane, **_SITTING)


_PREDICTED: dict[str, Any] = {"marker": "|", "ms": 9, "mew": 1.2, "color": "black"}
_HALTED: dict[str, Any] = {"marker": "D", "ms": 4.5, "color": "white", "mec": "black"}
_DROPPED: dict[str, Any] = {"marker": "X", "ms": 6, "color": LOST, "mec": "white"}
_SITTING: dict[str, Any] = {
    "marker": "o",
    "ms": 5,
    "color": "#AAAAAA",
    "clip_on": False,
}


def _legend(turns: Sequence[Turn]) -> list[Patch | Line2D]:
    """What the marks mean that are there."""
    told = any(turn.downloaded_s is not None for turn in turns)
    untold = any(turn.downloaded_s is None and turn.samples for turn in turns)
    marks: list[tuple[bool, Patch | Line2D]] = [
        (told, Patch(color=DOWNLOAD, label="download")),
        (told, Patch(color=TRAINING, label="training")),
        (told, Patch(color=UPLOAD, label="upload")),
        (untold, Patch(color=WHOLE, label="times not told")),
    ]
    for label, mark, there in (
        ("predicted", _PREDICTED, lambda turn: turn.predicted_s is not None),
        ("halted", _HALTED, lambda turn: turn.halted),
        ("does not count", _DROPPED, lambda turn: turn.dropped_s is not None),
        ("sits out", _SITTING, lambda turn: turn.outcome == SITS_OUT),
    ):
        handle = Line2D([], [], linestyle="none", label=label, **mark)
        marks.append((any(map(there, turns)), handle))
    return [handle for there, handle in marks if there]


def short(name: str, most: int = 20) -> str:
    """Return a name, cut if it is long."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def predictions(
    figure: Figure, turns: Sequence[Turn], cycles: Sequence[Cycle], deadline_s: float
) -> None:
    """Draw predicted against measured times, and by cycle how far they were off."""
    figure.set_size_inches(7.2, 3.4)
    scatter, by_cycle = figure.subplots(1, 2)
    known = [turn for turn in turns if turn.off_percent is not None]
    for halted, colour, label in (
        (False, TRAINING, "finished"),
        (True, "black", "halted"),
    ):
        some = [turn for turn in known if turn.halted == halted]
        scatter.plot(
            [turn.predicted_s or 0.0 for turn in some],
            [turn.measured_s or 0.0 for turn in some],
            "o",
            color=colour,
            alpha=min(0.6, max(0.05, 300 / len(known))),
            markersize=4.0 if len(known) < 1000 else 2.5,
            markeredgewidth=0.0,
            label=label,
        )
    _diagonal(scatter, deadline_s)
    scatter.set(title="Each learner in each cycle")
    scatter.set(xlabel="predicted (s)", ylabel="measured (s)")
    if any(turn.halted for turn in known):
        legend = scatter.legend(loc="lower right", handletextpad=0.1)
        for handle in legend.legend_handles:
            handle.set_alpha(1.0)
    off = [(c.cycle, c.off_percent) for c in cycles if c.off_percent is not None]
    marker = "o" if len(off) <= 30 else ""
    by_cycle.plot(*zip(*off, strict=True), color=TRAINING, marker=marker)
    by_cycle.set(title="Mean absolute error by cycle", xlabel="cycle", ylabel="off (%)")
    by_cycle.set_ylim(0.0, 1.1 * max(1.0, *(percent for _, percent in off)))
    by_cycle.xaxis.set_major_locator(whole_numbers())


def whole_numbers() -> MaxNLocator:
    """Return ticks for what is counted."""
    return MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)


def _diagonal(ax: Axes, deadline_s: float) -> None:
    """Make both axes alike, from 0, with the line of true predictions."""
    end_s = 1.05 * max(*ax.get_xlim(), *ax.get_ylim(), deadline_s)
    ax.set(xlim=(0.0, end_s), ylim=(0.0, end_s), aspect="equal")
    ax.plot([0.0, end_s], [0.0, end_s], color="black", linewidth=0.8)
    ax.axhline(deadline_s, color="black", linewidth=1.0, linestyle="--")
    ax.annotate(
        "deadline",
        (0.0, deadline_s),
        xytext=(3, 2),
        textcoords="offset points",
        fontsize="small",
    )


def overview(figure: Figure, spent: Floats, learners: Sequence[str]) -> None:
    """Draw how much of the deadline each learner used in each cycle; see `spent`."""
    figure.set_size_inches(7.2, 1.2 + min(0.16 * len(learners), 4.5))
    ax = figure.subplots()
    height, width = spent.shape
    extent = (0.5, width + 0.5, height + 0.5, 0.5)
    look: dict[str, Any] = {"aspect": "auto", "extent": extent}
    look["interpolation"] = "none"
    used = np.where(spent < 0, np.nan, 100.0 * spent)
    blues = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.15, 1.0, 256)))
    image = ax.imshow(used, cmap=blues, vmin=0.0, vmax=100.0, **look)
    lost = np.where(spent < 0, 1.0, np.nan)
    ax.imshow(lost, cmap=ListedColormap([LOST]), **look)
    figure.colorbar(image, label="of the deadline (%)", pad=0.01, aspect=30)
    ax.grid(visible=False)
    ax.set(xlabel="cycle", ylabel="learner")
    ax.xaxis.set_major_locator(whole_numbers())
    if height <= 30:
        names = [short(name) for name in learners]
        ax.set_yticks(range(1, height + 1), names, parse_math=False)
        ax.set_ylabel("")
