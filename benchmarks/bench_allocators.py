r"""Exact allocators: ours beside OLAR, Fed-LBAP, (MC)²MKP and ECMTC.

    python benchmarks/bench_allocators.py            half a minute
    python benchmarks/bench_allocators.py --quick    the smallest alone

Their problems, on their grids: 10 and 100 devices, 1,000 to 5,000 tasks; a device's
time is a + b·x with a and b drawn from [1, 10), its energy e·x with e from [0.32, 3.2).
Soonest is the least makespan; cheapest the least energy; by a deadline, the least
energy of what ends within 1.25 times the least makespan. Every pair has to come to the
same optimum, or the benchmark fails. Times are the best of three calls; tables of
costs, which the peers take and ours does not, are made beforehand and not counted.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

import numpy as np
import typer
from peers.allocators import ecmtc, fed_lbap, mc2mkp, olar
from rich.console import Console
from rich.table import Table

from melisma.maths.arrays import Floats, Ints
from melisma.maths.assignment import cheapest, soonest, within
from melisma.provenance import provenance

out = Console(width=110)
#: How much longer than the least makespan a deadline is.
RELAXED = 1.25


def best_s(solve: Callable[[], Ints], calls: int) -> tuple[Ints, float]:
    """Return a result, and the least time of so many calls."""
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        found = solve()
        times.append(time.perf_counter() - began)
    return found, min(times)


class Devices:
    """Devices with linear times and energies, as the papers draw them."""

    def __init__(self, devices: int, tasks: int, seed: int = 100) -> None:
        rng = np.random.default_rng([seed, devices, tasks])
        self.fixed, self.each = rng.uniform(1, 10, (2, devices))
        self.energy = rng.uniform(0.32, 3.2, devices)
        self.most, self.tasks = np.full(devices, tasks), tasks
        counts = np.arange(tasks + 1)
        self.times = self.fixed[:, None] + self.each[:, None] * counts
        self.times[:, 0] = 0.0  # who has nothing to do takes no time
        self.energies = self.energy[:, None] * counts

    def makespan(self, tasks: Ints) -> float:
        """Return when the last device is done."""
        return float(self.times[np.arange(len(tasks)), tasks].max())

    def joules(self, tasks: Ints) -> float:
        """Return what all devices need."""
        return float(self.energy @ tasks)


def same(ours: float, theirs: float, what: str) -> None:
    """Raise RuntimeError unless both optima are the same."""
    if not np.isclose(ours, theirs, rtol=1e-9):
        raise RuntimeError(f"{what}: ours is {ours!r}, theirs {theirs!r}")


def rows_of(
    devices: int, tasks: int, calls: int
) -> list[tuple[str, str, float, float]]:
    """Return problem, peer, its seconds and ours."""
    d = Devices(devices, tasks)
    first, ours_s = best_s(lambda: soonest(d.fixed, d.each, d.most, tasks), calls)
    end = d.makespan(first)
    rows = []
    peers: dict[str, Callable[[Floats, int], Ints]] = {
        "OLAR": olar,
        "Fed-LBAP": fed_lbap,
    }
    for name, peer in peers.items():
        found, theirs_s = best_s(partial(peer, d.times, tasks), calls)
        same(end, d.makespan(found), name)
        rows.append(("soonest", name, theirs_s, ours_s))
    least, ours_s = best_s(lambda: cheapest(d.energy, d.most, tasks), calls)
    found, theirs_s = best_s(lambda: mc2mkp(d.energies, tasks), 1)
    same(d.joules(least), d.joules(found), "(MC)²MKP")
    rows.append(("cheapest", "(MC)²MKP", theirs_s, ours_s))
    deadline = RELAXED * end

    def ours() -> Ints:
        return cheapest(d.energy, within(deadline, d.fixed, d.each, d.most), tasks)

    least, ours_s = best_s(ours, calls)
    found, theirs_s = best_s(lambda: ecmtc(d.energies, d.times, deadline, tasks), 1)
    same(d.joules(least), d.joules(found), "ECMTC")
    if d.makespan(least) > deadline:
        raise RuntimeError("ours is late")
    rows.append(("cheapest by a deadline", "ECMTC", theirs_s, ours_s))
    return rows


def main(
    *,
    quick: Annotated[bool, typer.Option(help="The smallest grid alone.")] = False,
) -> None:
    """Print a table of times, ours beside each peer's."""
    out.print(provenance(), soft_wrap=True)
    grid = [(10, 300)] if quick else [(10, 1000), (10, 5000), (100, 1000), (100, 5000)]
    table = Table(
        "devices", "tasks", "problem", "peer", "peer (ms)", "ours (ms)", "times"
    )
    for devices, tasks in grid:
        for problem, name, theirs_s, ours_s in rows_of(
            devices, tasks, 1 if quick else 3
        ):
            cells = f"{1e3 * theirs_s:.3g}", f"{1e3 * ours_s:.3g}"
            times = f"{theirs_s / ours_s:.0f}"
            table.add_row(str(devices), str(tasks), problem, name, *cells, times)
    out.print(table)
    out.print("All optima are the same.")


if __name__ == "__main__":
    typer.run(main)
