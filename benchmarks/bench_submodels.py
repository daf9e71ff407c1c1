"""Submodels: what parts cost, and what slow devices add that train one.

    python benchmarks/bench_submodels.py            both, 60 s of learning, three seeds
    python benchmarks/bench_submodels.py --race     the second table alone
    python benchmarks/bench_submodels.py --quick    6 s, one seed, a small model

The first table has the share that is left of a model: of its parameters, of the bytes
both ways, of the operations by which a cycle is planned, and of the measured time of a
training step on this machine (batches of 32, one thread, the median of steps).

The second is a race on a virtual clock: 4 fast devices and 12 slow ones, each with
its own images of three classes, train by FedAvg for one pass. The slow ones need 6.5 s
for the whole model, and 2.7 s for half its width; a cycle ends after 3 s (*left out*,
*half the width*), or when the last one is done (*waited for*).
"""

from statistics import mean
from typing import Annotated, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from melisma.jobs.data_table import DataTable, Split
from melisma.jobs.schema import Job, LearnersTable, TrainingTable
from melisma.launch import build
from melisma.learning import models
from melisma.learning.losses import LOSSES
from melisma.learning.settings import Late
from melisma.learning.submodels import Example, submodel_of
from melisma.learning.submodels.cost import cost_of, measured_s, whole_of
from melisma.provenance import provenance
from melisma.runs import records
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

MODELS = ("ThreeNN", "ConvNet", "FashionNet", "CifarCNN")
SUBMODELS = ("width 0.75", "width 0.5", "width 0.25", "freeze 0.5")
HALF = "width 0.5"
out = Console(width=120)


class Share(NamedTuple):
    """What is left of a model in a part of it."""

    parameters: float
    transferred: float
    operations: float
    seconds: float


def share(name: str, written: str) -> Share:
    """Count and measure a part of a model."""
    model = models.build(name, seed=0)
    shape = (3, 32, 32) if name == "CifarCNN" else (1, 28, 28)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(32, *shape, generator=rng), torch.arange(32) % 10
    example = Example(LOSSES["cross-entropy"], {"x": x, "y": y})
    part = submodel_of(written).part(model, example)
    cost, whole = (cost_of(p, model, example) for p in (part, whole_of(model)))
    return Share(
        parameters=cost.parameters / whole.parameters,
        transferred=cost.fixed(whole),
        operations=cost.step(whole),
        seconds=measured_s(part.model, example) / measured_s(model, example),
    )


def job(late: Late, submodel: str | None, *, seed: int, quick: bool) -> Job:
    """Return the race of one arm."""
    # A small model in place of ThreeNN takes as long, by bandwidths and rates.
    bandwidth = 1e6 * (40_480 / 573_910 if quick else 1.0)
    fast = LearnersTable(
        name="fast",
        count=4,
        rate=SamplesPerSecond(1000),
        bandwidth=BytesPerSecond(10 * bandwidth),
    )
    slow = LearnersTable(
        name="slow",
        count=12,
        rate=SamplesPerSecond(130),
        bandwidth=BytesPerSecond(bandwidth),
        submodel=submodel,
    )
    return Job(
        name="race",
        model="TwoNN" if quick else "ThreeNN",
        scheme="fedavg",
        mode=Mode.FEDERATED,
        steps=1,
        cycles=1000,
        stop=f"time >= {6 if quick else 60} s",
        deadline=Deadline(3.0),
        late=late,
        seed=seed,
        data=DataTable(split=Split.LABELS, classes=3),
        training=TrainingTable(rate=0.1),
        learners=(fast, slow),
    )


ARMS: dict[str, tuple[Late, str | None]] = {
    "left out": (Late.DROP, None),
    "half the width": (Late.DROP, HALF),
    "waited for": (Late.WAIT, None),
}


def raced(arm: str, *, seed: int, quick: bool) -> list[tuple[float, float]]:
    """Return the times at which cycles ended, and the accuracy then."""
    late, submodel = ARMS[arm]
    seen: list[tuple[float, float]] = []

    def watch(record: records.Record) -> None:
        if isinstance(record, records.Evaluated):
            seen.append((record.time_s, record.metrics["accuracy"] or 0.0))

    build(job(late, submodel, seed=seed, quick=quick)).run(None, watch)
    return seen


def at(seen: list[tuple[float, float]], time_s: float) -> float:
    """Return the accuracy at a time: that of the last cycle before.

    >>> at([(3.0, 0.2), (6.0, 0.5)], 5.9), at([(3.0, 0.2)], 2.0)
    (0.2, 0.0)
    """
    return max(((t, a) for t, a in seen if t <= time_s), default=(0.0, 0.0))[1]


def main(
    *,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    quick: Annotated[bool, typer.Option(help="One model, and a short race.")] = False,
    race: Annotated[bool, typer.Option(help="No costs.")] = False,
) -> None:
    """Print what parts cost, and the race."""
    out.print(provenance(), soft_wrap=True)
    torch.set_num_threads(1)
    if not race:
        print_costs(quick=quick)
    print_race(seeds=1 if quick else seeds, quick=quick)


def print_costs(*, quick: bool) -> None:
    """Print the table of what parts cost."""
    table = Table("", "", "parameters", "bytes", "operations", "measured time")
    for name in ("ConvNet",) if quick else MODELS:
        for written in (HALF,) if quick else SUBMODELS:
            row = share(name, written)
            table.add_row(name, written, *(f"{value:.3f}" for value in row))
    out.print(table)


def print_race(*, seeds: int, quick: bool) -> None:
    """Print the table of the race."""
    times_s = (6,) if quick else (15, 30, 45, 60)
    table = Table("accuracy after", *(f"{t} s" for t in times_s), "cycles")
    for arm in ARMS:
        runs = [raced(arm, seed=s, quick=quick) for s in range(seeds)]
        cells = []
        for time_s in times_s:
            found = [at(seen, time_s) for seen in runs]
            cells.append(f"{mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")
        table.add_row(arm, *cells, str(len(runs[0])))
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
