"""Pictures. Each function draws on the axes it is given and computes no result.

A scheme has one colour and one marker everywhere.
"""

import warnings
from collections.abc import Callable, Sequence
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
    "csa-relaxed": Look("#332288", "v"),
    "csa-sai": Look("#88CCEE", "^"),
    "csa-testbed": Look("#999999", "x"),
    "sync": Look("#009E73", "D"),
    "eta": Look("#D55E00", "P"),
    "dab": Look("#CC79A7", "*"),
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
}


#: A scheme that is not ours.
OTHER = Look("#000000", "o")


class Line(NamedTuple):
    """One scheme's curve: mean and half-width of its interval at each x."""

    scheme: str
    x: Floats
    mean: Floats
    half: Floats


def curves(ax: Axes, lines: Sequence[Line]) -> None:
    """Draw a line per scheme, named at its end, with its interval as a band."""
    for line in lines:
        look = LOOKS[line.scheme]
        ax.plot(line.x, line.mean, color=look.colour, marker=look.marker)
        if not np.isnan(line.half).any():
            ax.fill_between(
                line.x,
                line.mean - line.half,
                line.mean + line.half,
                color=look.colour,
                alpha=0.15,
                linewidth=0,
            )
    label_ends(
        ax,
        [
            (line.scheme, LOOKS[line.scheme].colour, float(line.mean[-1]))
            for line in lines
        ],
    )


def label_ends(ax: Axes, ends: Sequence[tuple[str, str, float]]) -> None:
    """Write (text, colour, height) beside the right edge, apart from one another."""
    ends = sorted(ends, key=lambda end: end[2])
    low, high = ax.get_ylim()
    # Heights that rise by at least a gap, as near to the true ones as can be.
    steps = 0.06 * (high - low) * np.arange(len(ends))
    heights = np.array([height for _, _, height in ends])
    apart = isotonic_regression(heights - steps).x + steps
    for (text, colour, _), height in zip(ends, apart, strict=True):
        ax.annotate(
            text,
            (1.0, height),
            xycoords=("axes fraction", "data"),
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
            # Learners choose their names; a sign that no font has is drawn as a box.
            warnings.filterwarnings("ignore", r"Glyph .* missing from font")
            figure.savefig(path)
