"""CSA, Fig. 2: staleness against the number of learners.

    python papers/csa.py            draws docs/papers/csa_fig2_staleness.png

Paper: U. Mohammad, S. Sorour, "Asynchronous Task Allocation for Federated and
Parallelized Mobile Edge Learning".

Differences from the paper:
1. `csa` is the exact integer optimum; the paper's curves are a relaxation, floored, and
   suggest-and-improve.
2. With K = 5 and 6 at 7.5 s not everyone can do a whole step; zero steps are allowed
   there, as the paper must have done.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from melisma import plots
from melisma.maths.arrays import Floats
from melisma.schemes.csa import csa
from melisma.schemes.eta import eta
from melisma.system import cell, max_staleness, mean_staleness

PICTURE = Path(__file__).parents[1] / "docs" / "papers" / "csa_fig2_staleness.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every number the figure depends on."""

    learners: tuple[int, ...] = tuple(range(5, 21))
    deadlines_s: tuple[float, ...] = (7.5, 15.0)
    samples: int = 60_000


#: (deadline in s, scheme) → a row per K: K, max and mean staleness.
Data = dict[tuple[float, str], Floats]


def run(study: Study) -> Data:
    """Allocate every cell by both schemes."""
    data: Data = {}
    for deadline_s in study.deadlines_s:
        for name in ("csa", "eta"):
            rows = []
            for learners in study.learners:
                problem = cell(learners, deadline_s, samples=study.samples)
                found = csa(problem, least_steps=0) if name == "csa" else eta(problem)
                steps = found.steps
                rows.append((learners, max_staleness(steps), mean_staleness(steps)))
            data[deadline_s, name] = np.array(rows, dtype=np.float64)
    return data


def figure(drawing: Figure, data: Data) -> None:
    """Draw one panel per deadline: max solid, mean dashed."""
    deadlines = sorted({deadline_s for deadline_s, _ in data})
    for ax, deadline_s in zip(
        drawing.subplots(1, len(deadlines), sharey=True), deadlines, strict=True
    ):
        ends: list[tuple[str, str, float]] = []
        for name in ("csa", "eta"):
            learners, greatest, mean = data[deadline_s, name].T
            look = plots.LOOKS[name]
            ax.plot(learners, greatest, color=look.colour, marker=look.marker)
            ax.plot(learners, mean, color=look.colour, linestyle="--")
            ends += [
                (f"{name} max", look.colour, float(greatest[-1])),
                (f"{name} mean", look.colour, float(mean[-1])),
            ]
        plots.label_ends(ax, ends)
        ax.set(title=f"T = {deadline_s:g} s", xlabel="learners K")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.axes[0].set_ylabel("staleness (steps)")


def main() -> None:
    """Print the table and draw the figure."""
    data = run(Study())
    print(f"{'T (s)':>6} {'scheme':>6} {'K':>3} {'max':>4} {'mean':>6}")
    for (deadline_s, name), rows in data.items():
        for learners, greatest, mean in rows:
            print(
                f"{deadline_s:6g} {name:>6} {learners:3.0f} {greatest:4.0f} {mean:6.3f}"
            )
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    plots.save(PICTURE, lambda drawing: figure(drawing, data))
    print(f"drawn: {PICTURE.name}")


if __name__ == "__main__":
    main()
