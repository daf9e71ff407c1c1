r"""What becomes of late work: time until the model is good, by ``late``.

    python benchmarks/bench_carry.py            nine settings, three quarters of an hour
    python benchmarks/bench_carry.py --quick    one of them, two seeds

Twelve simulated learners under CSA, with real gradients, on the 5,000 images of MNIST
that are always there, until a target accuracy on the test set. Data is sent to learners
(IID), lies on them by Dirichlet(0.3), or lies apart: all images of three digits lie on
the one learner in four that is always slow, a digit each, and the others evenly on the
others. Times differ from what the plan knows:

    noise     all times by exp(0.3·N(0, 1)): half of the learners are late, by a little
    owners    one learner in four, drawn in each cycle, takes four times as long
    outages   one learner in four, drawn in each cycle, takes twenty times as long
    always    one learner in four takes twenty times as long in every cycle

In the last three all other times are by exp(0.05·N(0, 1)). Shown is the mean time to
the target over ten seeds with its 95 % interval, and how many times as long as under
"carry" a run took under the others, by the ratio in each seed. A run that has not come
to its target counts as the limit.
"""

import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.schema import DataTable, Job, LearnersTable, Split
from melisma.launch.simulate import build
from melisma.learning.samples import column
from melisma.learning.settings import Late
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.runs.records import Evaluated
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

LATE = (Late.CARRY, Late.HALT, Late.DROP)
SEEDS, LIMIT = 10, 60  #: cycles
#: Learners: how many, samples and bytes a second.
DEVICES = {"laptop": (3, 1600, 20e6), "jetson": (4, 1000, 10e6), "pi": (5, 600, 3e6)}
LEARNERS = sum(number for number, _, _ in DEVICES.values())
SLOW = np.arange(LEARNERS) % 4 == 0  #: one in four
out, err = Console(width=120), Console(stderr=True)

#: Factors of times: (compute, link) × learners.
Law = Callable[[np.random.Generator], Floats]


def noise(rng: np.random.Generator) -> Floats:
    """Spread all times."""
    return np.exp(0.3 * rng.standard_normal((2, LEARNERS)))


def _slow(rng: np.random.Generator, who: Floats, times: float) -> Floats:
    little = np.exp(0.05 * rng.standard_normal((2, LEARNERS)))
    return np.where(who < 0.25, times, 1.0) * little


def owners(rng: np.random.Generator) -> Floats:
    """One learner in four is slow."""
    return _slow(rng, rng.random(LEARNERS), 4.0)


def outages(rng: np.random.Generator) -> Floats:
    """One learner in four hangs."""
    return _slow(rng, rng.random(LEARNERS), 20.0)


def always(rng: np.random.Generator) -> Floats:
    """The same one in four hangs."""
    return _slow(rng, np.where(SLOW, 0.0, 1.0), 20.0)


IID, UNEVEN, APART = "IID", "Dirichlet 0.3", "apart"
#: Accuracy to come to.
TARGETS = {IID: 0.90, UNEVEN: 0.86, APART: 0.68}


def lay_apart(crew: SimulatedLearners, seed: int) -> None:
    """Put three digits on the learners that are always slow, and on nobody else."""
    digits = column(crew._samples, "y").numpy()
    slow = SLOW.nonzero()[0].tolist()
    others = np.random.default_rng(seed).permutation(np.flatnonzero(digits < 7))
    parts = iter(np.array_split(others, LEARNERS - len(slow)))
    crew._own_rows = [
        np.flatnonzero(digits == 7 + slow.index(k)) if k in slow else next(parts)
        for k in range(LEARNERS)
    ]
    crew._take_in(np.arange(LEARNERS))


class Setting(NamedTuple):
    """Where the data lies, and how times vary."""

    data: str
    law: Law

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.data}, {self.law.__name__}"

    def time_s(self, late: Late, seed: int) -> float:
        """Run it; return the time to its target."""
        federated = self.data != IID
        split = Split.DIRICHLET if federated else Split.IID
        job = Job(
            name="carry",
            mode=Mode.FEDERATED if federated else Mode.PARALLEL,
            cycles=LIMIT,
            stop=f"accuracy >= {TARGETS[self.data]}",
            deadline=Deadline(3.0 if federated else 1.0),
            late=late,
            seed=seed,
            data=DataTable(split=split, alpha=0.3),
            learners=tuple(
                LearnersTable(
                    name=name,
                    count=number,
                    rate=SamplesPerSecond(rate),
                    bandwidth=BytesPerSecond(speed),
                )
                for name, (number, rate, speed) in DEVICES.items()
            ),
        )
        run = build(job)
        crew = run.built.crew
        # Which no job can say.
        crew._conditions = replace(
            crew._conditions,
            slower=lambda cycle: self.law(np.random.default_rng([seed, cycle])),
        )
        if self.data == APART:
            lay_apart(crew, seed)
        tested = [r for r in run.run() if isinstance(r, Evaluated)]
        return tested[-1].time_s


SETTINGS = (
    *(
        Setting(data, law)
        for data in (IID, UNEVEN)
        for law in (noise, owners, outages, always)
    ),
    Setting(APART, always),
)


def time_s(work: tuple[int, Late, int]) -> float:
    """Run a setting; return the time to its target."""
    torch.set_num_threads(1)
    setting, late, seed = work
    return SETTINGS[setting].time_s(late, seed)


def mean_of(values: Floats) -> str:
    """Return the mean with its 95 % interval."""
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{np.mean(values):.2f} ± {half:.2f}"


def main(
    *,
    settings: Annotated[str, typer.Option(help="Their numbers, as 1,3.")] = "",
    quick: Annotated[bool, typer.Option(help="One setting and two seeds.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Print a table of times for each setting, as it is done."""
    out.print(provenance(), soft_wrap=True)
    asked = [int(n) - 1 for n in settings.split(",") if n]
    places, seeds = ([2], 2) if quick else (asked or range(len(SETTINGS)), SEEDS)
    with ProcessPoolExecutor(jobs) as pool:
        for place in places:
            work = [(place, late, n) for late in LATE for n in range(seeds)]
            told, times = SETTINGS[place].name, pool.map(time_s, work)
            took = track(times, told, len(work), console=err, transient=True)
            rows = np.array(list(took)).reshape(len(LATE), seeds)
            table = Table(told, "time to target (s)", "times as long as carry")
            for late, row in zip(LATE, rows, strict=True):
                table.add_row(late, mean_of(row), mean_of(row / rows[0]))
            out.print(table)


if __name__ == "__main__":
    typer.run(main)
