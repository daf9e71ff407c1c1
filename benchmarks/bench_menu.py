r"""A codec for each learner (`csa-options`): time until the model is good.

    python benchmarks/bench_menu.py            four settings, six seeds
    python benchmarks/bench_menu.py --quick    one of them, two seeds

Twelve simulated learners with real gradients, on the 5,000 images of MNIST that are
always there, until a target accuracy on the test set. The model is taken to be as large
as one of 36.7 MB; links are log-normal, σ = 0.6, and speeds, σ = 0.4, around those of
the setting: at 3 MB/s, 24.5 s of a cycle are spent on the wire. Data is sent to
learners, 2,000 samples a cycle, or lies on them by Dirichlet(0.3). Who could not be in
time nine times in ten sits out.

    csa            models travel as they are
    csa, int8      8 bits for everybody, both ways
    csa-options    of these, 8 bits down and 4 up, and 8 down and top-k 1 % up; values
                   are measured
    by bandwidth   of the same, the most faithful by which a learner exchanges models no
                   later than the slowest does by its smallest; then csa. A rule after
                   BCRS (arXiv:2408.14736), for a list of codecs

Shown are the mean times to the target with their 95 % intervals, by the deadline of a
cycle; how many times as long csa took, by the ratio in each seed, both at the deadline
that is best for it; and which options were taken then. A run that has not come to its
target, or cannot be planned, counts as the limit.
"""

import math
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from melisma.errors import InfeasibleError
from melisma.jobs.schema import DataTable, Job, LearnersTable, Split, WorkloadTable
from melisma.jobs.wire_table import OptionTable, WireTable
from melisma.launch.simulate import build
from melisma.maths.arrays import Floats, Ints
from melisma.maths.statistics import mean_interval
from melisma.provenance import provenance
from melisma.runs.records import Allocated, Evaluated
from melisma.schemes.csa import csa
from melisma.system import Allocation, Problem
from melisma.system.law import Mode
from melisma.units import Bytes, BytesPerSecond, Deadline, SamplesPerSecond

SEEDS, LIMIT_S, DEADLINES_S = 6, 1800.0, (15.0, 30.0, 60.0)
LEARNERS, MODEL_BYTES = 12, 36.7e6
OPTIONS = (
    OptionTable(),
    OptionTable(down="int8", up="int8"),
    OptionTable(down="int8", up="int4"),
    OptionTable(down="int8", up="top-k 1 %"),
)
#: Keys of the job.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "csa": {"scheme": "csa"},
    "csa, int8": {"scheme": "csa", "wire": WireTable(down="int8", up="int8")},
    "by bandwidth": {"scheme": "bench_menu:by_bandwidth", "options": OPTIONS},
    "csa-options": {"scheme": "csa-options", "options": OPTIONS},
}
out, err = Console(width=120), Console(stderr=True)


def by_bandwidth(problem: Problem) -> Allocation:
    """Everybody's exchange is as long as the slowest's, or shorter."""
    menu = problem.menu
    assert menu is not None
    exchange_s = menu.law.fixed_s
    fits = exchange_s <= exchange_s.min(axis=1).max()
    options: Ints = np.where(fits, menu.value, 0.0).argmax(axis=1)
    some = Problem.of(
        menu.law_of(options),
        samples=problem.samples,
        deadline_s=problem.deadline_s,
        least=problem.least,
        most=problem.most,
    )
    return replace(csa(some), options=options)


class Done(NamedTuple):
    """What came of a run."""

    time_s: float
    options: Counter[str]


class Setting(NamedTuple):
    """Links, speeds, and where the data lies."""

    link: float  #: bytes/s, in the median
    rate: float  #: samples/s, in the median
    federated: bool
    target: float  #: accuracy

    @property
    def name(self) -> str:
        """In words."""
        where = "lies there" if self.federated else "is sent"
        return f"{self.link / 1e6:g} MB/s, {self.rate:g} samples/s, data {where}"

    def job(self, way: str, deadline_s: float, seed: int) -> Job:
        """Return the job of a run."""
        rng = np.random.default_rng(seed)
        rates = self.rate * np.exp(0.4 * rng.standard_normal(LEARNERS))
        links = self.link * np.exp(0.6 * rng.standard_normal(LEARNERS))
        return Job(
            name="menu",
            mode=Mode.FEDERATED if self.federated else Mode.PARALLEL,
            cycles=math.ceil(LIMIT_S / deadline_s),
            stop=f"accuracy >= {self.target}",
            deadline=Deadline(deadline_s),
            samples=2000,
            late_at_most=0.1,
            seed=seed,
            data=DataTable(split=Split.DIRICHLET if self.federated else Split.IID),
            workload=WorkloadTable(model_size=Bytes(MODEL_BYTES)),
            learners=tuple(
                LearnersTable(
                    name=f"learner-{k}",
                    rate=SamplesPerSecond(rates[k]),
                    bandwidth=BytesPerSecond(links[k]),
                )
                for k in range(LEARNERS)
            ),
            **WAYS[way],
        )

    def run(self, way: str, deadline_s: float, seed: int) -> Done:
        """Run it; return the time to the target, and the options that were taken."""
        try:
            records = list(build(self.job(way, deadline_s, seed)).run())
        except InfeasibleError:
            return Done(LIMIT_S, Counter())
        last = [r for r in records if isinstance(r, Evaluated)][-1]
        is_there = (last.metrics["accuracy"] or 0.0) >= self.target
        taken = [r for r in records if isinstance(r, Allocated) and r.samples]
        options = Counter(r.option for r in taken if r.option)
        return Done(last.time_s if is_there else LIMIT_S, options)


SETTINGS = (
    Setting(3e6, 120.0, federated=False, target=0.86),
    Setting(3e6, 120.0, federated=True, target=0.82),
    Setting(3e6, 30.0, federated=False, target=0.86),
    Setting(300e6, 30.0, federated=False, target=0.86),
)


def done(work: tuple[int, str, float, int]) -> Done:
    """Run a setting one way."""
    torch.set_num_threads(1)
    place, way, deadline_s, seed = work
    return SETTINGS[place].run(way, deadline_s, seed)


def mean_of(values: Floats) -> str:
    """Return the mean with its 95 % interval."""
    mean, half = map(float, mean_interval(values))
    digits = 0 if mean > 10 else 2
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def shares(options: Counter[str]) -> str:
    """Return how often each option was taken."""
    total = options.total()
    return ", ".join(f"{n / total:.0%} {name}" for name, n in options.most_common())


def main(
    *,
    settings: Annotated[str, typer.Option(help="Their numbers, as 1,3.")] = "",
    quick: Annotated[bool, typer.Option(help="One setting and two seeds.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Print a table of times for each setting, as it is done."""
    out.print(provenance(), soft_wrap=True)
    asked = [int(n) - 1 for n in settings.split(",") if n]
    places, seeds = ([0], 2) if quick else (asked or range(len(SETTINGS)), SEEDS)
    with ProcessPoolExecutor(jobs) as pool:
        for place in places:
            told = SETTINGS[place].name
            work = [
                (place, way, deadline_s, seed)
                for way in WAYS
                for deadline_s in DEADLINES_S
                for seed in range(seeds)
            ]
            found = track(
                pool.map(done, work), told, len(work), console=err, transient=True
            )
            out.print(table_of(told, list(found), seeds))


def table_of(told: str, found: list[Done], seeds: int) -> Table:
    """Return a row for each way."""
    times = np.array([one.time_s for one in found])
    times = times.reshape(len(WAYS), len(DEADLINES_S), seeds)
    best = times.mean(axis=2).argmin(axis=1)
    heads = [f"{deadline_s:g} s" for deadline_s in DEADLINES_S]
    table = Table(told, *heads, "csa's / its", "options")
    for way, (name, at) in enumerate(zip(WAYS, best, strict=True)):
        first = (way * len(DEADLINES_S) + at) * seeds
        taken = sum((one.options for one in found[first : first + seeds]), Counter())
        ratio = times[0, best[0]] / times[way, at]
        table.add_row(
            name,
            *map(mean_of, times[way]),
            mean_of(ratio),
            shares(taken),
        )
    return table


if __name__ == "__main__":
    typer.run(main)
