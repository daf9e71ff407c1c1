"""What it costs to have more of it: learners of one orchestrator, trials of a sweep.

    python benchmarks/bench_scale.py                      both; ten minutes
    python benchmarks/bench_scale.py --only live          learners
    python benchmarks/bench_scale.py --only sweeps        trials
    python benchmarks/bench_scale.py --json scale.json    for scale_million.py
    python benchmarks/bench_scale.py --learners 4 --turns 1 --trials 4    to see it run

Learners: an orchestrator and 10, 100 and 500 learners that are connected to it over TLS
on loopback, from two other processes. They train nothing: each fetches the model and
sends it back as its update, so that the orchestrator is all that works. CPU is that of
its process alone; bytes are those of its sockets, before TLS. TwoNN has 40,510
parameters, ``million`` 997,320. Each size is a process of its own, of six cycles, of
which the median counts; all sizes have three turns, of which the one with the least CPU
counts, since what else runs on a machine only makes it more. Growth is the slope of CPU
against learners, both logarithmic, from one size to the next: 1 is linear.

Trials: 64 of them on one and two processes of this machine and on Ray with two workers.
A trial hashes for about a tenth of a second; first it is timed alone in this process.
Overhead is what the 64 took beyond that, shared by the workers, over 64. Where cores
slow each other down, or others use them, that is in it: "trial" is what one took by its
own clock, and the engine's own is what is left beyond that. Starting counts apart.

Exit code 1 if an update is lost, or if CPU grows faster than learners do.

Shown here on two cores of a shared Xeon with nothing else on them; from "ready" on per
learner:

    TwoNN     CPU a cycle (s)  growth  ready (ms)   exchange (ms)  sent, received (kB)
    10        0.020                    0.39         1.42           162.4, 162.3
    100       0.163            0.92    0.25         1.36           162.4, 162.3
    500       0.983            1.12    0.22         1.74           162.4, 162.3

    million
    10        0.223                    0.70         19.89          3,990.3, 3,990.2
    100       1.518            0.83    0.24         14.79          3,990.3, 3,990.2
    500       8.080            1.04    0.43         15.70          3,990.3, 3,990.3

    64 trials of 91 ms
                      start (s)  empty (ms)  all (s)  overhead (ms)  engine's own (ms)
    one process       1.95       0.07        5.92     1.5            0.5
    two processes     2.06       0.05        2.99     1.3            0.3
    Ray, two workers  4.75       1.89        3.36     6.9            2.2
"""

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from peers import sweep_cost
from peers.environments import lack_of
from peers.live_cost import MILLION, Cost, measure
from peers.sweep_cost import Make, SweepCost
from rich.console import Console
from rich.table import Table

from melisma.comparison.sweeps import over_processes
from melisma.provenance import provenance

SIZES = (10, 100, 500)
MODELS = {"TwoNN": "TwoNN", "million": MILLION}  #: by their short names
ALL = ",".join(MODELS)
CYCLES, TURNS = 6, 3
TRIALS = 64
GROWTH_BAR = 1.15  #: 1 is linear; the rest is noise
LIMIT_S = 900.0  #: of one size

out, err = Console(width=120), Console(stderr=True)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured, and where."""

    provenance: str = ""
    live: list[Cost] = []
    sweeps: list[SweepCost] = []


Only = Annotated[str, typer.Option(help="live or sweeps.", show_default="both")]
Learners = Annotated[
    list[int] | None, typer.Option(min=2, help="Sizes. [10, 100, 500]")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the figures, too.")
]
Models = Annotated[str, typer.Option(help="Commas between.")]
Turns = Annotated[int, typer.Option(min=1, help="Of each size.")]
Trials = Annotated[int, typer.Option(min=1, help="Of a sweep.")]
Into = Annotated[Path | None, typer.Option(hidden=True)]


def main(
    only: Only = "",
    learners: Learners = None,
    json: JsonFile = None,
    models: Models = ALL,
    turns: Turns = TURNS,
    trials: Trials = TRIALS,
    into: Into = None,
) -> None:
    """Measure what learners and trials cost; exit code 1 if a bar is missed."""
    sizes = learners or list(SIZES)
    if into is not None:  # this is the process of one orchestrator
        cost = measure(MODELS[models], sizes[0], CYCLES, into)
        (into / "cost.json").write_bytes(msgspec.json.encode(cost))
        return
    if only not in ("", "live", "sweeps"):
        raise typer.BadParameter(f"--only {only}: live or sweeps")
    print(provenance(), flush=True)
    live, sweeps, sound = list[Cost](), list[SweepCost](), list[bool]()
    if only != "sweeps":
        for name in models.split(","):
            turn = [[measured(name, size) for size in sizes] for _ in range(turns)]
            costs = [
                min(size, key=lambda c: c.cpu_s) for size in zip(*turn, strict=True)
            ]
            lost = sum(cost.lost for sized in turn for cost in sized)
            sound.append(show(costs, lost))
            live += costs
    if only != "live":
        sweeps = list(swept(trials))
        out.print(table_of(sweeps))
    if json:
        figures = Figures(provenance=provenance(), live=live, sweeps=sweeps)
        json.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1))
    raise typer.Exit(0 if all(sound) else 1)


def measured(model: str, learners: int) -> Cost:
    """Measure one orchestrator, in a process of its own."""
    err.print(f"{model}, {learners} learners")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = [f"--into={folder}", f"--learners={learners}", f"--models={model}"]
        subprocess.run(
            [sys.executable, __file__, *options], check=True, timeout=LIMIT_S
        )
        return msgspec.json.decode(Path(folder, "cost.json").read_bytes(), type=Cost)


def show(costs: Sequence[Cost], lost: int) -> bool:
    """Print the figures of one model; return whether all is well."""
    first = costs[0]
    table = Table(
        title=f"{first.model}, {first.model_bytes / 1e3:,.0f} kB: "
        "the orchestrator, per learner and cycle",
        title_justify="left",
        box=None,
    )
    for column in (
        *("learners", "CPU a\ncycle (s)", "growth", "ready\n(ms)", "exchange\n(ms)"),
        *("sent\n(kB)", "received\n(kB)", "records\n(B)", "to join\n(ms)"),
        *("memory,\nidle (kB)", "in a\ncycle (kB)", "cycle\n(s)"),
    ):
        table.add_column(column, justify="right")
    growth = [math.nan, *(slope(a, b) for a, b in pairwise(costs))]
    for cost, steeper in zip(costs, growth, strict=True):
        K = cost.learners
        table.add_row(
            *(f"{K:,}", f"{cost.cpu_s:.3f}"),
            "" if math.isnan(steeper) else f"{steeper:.2f}",
            f"{1e3 * cost.ready_cpu_s / K:.2f}",
            f"{1e3 * cost.exchange_cpu_s / K:.2f}",
            f"{cost.sent_bytes / K / 1e3:,.1f}",
            f"{cost.received_bytes / K / 1e3:,.1f}",
            f"{cost.records_bytes / K:,.0f}",
            f"{1e3 * cost.join_cpu_s / K:.1f}",
            f"{cost.connected_bytes / K / 1e3:,.0f}",
            f"{cost.cycle_bytes / K / 1e3:,.0f}",
            f"{cost.cycle_s:.2f}",
        )
    out.print(table)
    linear = all(steeper <= GROWTH_BAR for steeper in growth[1:])
    out.print(f"{'yes' if linear else 'NO'}: grows no faster than learners do")
    if lost:
        out.print(f"NO: {lost} updates were lost")
    return linear and not lost


def slope(fewer: Cost, more: Cost) -> float:
    """Return d log CPU / d log learners between two sizes."""
    return math.log(more.cpu_s / fewer.cpu_s) / math.log(more.learners / fewer.learners)


def swept(trials: int) -> Iterator[SweepCost]:
    """Measure each engine."""
    engines: list[tuple[str, Make, int]] = [
        ("one process", partial(over_processes, 1), 1),
        ("two processes", partial(over_processes, 2), 2),
    ]
    if lack := lack_of({"ray": "ray"}):
        err.print(f"Ray is left out: {lack}", markup=False)
    else:
        from melisma.ray.sweeps import over_ray  # the orchestrator has no use for it

        engines.append(("Ray, two workers", partial(over_ray, cpus=2), 2))
    alone_s = sweep_cost.alone()
    for name, make, workers in engines:
        err.print(f"{trials} trials: {name}")
        yield sweep_cost.measure(name, make, workers, trials, alone_s)


def table_of(sweeps: Sequence[SweepCost]) -> Table:
    """Show what each engine adds to a trial."""
    table = Table(
        title=f"{sweeps[0].trials} trials of {1e3 * sweeps[0].alone_s:.0f} ms, alone",
        title_justify="left",
        box=None,
    )
    table.add_column("engine")
    for column in (
        *("start\n(s)", "an empty\ntrial (ms)", "all\ntrials (s)"),
        *("overhead\na trial (ms)", "trial\n(ms)", "engine's own\na trial (ms)"),
    ):
        table.add_column(column, justify="right")
    for one in sweeps:
        table.add_row(
            one.engine,
            f"{one.start_s:.2f}",
            f"{1e3 * one.empty_s / one.trials:.2f}",
            f"{one.busy_s:.2f}",
            f"{1e3 * one.overhead_s:.1f}",
            f"{1e3 * one.trial_s:.0f}",
            f"{1e3 * one.engine_s:.1f}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
