"""A million learners on paper: where a lone orchestrator stops, what a tree changes.

    python benchmarks/bench_scale.py --only live --json scale.json
    python benchmarks/scale_million.py scale.json --figure docs/figures/scale.png

Takes what `bench_scale.py` measured per learner, from its two largest sizes, and
passes cycles of a million learners through `melisma.system.tree`. Every node is a
process as measured, alone on a core and on a link of 1 Gb/s each way, 20 ms from its
children. Learners train until a common moment and then send, as with a deadline:
what counts is how long the model takes to everybody, and the updates back.

How much of the exchange's CPU is for sending was not measured: half of it. The last
line says what another split would change. Printed for docs/scale.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from bench_scale import Figures
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from peers.live_cost import Cost
from rich.console import Console
from rich.table import Table

from melisma.rpc import Limits
from melisma.system.tree import Level, cycle_through
from melisma.views.plots import save

LEARNERS = 1_000_000
LINK_BYTES_PER_S = 1e9 / 8
LATENCY_S = 0.02
CYCLE_S = 60.0  #: in which a wall is looked for
MEMORY_BYTES = 64e9
FILES = 1024  #: that a process may open by default
TREES = (
    (1_000_000,),
    (10_000, 100),
    (1_000, 1_000),
    (100, 10_000),
    (100, 100, 100),
    (40, 25, 25, 40),
    (10, 10, 10, 10, 10, 10),
)
#: Sixth powers, whose square and cube roots are whole numbers.
SIZES = [n**6 for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)]
COLOURS = {1: "#D55E00", 2: "#0072B2", 3: "#009E73"}  #: by levels

out = Console(width=110)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerLearner:
    """What one more learner costs an orchestrator in a cycle."""

    model: str
    ready_s: float
    exchange_s: float
    sent_bytes: float
    received_bytes: float
    records_bytes: float
    join_s: float  #: once
    memory_bytes: float  #: connected, and at most in a cycle

    @property
    def cpu_s(self) -> float:
        """Asking who is ready, and the exchange."""
        return self.ready_s + self.exchange_s

    def level(self, children: int, sending: float = 0.5) -> Level:
        """Return a node of so many children; ``sending`` is a share of the exchange."""
        return Level(
            children=children,
            hand_out_s=self.ready_s + sending * self.exchange_s,
            merge_s=(1 - sending) * self.exchange_s,
            send_s=self.sent_bytes / LINK_BYTES_PER_S,
            receive_s=self.received_bytes / LINK_BYTES_PER_S,
            latency_s=LATENCY_S,
        )


def calibrated(costs: Sequence[Cost]) -> list[PerLearner]:
    """Return each model's costs per learner, between its two largest sizes."""
    by_model: dict[str, list[Cost]] = {}
    for cost in costs:
        by_model.setdefault(cost.model, []).append(cost)
    return [
        _between(*sorted(sizes, key=lambda cost: cost.learners)[-2:])
        for sizes in by_model.values()
    ]


def _between(fewer: Cost, more: Cost) -> PerLearner:
    def each(meter: str) -> float:
        grown = getattr(more, meter) - getattr(fewer, meter)
        return float(grown / (more.learners - fewer.learners))

    return PerLearner(
        model=more.model,
        ready_s=each("ready_cpu_s"),
        exchange_s=each("exchange_cpu_s"),
        sent_bytes=each("sent_bytes"),
        received_bytes=each("received_bytes"),
        records_bytes=each("records_bytes"),
        join_s=each("join_cpu_s"),
        memory_bytes=each("connected_bytes") + each("cycle_bytes"),
    )


def exchange(levels: Sequence[Level]) -> tuple[float, float]:
    """Return the seconds until everybody has the model, and from then until the end."""
    started_s = cycle_through(levels, 0.0).started_s
    out_s = float(started_s.max())
    return out_s, cycle_through(levels, out_s - started_s).ended_s - out_s


def walls(own: PerLearner) -> Table:
    """Where a lone orchestrator stops, and what a million learners would take."""
    # First the model goes out to all, then all updates come in.
    link_s = (own.sent_bytes + own.received_bytes) / LINK_BYTES_PER_S
    rows = [
        ("open files", "1", FILES, f"{LEARNERS:,}"),
        ("connections (Limits)", "1", Limits().connections, f"{LEARNERS:,}"),
        _time(f"CPU of a cycle in {CYCLE_S:g} s", own.cpu_s, CYCLE_S),
        _time(f"link of 1 Gb/s in {CYCLE_S:g} s", link_s, CYCLE_S),
        (
            f"memory of {MEMORY_BYTES / 1e9:.0f} GB",
            f"{own.memory_bytes / 1e3:,.0f} kB",
            int(MEMORY_BYTES / own.memory_bytes),
            f"{LEARNERS * own.memory_bytes / 1e9:,.0f} GB",
        ),
        ("CPU of the roster", f"{1e3 * own.ready_s:.2f} ms", None, _long(own.ready_s)),
        ("CPU to join", f"{1e3 * own.join_s:.2f} ms", None, _long(own.join_s)),
        (
            "records on disk",
            f"{own.records_bytes:,.0f} B",
            None,
            f"{LEARNERS * own.records_bytes / 1e9:.2f} GB",
        ),
    ]
    table = Table(title=f"A lone orchestrator, {own.model}", title_justify="left")
    for column in ("wall", "a learner", "full at", f"{LEARNERS:,} learners"):
        table.add_column(column, justify="left" if column == "wall" else "right")
    for wall, each, full, all_of_them in rows:
        table.add_row(wall, each, "" if full is None else f"{full:,}", all_of_them)
    return table


def _time(wall: str, each_s: float, within_s: float) -> tuple[str, str, int, str]:
    return wall, f"{1e3 * each_s:.2f} ms", int(within_s / each_s), _long(each_s)


def _long(each_s: float) -> str:
    return f"{LEARNERS * each_s:,.0f} s"


def trees(own: PerLearner) -> Table:
    """A million learners in trees of several shapes."""
    table = Table(title=f"{LEARNERS:,} learners, {own.model}", title_justify="left")
    for column in (
        *("children, from the root", "aggregators", "model out (s)", "sums in (s)"),
        *("both (s)", "busiest node (GB)"),
    ):
        table.add_column(column, justify="right")
    for shape in TREES:
        out_s, in_s = exchange([own.level(children) for children in shape])
        nodes = np.cumprod(shape[:-1]).sum() if len(shape) > 1 else 0
        table.add_row(
            " × ".join(f"{children:,}" for children in shape),
            f"{int(nodes):,}",
            *(f"{out_s:,.1f}", f"{in_s:,.1f}", f"{out_s + in_s:,.1f}"),
            f"{max(shape) * own.memory_bytes / 1e9:,.2f}",
        )
    return table


def split_matters(own: PerLearner) -> float:
    """Return by what share another split of the CPU changes a tree's time."""
    times = [
        sum(exchange([own.level(n, share) for n in shape]))
        for shape in TREES
        for share in (0.5, 0.25, 0.75)
    ]
    half, *others = np.array(times).reshape(-1, 3).T
    return float(max(abs(other / half - 1).max() for other in others))


def against_size(own: PerLearner, depth: int) -> Iterator[tuple[int, float]]:
    """Seconds of exchange in balanced trees, by how many learners they have."""
    for size in SIZES:
        children = round(size ** (1 / depth))
        yield size, sum(exchange([own.level(children)] * depth))


def draw(ax: Axes, own: PerLearner) -> None:
    """Draw seconds of exchange against learners, one line for each depth."""
    for depth, colour in COLOURS.items():
        sizes, seconds = zip(*against_size(own, depth), strict=True)
        ax.loglog(sizes, seconds, color=colour)
        ax.annotate(
            "one orchestrator" if depth == 1 else f"tree, {depth} levels",
            (sizes[-1], seconds[-1]),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    title = f"{own.model}, {own.sent_bytes / 1e3:,.0f} kB"
    ax.set(title=title, xlabel="learners", ylabel="model out and updates in (s)")


def figure(models: Sequence[PerLearner], whole: Figure) -> None:
    """Draw one panel a model."""
    whole.set_size_inches(10.0, 3.6)
    panels = whole.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for ax, own in zip(panels, models, strict=True):
        draw(ax, own)
        ax.label_outer()


def main(
    figures: Annotated[Path, typer.Argument(metavar="scale.json")],
    picture: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE.png", help="Draw it, too.")
    ] = None,
) -> None:
    """Print walls and trees for a million learners."""
    measured = msgspec.json.decode(figures.read_bytes(), type=Figures)
    print(measured.provenance, flush=True)
    models = calibrated(measured.live)
    for own in models:
        out.print(walls(own))
        out.print(trees(own))
        out.print(f"another split of the CPU: {100 * split_matters(own):.0f} % at most")
    if picture:
        save(picture, lambda whole: figure(models, whole))


if __name__ == "__main__":
    typer.run(main)
