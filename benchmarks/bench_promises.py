"""Late cycles against the share that was promised, and the work that is kept.

    python benchmarks/bench_promises.py            400 learners × 200 cycles, 6 minutes
    python benchmarks/bench_promises.py --quick    40 learners × 40 cycles

Simulated learners of one task under CSA, times only. Compute and link of each take a
factor longer than known, drawn anew in each cycle by one of these laws:

    lognormal    exp(0.3·N(0, 1))
    spikes       one cycle in ten takes three times as long; and exp(0.05·N(0, 1))
    owner        2.5 times as long while the owner is busy, who begins with a chance of
                 0.1 and ends with 0.2 a cycle; and exp(0.05·N(0, 1))
    heating      1 % longer in each cycle, and exp(0.1·N(0, 1))
    gamma        Γ(4)/4
    walk         a random walk of the logarithm by 0.05·N(0, 1)

A learner that would be late halts: its cycle counts as late. *Kept* is the samples,
each as often as it was trained on, of learners that were not late, over those that fit
where cycles take what is known. Ours is `system.promise` at ε of 1, 5 and 10 %. Beside
it: the mean and two mean deviations, weights ½ (as TCP, RFC 6298; `dab-adaptive`); a
moving average of weight ½ and 1/60 of the deadline free (FedQueue's defaults in APPFL);
the median and 3 MAD of the last 20 cycles (proposed in hivemind's issue 676).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from melisma.algorithms.allocating import allocate
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.log import CycleLog
from melisma.algorithms.state import RunState
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.learning.data import Dataset
from melisma.learning.parameters import parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.runs.records import Allocated, Halted, Record, Trained
from melisma.system.law import DelayLaw
from melisma.system.promise import UNSEEN, Margins, Promises, Took

EPSILON = (0.01, 0.05, 0.1)
DEADLINE_S, BATCH = 10.0, 10
PER_LEARNER = 200  #: samples
out, err = Console(width=120), Console(stderr=True)


# Laws: cycles × (compute, link) × learners


def lognormal(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Independent from cycle to cycle."""
    return np.exp(0.3 * rng.standard_normal((cycles, 2, learners)))


def spikes(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Rare, and the same for compute and link."""
    rare = rng.random((cycles, 1, learners)) < 0.1
    small = np.exp(0.05 * rng.standard_normal((cycles, 2, learners)))
    return np.where(rare, 3.0, 1.0) * small


def owner(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Busy for five cycles on the mean, then away for ten."""
    busy = rng.random(learners) < 1 / 3
    factors = np.exp(0.05 * rng.standard_normal((cycles, 2, learners)))
    for factor in factors:
        busy ^= rng.random(learners) < np.where(busy, 0.2, 0.1)
        factor[0, busy] *= 2.5
    return factors


def heating(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Slower from cycle to cycle."""
    warmer = 1.01 ** np.arange(cycles)[:, None, None]
    return np.asarray(warmer * np.exp(0.1 * rng.standard_normal((cycles, 2, learners))))


def gamma(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Independent, skewed."""
    return rng.gamma(4.0, 0.25, (cycles, 2, learners))


def walk(rng: np.random.Generator, cycles: int, learners: int) -> Floats:
    """Drifts, up or down."""
    return np.exp(np.cumsum(0.05 * rng.standard_normal((cycles, 2, learners)), axis=0))


LAWS = (lognormal, spikes, owner, heating, gamma, walk)


# Peers' rules: as Promises, but for how margins come about


class History(Promises):
    """A rule that goes by the past ratios of learners that are always the same."""

    def __init__(self) -> None:
        super().__init__(EPSILON[1])  # of which it makes no use
        self.past: list[Floats] = []

    def margins(self, names: Sequence[str], spread: Floats | float = UNSEEN) -> Margins:
        """Return the rule's margins; 1.2 before any cycle, as `dab-adaptive`."""
        usual = self.rule(len(names)) if self.past else np.full((2, len(names)), 1.2)
        return Margins(usual, usual)

    def see(self, names: Sequence[str], took: Took) -> None:
        """Keep the ratios; where nothing was done, the last ones."""
        order = np.argsort([int(name) for name in names])
        ratio = took.ratio[:, order]
        last = self.past[-1] if self.past else np.ones_like(ratio)
        self.past.append(np.where(np.isfinite(ratio), ratio, last))

    def rule(self, learners: int) -> Floats:
        """Return the margins of compute and link."""
        raise NotImplementedError


class Deviations(History):
    """The mean and two mean deviations, each moved half of the way."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Floats = np.array(1.0)
        self.deviation: Floats = np.array(0.1)

    def rule(self, learners: int) -> Floats:
        """Return mean + 2 deviations."""
        off = self.past[-1] - self.mean
        self.deviation = self.deviation + 0.5 * (abs(off) - self.deviation)
        self.mean = self.mean + 0.5 * off
        return self.mean + 2 * self.deviation


class MovingAverage(History):
    """FedQueue's: a moving average, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Floats = np.array(1.0)

    def rule(self, learners: int) -> Floats:
        """Return the average; the buffer is a share of all that is planned."""
        self.mean = self.mean + 0.5 * (self.past[-1] - self.mean)
        return self.mean / (1 - 1 / 60)


class Median(History):
    """The median and 3 MAD of the last 20 cycles."""

    def rule(self, learners: int) -> Floats:
        """Return median + 3 MAD."""
        last = np.array(self.past[-20:])
        middle = np.median(last, axis=0)
        return np.asarray(middle + 3 * np.median(abs(last - middle), axis=0))


RULES: dict[str, Callable[[], Promises]] = {
    **{f"ours, {100 * e:g} %": partial(Promises, e) for e in EPSILON},
    "mean + 2 dev": Deviations,
    "moving average": MovingAverage,
    "median + 3 MAD": Median,
}


def simulate(rule: Promises, factors: Floats, seed: int = 0) -> tuple[float, float]:
    """Return the share of late cycles, and the work kept over that without delays."""
    cycles, _, learners = factors.shape
    rng = np.random.default_rng(seed)
    rows = learners * PER_LEARNER
    law = DelayLaw(
        step_s=rng.uniform(0.2, 2.0, (learners,)) / PER_LEARNER,
        sample_s=rng.uniform(0.1, 0.5, (learners,)) / PER_LEARNER,
        fixed_s=rng.uniform(0.2, 0.8, (learners,)),
    )
    data = Dataset(
        "nothing",
        pairs(torch.zeros(rows, 1, 1, 1), torch.zeros(rows, dtype=torch.long)),
        pairs(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.long)),
    )
    task = ScheduledTask(
        name="task",
        model=nn.Sequential(nn.Flatten(), nn.Linear(1, 2)),
        data=data,
        scheme="csa",
        cycles=cycles,
        deadline_s=DEADLINE_S,
        seed=seed,
        shard=BATCH,
        training=Training(batch=BATCH),
    )
    crew = SimulatedLearners(
        [str(k) for k in range(learners)],
        law,
        model=task.model,
        samples=data.train,
        training=task.training,
        seed=seed,
        conditions=Conditions(slower=lambda cycle: factors[cycle - 1], timing=True),
    )
    seen: list[Record] = []
    asyncio.run(_cycles(task, crew, rule, seen.append))
    orders = sum(isinstance(r, Allocated) and r.samples > 0 for r in seen)
    late = sum(isinstance(r, Halted) for r in seen)
    kept = sum(r.batches for r in seen if isinstance(r, Trained))
    plain = asyncio.run(allocate(task, crew)).allocation
    fits = int((plain.samples * plain.steps).sum()) * cycles
    return late / orders, kept / fits


async def _cycles(
    task: ScheduledTask,
    crew: SimulatedLearners,
    rule: Promises,
    sink: Callable[[Record], None],
) -> None:
    averaging = Averaging(crew, partial(allocate, promises=rule), rule)
    state, parameters = RunState(), parameters_of(task.model)
    for number in range(1, task.cycles + 1):
        log = CycleLog(task, crew, sink, state, number)
        begun = await averaging.begin(log, patient=False)
        outcome = await averaging.cycle(log, begun, parameters)
        log.aggregated(outcome.plan)


def main(
    learners: Annotated[int, typer.Option(min=2)] = 400,
    cycles: Annotated[int, typer.Option(min=2)] = 200,
    seed: int = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few, short.")] = False,
) -> None:
    """Print late % / work kept of every rule under every law."""
    if quick:
        learners, cycles = min(learners, 40), min(cycles, 40)
    print(provenance(), flush=True)
    table = Table("late % / kept", *(law.__name__ for law in LAWS), box=None)
    cells: dict[str, list[str]] = {name: [] for name in RULES}
    work = [(law, name) for law in LAWS for name in RULES]
    for law, name in track(work, "Simulating", console=err, transient=True):
        factors = law(np.random.default_rng(seed), cycles, learners)
        late, kept = simulate(RULES[name](), factors, seed)
        cells[name].append(f"{100 * late:.1f} / {kept:.2f}")
    for name, row in cells.items():
        table.add_row(name, *row)
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
