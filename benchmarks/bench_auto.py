r"""``deadline = "auto"`` against fixed deadlines: time until the model is good.

    python benchmarks/bench_auto.py            six settings, an hour or two on a core
    python benchmarks/bench_auto.py --quick    one of them, three deadlines, two seeds

Simulated runs of six unlike learners under CSA, with real gradients, until a target
accuracy on the test set. Each setting is run with twelve fixed deadlines, from the
shortest that is feasible under all seeds up, 1.5 times as long each, and with "auto".
A run that has not come to its target within the setting's limit, about three times the
best time, counts as that limit. Shown are the best, the median and the worst fixed
deadline, by the mean over seeds, and how much longer "auto" took than the best; ">"
says that some of the runs ended at the limit.

MNIST and Fashion-MNIST are the first 2,000 and 1,000 images of the real ones, which
are looked for as in a job ($MELISMA_DATA).

With ``--results`` every run is written to a file of JSON lines as it ends, and those
that are in it are not run again; ``--anew`` does run "auto" again.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn

from melisma.algorithms.allocating import allocate
from melisma.algorithms.auto import Work, shortest_s
from melisma.algorithms.task import Plan
from melisma.jobs.averaging import learners_of
from melisma.jobs.schema import DataTable, Job, LearnersTable, Split, TrainingTable
from melisma.launch.simulate import simulate
from melisma.learning import data
from melisma.learning.samples import column
from melisma.learning.settings import HERE
from melisma.provenance import provenance
from melisma.runs.records import Evaluated, Steered
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

AUTO = "auto"
LONGER = 1.5  #: than the deadline before
TRAIN, TEST = 2000, 1000
SAMPLES = 1000  #: of a cycle
#: Learners: how many, samples and bytes a second. Convolutions are four times as slow,
#: slow links fifteen times.
DEVICES = {"laptop": (1, 2000, 20e6), "jetson": (2, 1000, 10e6), "pi": (3, 400, 3e6)}
PERCEPTRON = TrainingTable(rate=0.1, batch=20)
CONVOLUTION = TrainingTable(rate=0.2, batch=50)
SEEDS = 10
CNN = "bench_auto:small_cnn"
out, err = Console(width=120), Console(stderr=True)


def small_cnn() -> nn.Module:
    """Make a small convolution, on images of half size."""
    return nn.Sequential(
        nn.AvgPool2d(2),
        nn.Conv2d(1, 8, kernel_size=3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


class Setting(NamedTuple):
    """What is trained, on what, and how good it is to be."""

    data: str
    model: str
    target: float  #: accuracy
    limit_s: float
    slow: bool = False  #: links
    alpha: float | None = None  #: of a Dirichlet split; None: IID

    @property
    def name(self) -> str:
        """In words."""
        links = "slow links" if self.slow else "fast links"
        model = "convolution" if self.model == CNN else "perceptron"
        split = f"Dirichlet {self.alpha}" if self.alpha else "IID"
        return f"{self.data}, {model}, {links}, {split}"

    def _cycles(self, deadline: float | str) -> int:
        """Return no more cycles than could end before the limit."""
        if isinstance(deadline, str):
            return 5000
        return max(1, int(self.limit_s / (0.9 * deadline)))

    def job(self, deadline: float | str, seed: int, folder: Path) -> Job:
        """Return a run of it."""
        slower = 4 if self.model == CNN else 1
        learners = tuple(
            LearnersTable(
                name=name,
                count=count,
                rate=SamplesPerSecond(rate / slower),
                bandwidth=BytesPerSecond(speed / (15 if self.slow else 1)),
            )
            for name, (count, rate, speed) in DEVICES.items()
        )
        return Job(
            name=AUTO,
            model=self.model,
            mode=Mode.FEDERATED if self.alpha else Mode.PARALLEL,
            cycles=self._cycles(deadline),
            samples=SAMPLES,
            stop=(f"accuracy >= {self.target}", f"time >= {self.limit_s} s"),
            deadline=Deadline.of(deadline),
            seed=seed,
            data=DataTable(
                train=str(folder / f"{self.data}-train.npz"),
                test=str(folder / f"{self.data}-test.npz"),
                split=Split.DIRICHLET if self.alpha else Split.IID,
                alpha=self.alpha or 0.5,
            ),
            training=CONVOLUTION if self.model == CNN else PERCEPTRON,
            learners=learners,
        )


SETTINGS = (
    Setting("mnist", "TwoNN", 0.84, 18.0),
    Setting("mnist", "TwoNN", 0.84, 42.0, slow=True),
    Setting("fashion-mnist", "TwoNN", 0.72, 60.0, slow=True, alpha=0.3),
    Setting("mnist", CNN, 0.84, 70.0),
    Setting("mnist", CNN, 0.79, 140.0, slow=True, alpha=0.3),
    Setting("fashion-mnist", CNN, 0.63, 64.0, alpha=0.3),
)


class Run(NamedTuple):
    """One run, and how it went."""

    setting: str
    deadline: float | str
    seed: int
    time_s: float = 0.0  #: to the target, or the limit
    reached: bool = False
    cycles: int = 0
    losses: tuple[float, ...] = ()
    deadlines_s: tuple[float, ...] = ()  #: that "auto" chose

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is a run of."""
        return self.setting, f"{self.deadline:.4g}" if self.fixed else AUTO, self.seed

    @property
    def fixed(self) -> bool:
        """Whether its deadline was given."""
        return self.deadline != AUTO


def write(names: Iterable[str], folder: Path) -> None:
    """Put the first samples of data sets into files, once for all runs."""
    for name in names:
        whole = data.load(name)
        for part, samples, number in (
            ("train", whole.train, TRAIN),
            ("test", whole.test, TEST),
        ):
            x, y = (column(samples, field)[:number].numpy() for field in ("x", "y"))
            np.savez(folder / f"{name}-{part}.npz", x=x, y=y)


def measured(setting: Setting, run: Run, folder: Path) -> Run:
    """Simulate a run, until its target or its limit."""
    if isinstance(run.deadline, float) and run.deadline > setting.limit_s / 0.9:
        return run._replace(time_s=setting.limit_s)  # one cycle takes longer
    torch.set_num_threads(1)
    records = simulate(setting.job(run.deadline, run.seed, folder))
    tested = [r for r in records if isinstance(r, Evaluated)]
    last = tested[-1]
    reached = (last.metrics["accuracy"] or 0.0) >= setting.target
    chosen = [r.deadline_s for r in records if isinstance(r, Steered)]
    return run._replace(
        time_s=min(last.time_s, setting.limit_s) if reached else setting.limit_s,
        reached=reached and last.time_s <= setting.limit_s,
        cycles=last.cycle,
        losses=tuple(round(r.loss or 99.0, 5) for r in tested),
        deadlines_s=tuple(float(f"{s:.4g}") for s in chosen),
    )


def deadlines_s(setting: Setting, number: int, folder: Path) -> list[float]:
    """Return the fixed ones."""

    def shortest(seed: int) -> float:
        task, crew = learners_of(setting.job(1.0, seed, folder), HERE)

        async def planned(deadline_s: float) -> Plan:
            return await allocate(replace(task, deadline_s=deadline_s), crew)

        samples = task.cycle_samples(crew.own_samples) // task.shard
        return asyncio.run(shortest_s(planned, Work(samples)))

    first_s = max(shortest(seed) for seed in range(SEEDS))
    return [float(f"{first_s * LONGER**n:.4g}") for n in range(number)]


class Results:
    """Runs that are done, in a file if one is given."""

    def __init__(self, path: Path | None, *, anew: bool) -> None:
        self._path, self.runs = path, dict[tuple[str, str, int], Run]()
        if path and path.exists():
            for line in path.read_text().splitlines():
                run = Run(**json.loads(line))
                self.runs[run.key] = run
        if anew:
            self.runs = {key: run for key, run in self.runs.items() if run.fixed}

    def add(self, run: Run) -> None:
        """Keep a run."""
        self.runs[run.key] = run
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps(run._asdict()) + "\n")

    def of(self, setting: Setting, deadline: float | str, seeds: int) -> list[Run]:
        """Return the runs of one deadline, one for each seed."""
        keys = (Run(setting.name, deadline, seed).key for seed in range(seeds))
        return [self.runs[key] for key in keys]


def done(work: list[Any], workers: int) -> Iterator[Run]:
    """Yield the results of ``work`` as they come, from so many processes."""
    if workers == 1:
        yield from (job() for job in work)
        return
    with ProcessPoolExecutor(workers) as pool:
        for future in as_completed([pool.submit(job) for job in work]):
            yield future.result()


def mean_s(runs: list[Run]) -> float:
    """Return the mean time."""
    return float(np.mean([run.time_s for run in runs]))


def shown(runs: list[Run]) -> str:
    """Return the mean time in words, and the deadline where one was given."""
    more = "" if all(run.reached for run in runs) else ">"
    at = f" ({runs[0].deadline:.3g})" if runs[0].fixed else ""
    return f"{more}{mean_s(runs):.4g}{at}"


def main(
    settings: Annotated[str, typer.Option(help="Their numbers, as 1,3.")] = "",
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS)] = SEEDS,
    deadlines: Annotated[int, typer.Option(min=1, help="Fixed ones.")] = 12,
    results: Annotated[Path | None, typer.Option(help="JSON lines.")] = None,
    anew: Annotated[bool, typer.Option("--anew", help='Run "auto" again.')] = False,
    workers: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    quick: Annotated[bool, typer.Option("--quick", help="Few, short.")] = False,
) -> None:
    """Print the time to the target of fixed deadlines and of "auto"."""
    numbers = [int(n) for n in settings.split(",") if n] or range(1, len(SETTINGS) + 1)
    chosen = [SETTINGS[n - 1] for n in numbers]
    if quick:
        seeds, deadlines = min(seeds, 2), min(deadlines, 3)
        chosen = [chosen[0]._replace(target=0.4, limit_s=6.0)]
    print(provenance(), flush=True)
    kept = Results(results, anew=anew)
    table = Table(
        *("setting", "target", "best (at)", "median (at)", "worst (at)", "auto", "+ %"),
        title="seconds to the target, mean over seeds (deadline in s)",
        box=None,
    )
    over = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write({setting.data for setting in chosen}, folder)
        for setting in chosen:
            fixed = deadlines_s(setting, deadlines, folder)
            every: list[float | str] = [*fixed, AUTO]
            wanted = [
                Run(setting.name, deadline, seed)
                for deadline in every
                for seed in range(seeds)
            ]
            work = [
                partial(measured, setting, run, folder)
                for run in wanted
                if run.key not in kept.runs
            ]
            with Progress(console=err, transient=True) as bar:
                task = bar.add_task(setting.name, total=len(work))
                for run in done(work, workers):
                    kept.add(run)
                    bar.advance(task)
            ranked = sorted((kept.of(setting, T, seeds) for T in fixed), key=mean_s)
            auto = kept.of(setting, AUTO, seeds)
            over.append(100 * (mean_s(auto) / mean_s(ranked[0]) - 1))
            fixed_cells = (ranked[n] for n in (0, len(ranked) // 2, -1))
            table.add_row(
                setting.name,
                f"{100 * setting.target:g} %",
                *map(shown, fixed_cells),
                shown(auto),
                f"{over[-1]:+.1f}",
            )
    out.print(table)
    out.print(f"mean {np.mean(over):+.1f} %, most {max(over):+.1f} %")
    if not quick and (np.mean(over) > 10 or max(over) > 25):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
