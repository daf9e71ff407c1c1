r"""What updates count (``[aggregation] weights``): time until the model is good.

    python benchmarks/bench_weights.py            six settings, ten seeds
    python benchmarks/bench_weights.py --quick    one of them, two seeds

Twelve simulated learners under CSA, with real gradients, on the 5,000 images of MNIST
that are always there. Data lies on the learners: evenly, by Dirichlet(0.3), by
Dirichlet(0.1), or two classes on each. Speeds differ by a factor of three ("alike"), or
of fifty ("unlike"), where fast ones take some fifty times as many steps. Shown is the
mean time to the setting's target with its 95 % interval; a run that has not come to it
counts as the limit. The last column is the accuracy after the last cycle, of runs that
go on to the limit.
"""

import math
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from melisma.jobs.schema import AggregationTable, DataTable, Job, LearnersTable, Split
from melisma.launch.simulate import simulate
from melisma.learning.settings import Weights
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.runs.records import Evaluated
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

SEEDS, LIMIT = 10, 40  #: cycles
#: Learners: how many, samples and bytes a second.
ALIKE = {"laptop": (3, 1600, 20e6), "jetson": (4, 1000, 10e6), "pi": (5, 600, 3e6)}
UNLIKE = {"laptop": (3, 5000, 20e6), "jetson": (4, 800, 10e6), "pi": (5, 100, 3e6)}
out, err = Console(width=120), Console(stderr=True)


class Setting(NamedTuple):
    """Where the data lies, and how fast learners are."""

    told: str
    data: DataTable
    devices: Mapping[str, tuple[int, float, float]]
    target: float  #: accuracy

    def run(self, weights: Weights, seed: int) -> tuple[float, float]:
        """Run it; return the time to its target, and the accuracy in the end."""
        job = Job(
            name="weights",
            mode=Mode.FEDERATED,
            cycles=LIMIT,
            deadline=Deadline(2.0),
            samples=1500,
            seed=seed,
            data=self.data,
            aggregation=AggregationTable(weights=weights),
            learners=tuple(
                LearnersTable(
                    name=name,
                    count=number,
                    rate=SamplesPerSecond(rate),
                    bandwidth=BytesPerSecond(speed),
                )
                for name, (number, rate, speed) in self.devices.items()
            ),
        )
        tested = [r for r in simulate(job) if isinstance(r, Evaluated)]
        accuracy = [r.metrics["accuracy"] or 0.0 for r in tested]
        times_s = [r.time_s for r in tested]
        there = [t for t, a in zip(times_s, accuracy, strict=True) if a >= self.target]
        return (there or times_s[-1:])[0], accuracy[-1]


def dirichlet(alpha: float) -> DataTable:
    """Return a split."""
    return DataTable(split=Split.DIRICHLET, alpha=alpha)


SETTINGS = (
    Setting("even, unlike", DataTable(), UNLIKE, 0.86),
    Setting("Dirichlet 0.3, alike", dirichlet(0.3), ALIKE, 0.86),
    Setting("Dirichlet 0.3, unlike", dirichlet(0.3), UNLIKE, 0.86),
    Setting("Dirichlet 0.1, alike", dirichlet(0.1), ALIKE, 0.80),
    Setting("Dirichlet 0.1, unlike", dirichlet(0.1), UNLIKE, 0.80),
    Setting("two classes, unlike", DataTable(split=Split.LABELS), UNLIKE, 0.75),
)


def measured(work: tuple[int, Weights, int]) -> tuple[float, float]:
    """Run a setting."""
    torch.set_num_threads(1)
    setting, weights, seed = work
    return SETTINGS[setting].run(weights, seed)


def mean_of(values: Floats, digits: int = 1) -> str:
    """Return the mean with its 95 % interval."""
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def main(
    *,
    settings: Annotated[str, typer.Option(help="Their numbers, as 1,3.")] = "",
    seeds: Annotated[int, typer.Option(min=2)] = SEEDS,
    quick: Annotated[bool, typer.Option(help="One setting and two seeds.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Print a table for each setting, as it is done."""
    out.print(provenance(), soft_wrap=True)
    asked = [int(n) - 1 for n in settings.split(",") if n] or range(len(SETTINGS))
    places, seeds = ([2], 2) if quick else (list(asked), seeds)
    with ProcessPoolExecutor(jobs) as pool:
        for place in places:
            setting = SETTINGS[place]
            work = [(place, w, n) for w in Weights for n in range(seeds)]
            found = pool.map(measured, work)
            done = track(found, setting.told, len(work), console=err, transient=True)
            rows = np.array(list(done)).reshape(len(Weights), seeds, 2)
            title = f"s to {100 * setting.target:g} %"
            table = Table(setting.told, title, "accuracy in the end (%)")
            for weights, row in zip(Weights, rows, strict=True):
                end = mean_of(100 * row[:, 1])
                table.add_row(weights.value, mean_of(row[:, 0]), end)
            out.print(table)


if __name__ == "__main__":
    typer.run(main)
