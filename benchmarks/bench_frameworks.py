"""Seconds to an accuracy on unlike learners: Flower's and NVFlare's programs, and ours.

    PYTHONPATH=. python benchmarks/bench_frameworks.py    # in the project's folder
    PYTHONPATH=. python benchmarks/bench_frameworks.py --quick --only ours

Six learners have 667 of 4,000 digits each and train TwoNN, one epoch an order, by SGD,
batch 32, rate 0.1. Delays are those of NVFlare's edge example over a hundred: an order
takes 1, 2 or 4 s, two learners each, and 0.05 s to travel. All clients sleep them,
batch by batch. Data, split, first model and test set are the same for all; each server
evaluates each model that it makes on the 1,000 test images. The clock runs from the
first learner's first order to the first model that is accurate enough. What comes
before is start-up, and apart: processes, connections, our learners' benchmarks.

    Flower FedAvg           SuperLink, six SuperNodes, its ServerApp and ClientApp
    Flower FedAvg, sim.     its simulation: six Ray actors, on real time
    NVFlare FedAvg          its recipe on its simulator: a process for each client
    NVFlare FedBuff         its edge mode's: six devices, threads of one client
    ours fedavg             the same work: an orchestrator and six processes
    ours async:fedbuff      the same orders, a buffer of three updates
    ours csa                half of a round's time, half of its samples in a cycle

Ways take turns within each seed, in an order that moves on by one from seed to seed.
Exit code 1 if one does not come to the target in ten minutes.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from peers.environments import lack_of, python_of
from peers.frameworks import Outcome, by_flower, by_nvflare, simulated_by_flower
from peers.setting import Setting
from rich.console import Console
from rich.table import Table

from melisma.jobs.schema import Job
from melisma.launch.local import run_locally
from melisma.maths.statistics import mean_interval
from melisma.provenance import provenance
from melisma.runs.records import Allocated, Evaluated, Record

#: Runs one setting in an empty folder.
Way = Callable[[Setting, Path], Outcome]

#: To see it run: two learners, and an accuracy after a few orders.
QUICK = Setting(order_s=(0.2, 0.8), target=0.3)

out = Console(width=120)


@dataclass(slots=True)
class _Watch:
    """Reads the clock at the first order, and at the first model that is accurate."""

    target: float
    began: float | None = None
    reached: float | None = None
    models: int = 0

    def __call__(self, record: Record) -> None:
        if isinstance(record, Allocated) and self.began is None:
            self.began = time.time()
        if isinstance(record, Evaluated) and self.reached is None:
            self.models += 1
            if (record.metrics["accuracy"] or 0.0) >= self.target:
                self.reached = time.time()


def by_ours(
    job_of: Callable[[Setting], Job], setting: Setting, folder: Path
) -> Outcome:
    """Run a job with its learners as processes that throttle themselves."""
    launched, watch = time.time(), _Watch(setting.target)
    run_locally(job_of(setting), folder / "run", watch)
    return Outcome.of(launched, watch.began, watch.reached, watch.models)


def ways_here() -> dict[str, Way]:
    """Return all ways that can be run here; say which cannot, and why."""
    ways: dict[str, Way] = {}
    if lack := lack_of({"flwr": "flwr", "ray": "ray"}):
        out.print(f"Flower is left out: {lack}", markup=False)
    else:
        ways["Flower FedAvg"] = by_flower
        ways["Flower FedAvg, sim."] = simulated_by_flower
    try:
        python = python_of("nvflare")
    except FileNotFoundError as error:
        out.print(f"NVFlare is left out: {error}", markup=False)
    else:
        ways["NVFlare FedAvg"] = partial(by_nvflare, python, "fedavg")
        ways["NVFlare FedBuff"] = partial(by_nvflare, python, "fedbuff")
    ways["ours fedavg"] = partial(by_ours, lambda setting: setting.job)
    ways["ours async:fedbuff"] = partial(by_ours, lambda setting: setting.buffered)
    ways["ours csa"] = partial(by_ours, lambda setting: setting.allocated)
    return ways


def show(outcomes: dict[str, list[Outcome]]) -> None:
    """Print the means of each way over its seeds."""
    table = Table("", "to the target (s)", "models", "s a model", "start-up (s)")
    for name, runs in outcomes.items():
        seconds, half = mean_interval([run.seconds for run in runs])
        table.add_row(
            name,
            f"{float(seconds):.1f} ± {float(half):.1f}",
            f"{mean(run.models for run in runs):.1f}",
            f"{mean(run.seconds / run.models for run in runs):.2f}",
            f"{mean(run.start_s for run in runs):.1f}",
        )
    out.print(table)


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Of split and first model.")] = 3,
    only: Annotated[str, typer.Option(help="Ways that have this in their name.")] = "",
    quick: Annotated[bool, typer.Option(help="Two learners, a low target.")] = False,
) -> None:
    """Run all ways in turn, and show their times to the target."""
    print(provenance(), flush=True)
    setting = QUICK if quick else Setting()
    ways = {name: way for name, way in ways_here().items() if only in name}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in ways}
    names = list(ways)
    for seed in range(seeds):
        for n in range(len(names)):
            name = names[(n + seed) % len(names)]
            load = os.getloadavg()[0]
            with TemporaryDirectory(prefix="melisma-") as folder:
                run = ways[name](replace(setting, seed=seed), Path(folder))
            outcomes[name].append(run)
            out.print(
                f"seed {seed}: {name}: {run.seconds:.1f} s, {run.models} models, after "
                f"{run.start_s:.1f} s of start-up (load before it {load:.1f})"
            )
    show(outcomes)


if __name__ == "__main__":
    typer.run(main)
