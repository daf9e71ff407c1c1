"""Pictures of a fog run: they draw what they are given and compute no result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from melisma.maths.arrays import Floats
from melisma.views.pictures import short, whole_numbers
from melisma.views.plots import COSTS

#: Of data by what became of them, in the colours of what that costs.
FATES = dict(zip(("kept", "offloaded", "discarded"), COSTS.values(), strict=True))


def costs(figure: Figure, cycles: Sequence[int], layers: Mapping[str, Floats]) -> None:
    """Draw by cycle what a sample that is collected costs, in parts."""
    figure.set_size_inches(7.2, 2.6)
    ax = figure.subplots()
    _stack(ax, cycles, layers, COSTS)
    ax.set(xlabel="cycle", ylabel="cost per sample collected")


def fates(figure: Figure, slots: Sequence[int], layers: Mapping[str, Floats]) -> None:
    """Draw by slot what became of the samples that were collected."""
    figure.set_size_inches(7.2, 2.6)
    ax = figure.subplots()
    _stack(ax, slots, layers, FATES)
    ax.set(xlabel="slot", ylabel="samples collected")


def _stack(
    ax: Axes,
    numbers: Sequence[int],
    layers: Mapping[str, Floats],
    colours: Mapping[str, str],
) -> None:
    edges = np.append(np.array(numbers) - 0.5, numbers[-1] + 0.5)
    base = np.zeros(len(numbers))
    for name, values in layers.items():
        top = base + values
        ax.stairs(top, edges, baseline=base, fill=True, color=colours[name], label=name)
        base = top
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0.0, 1.05 * base.max() or 1.0)
    ax.xaxis.set_major_locator(whole_numbers())
    ax.figure.legend(loc="outside upper left", ncols=len(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Devices, and what they sent to one another."""

    names: Sequence[str]
    trained: Floats  #: samples of each
    own: Floats  #: % that each kept of what it collected; NaN: nothing collected
    arrows: Sequence[tuple[int, int, float]]  #: from, to, samples


def graph(figure: Figure, told: Graph) -> None:
    """Draw devices as discs on a ring, and what they sent as arrows."""
    figure.set_size_inches(7.2, 6.2)
    ax = figure.subplots()
    turn = 2 * np.pi * np.arange(len(told.names)) / len(told.names)
    place = np.column_stack([np.sin(turn), np.cos(turn)])
    area = np.maximum(900.0 * told.trained / max(1.0, told.trained.max()), 18.0)
    radius = np.sqrt(area / np.pi)  # points
    _arrows(ax, told.arrows, place, radius)
    blues = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.1, 0.85, 256)))
    discs = ax.scatter(
        place[:, 0],
        place[:, 1],
        s=area,
        c=told.own,
        cmap=blues.with_extremes(bad="white"),
        vmin=0.0,
        vmax=100.0,
        plotnonfinite=True,
        edgecolors="black",
        linewidths=0.7,
        zorder=3,
    )
    for name, spot, points in zip(told.names, place, radius, strict=True):
        _name(ax, name, spot, points)
    label = "kept of what it collected (%)"
    figure.colorbar(discs, label=label, shrink=0.5, aspect=30, pad=0.02)
    ax.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.2, 1.2))
    ax.set_axis_off()


def _arrows(
    ax: Axes,
    arrows: Sequence[tuple[int, int, float]],
    place: Floats,
    radius: Floats,
) -> None:
    """Draw the widest last and darkest."""
    greys, most = mpl.colormaps["Greys"], max(samples for *_, samples in arrows)
    for source, target, samples in sorted(arrows, key=lambda arrow: arrow[2]):
        part = samples / most
        ax.add_patch(
            FancyArrowPatch(
                place[source],
                place[target],
                shrinkA=radius[source] + 1.0,
                shrinkB=radius[target] + 1.0,
                linewidth=0.5 + 3.0 * part,
                mutation_scale=6.0 + 6.0 * part,
                color=greys(0.3 + 0.5 * part),
                **_ARROW,
            )
        )


_ARROW: dict[str, Any] = {
    "connectionstyle": "arc3,rad=0.12",
    "arrowstyle": "-|>",
    "capstyle": "butt",
    "joinstyle": "miter",
    "zorder": 2,
}


def _name(ax: Axes, name: str, spot: Floats, radius: float) -> None:
    """Write a device's name outside the ring."""
    x, y = spot
    ax.annotate(
        short(name, 16),
        (x, y),
        xytext=((radius + 4.0) * x, (radius + 4.0) * y),
        textcoords="offset points",
        ha="center" if abs(x) < 0.1 else "left" if x > 0 else "right",
        va="center" if abs(y) < 0.95 else "bottom" if y > 0 else "top",
        fontsize="small",
        parse_math=False,
        zorder=4,
    )


def crowd(figure: Figure, between: Floats, names: Sequence[str]) -> None:
    """Draw samples sent from row to column; without names: by their numbers."""
    figure.set_size_inches(7.2, 6.2)
    ax = figure.subplots()
    size = len(between)
    image = ax.imshow(
        np.where(between > 0, between, np.nan),
        cmap="viridis_r",
        norm=LogNorm(1.0, max(10.0, between.max())),
        interpolation="none",
        extent=(0.5, size + 0.5, size + 0.5, 0.5),
    )
    figure.colorbar(image, label="samples sent", pad=0.01, aspect=30)
    ax.grid(visible=False)
    rank = "" if names else ", by rank"
    ax.set(xlabel=f"to{rank}", ylabel=f"from{rank}")
    if names:
        at = range(1, size + 1)
        cut = [short(name, 16) for name in names]
        look: dict[str, Any] = {"fontsize": 6, "parse_math": False}
        ax.set_xticks(at, cut, rotation=90, **look)
        ax.set_yticks(at, cut, **look)
