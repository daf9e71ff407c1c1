"""Plots. Each function draws on the axes it is given and computes no result.

A scheme has one colour and one marker everywhere.
"""

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from melisma.maths.arrays import Floats


class Look(NamedTuple):
    """How a scheme is drawn."""

    colour: str
    marker: str


#: Okabe and Ito's colours, which most colour-blind readers can tell apart.
LOOKS = {
    "csa": Look("#0072B2", "o"),
    "csa-strict": Look("#56B4E9", "s"),
    "csa-options": Look("#44AA99", "h"),
    "csa-relaxed": Look("#332288", "v"),
    "csa-sai": Look("#88CCEE", "^"),
    "csa-testbed": Look("#999999", "x"),
    "sync": Look("#009E73", "D"),
    "eta": Look("#D55E00", "P"),
    "dab": Look("#CC79A7", "*"),
    "dab-adaptive": Look("#882255", "d"),
    "med": Look("#0072B2", "o"),
    "mmtt": Look("#D55E00", "P"),
    "mmtt-ideal": Look("#000000", "s"),
    "med-probe": Look("#009E73", "D"),
    "med-learned": Look("#56B4E9", "v"),
    "rmed": Look("#CC79A7", "*"),
    "coded": Look("#009E73", "D"),
    "coded:uncoded": Look("#999999", "x"),
    "coded:cyclic": Look("#D55E00", "P"),
    "coded:fractional": Look("#E69F00", "s"),
    "coded:hetero": Look("#0072B2", "o"),
    "coded:two-stage": Look("#009E73", "D"),
    "fog": Look("#0072B2", "o"),
    "fog:rolling": Look("#0072B2", "o"),
    "fog:windows": Look("#009E73", "D"),
    "fog:known": Look("#000000", "s"),
    "fog:alone": Look("#999999", "x"),
    "fog:federated": Look("#D55E00", "P"),
    "fog:central": Look("#CC79A7", "*"),
}

#: The parts of a fog's cost, and their colours.
COSTS = {"process": "#0072B2", "transfer": "#E69F00", "error": "#D55E00"}


#: For users' own schemes.
_OTHERS = (
    Look("#000000", "o"),
    Look("#AA4499", "s"),
    Look("#117733", "^"),
    Look("#882255", "v"),
    Look("#DDCC77", "D"),
    Look("#44AA99", "P"),
)
OTHER = _OTHERS[0]


def look(scheme: str) -> Look:
    """Return a scheme's look; a user's own gets one by the hash of its name."""
    others = _OTHERS[zlib.crc32(scheme.encode()) % len(_OTHERS)]
    return LOOKS.get(scheme, others)


class Line(NamedTuple):
    """One scheme's curve: mean and half-width of its interval at each x."""

    scheme: str
    x: Floats
    mean: Floats
    half: Floats
    own: Look | None = None  #: that of its scheme, if not given


def curves(ax: Axes, lines: Sequence[Line]) -> None:
    """Draw a line per scheme, named at its end, with its interval as a band."""
    for line in lines:
        colour, marker = line.own or look(line.scheme)
        ax.plot(
            line.x,
            line.mean,
            color=colour,
            marker=marker,
            markevery=max(1, len(line.x) // 20),
        )
        if (known := np.isfinite(line.half)).any():
            ax.fill_between(
                line.x,
                line.mean - line.half,
                line.mean + line.half,
                where=known.tolist(),
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
    ends = [
        (line.scheme, (line.own or look(line.scheme)).colour, float(there[-1]))
        for line in lines
        if len(there := line.mean[np.isfinite(line.mean)])
    ]
    if ends:
        label_ends(ax, ends)


def costs(ax: Axes, rows: Mapping[str, Mapping[str, tuple[float, float, int]]]) -> None:
    """Draw a stacked bar for each scheme, with the interval of its total `cost`."""
    for row, means in enumerate(rows.values()):
        left = 0.0
        for name, colour in COSTS.items():
            mean = means[f"{name}_cost"][0]
            label = name if row == 0 else ""
            ax.barh(row, mean, 0.65, left, color=colour, label=label)
            left += mean
        total, half, _ = means["cost"]
        if not np.isnan(half):
            ax.errorbar(total, row, xerr=half, color="black", capsize=3, linewidth=1.2)
    ax.set(xlabel="cost per sample collected", ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.figure.legend(loc="outside upper left", ncols=len(COSTS))


def label_ends(
    ax: Axes, ends: Sequence[tuple[str, str, float]], gap: float = 0.06
) -> None:
    """Write (text, colour, height) beside the right edge, apart from one another.

    By a ``gap``, as a share of the edge: lower panels need a larger one.
    """
    ends = sorted(ends, key=lambda end: end[2])
    scaled = ax.yaxis.get_transform().transform  # of a logarithmic axis, too
    low, high = scaled(np.array(ax.get_ylim()))
    # Heights that rise by at least a gap, as near to the true ones as can be.
    steps = gap * np.arange(len(ends))
    heights = scaled(np.array([height for _, _, height in ends]))
    shares = np.clip((heights - low) / (high - low), 0.0, 1.0)
    apart = isotonic_regression(shares - steps).x + steps
    for (text, colour, _), height in zip(ends, apart, strict=True):
        ax.annotate(
            text,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def save(path: Path, draw: Callable[[Figure], None]) -> None:
    """Make a figure in the project's style, have it drawn, and write it."""
    with (
        as_file(files("melisma") / "melisma.mplstyle") as style,
        mpl.rc_context(fname=style),
    ):
        figure = Figure()
        draw(figure)
        with warnings.catch_warnings():
            # Learners choose their names: a character missing in the font is a box.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font")
            figure.savefig(path)
