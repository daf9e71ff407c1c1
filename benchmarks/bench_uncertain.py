"""Several tasks on learners whose speed is uncertain: what knowing more is worth.

    python benchmarks/bench_uncertain.py
    python benchmarks/bench_uncertain.py --trials 2 --cycles 1 --largest 4    some

Forty seeded trials a point, five cycles each, in the simulator without gradients:
Jetson-like learners that are mostly idle, or training, or downloading (a third each, by
chance; heat 0.5), the thesis's three tasks (mnist_ffn 60 shards, 2 passes, 55 s;
mnist_cnn 60, 1, 40 s; fashion 20, 1, 40 s; the fourth a copy of fashion), prices
N(1, 0.5) within 0.1 and 1.5. Learners vary with three tasks and a budget of 300; tasks
vary with ten learners, deadlines 5 s longer and a budget of 200. A trial in which a
scheme finds no assignment at all is left out for all schemes.

MED knows the mean over the states, mmtt the state of the benchmark, mmtt-ideal the
state that each learner will be in. med-learned starts as mmtt and knows nothing but
its learners' cycles (`--cycles 30` shows where that leads); med-probe associates as MED
and splits by what five batches of the first shard took; rmed minimises the expected
largest delay.
"""

import asyncio
from collections.abc import Iterable
from statistics import fmean
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from melisma.algorithms.association import Association, Terms
from melisma.algorithms.clock import VirtualClock
from melisma.algorithms.multitask import (
    DelayEstimates,
    Entry,
    TaskScheduler,
    seconds_of,
)
from melisma.algorithms.observed import ObservedStates
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.learning.data import Dataset
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.maths.arrays import Floats, Ints
from melisma.provenance import provenance
from melisma.runs.records import Refused
from melisma.schemes.multitask.exact import exact
from melisma.schemes.multitask.rmed import rmed
from melisma.system.law import DelayLaw
from melisma.system.multitask import MultiTaskProblem, Solved
from melisma.system.states import States, heated
from melisma.views.tasks import Service, service

SHARD, BATCH, SHARD_BYTES = 500, 32, 1.568e6
IDLE = np.array([5.6, 4.1, 2.7, 2.7])  #: shards/s of the four tasks
BUSY = 0.5  #: shards/s of any, while the owner trains something
MODEL_BYTES = np.array([2.296e6, 0.409e6, 8.317e6, 8.317e6])
BYTES_PER_S = np.array([20e6, 20e6, 8e6])  #: idle, training, downloading
SHARDS, STEPS = np.array([60, 60, 20, 20]), np.array([2, 1, 1, 1])
DEADLINE_S = np.array([55.0, 40.0, 40.0, 40.0])
ESTIMATES = {
    "mmtt": DelayEstimates.FIXED,
    "med": DelayEstimates.FIXED,
    "rmed": DelayEstimates.FIXED,
    "med-learned": DelayEstimates.RENEWED,
    "med-probe": DelayEstimates.PROBED,
    "mmtt-ideal": DelayEstimates.CURRENT,
}

ROWS = int(SHARDS.max()) * SHARD
NOTHING = Dataset(
    "nothing",
    pairs(torch.zeros(ROWS, 1, 1, 1), torch.zeros(ROWS, dtype=torch.long)),
    pairs(torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.long)),
)
out, err = Console(width=130), Console(stderr=True)


class Trial:
    """One cluster: its learners' speeds, prices and states, drawn from a seed."""

    def __init__(
        self,
        seed: int,
        learners: int,
        tasks: int,
        longer_s: float,
        cycles: int,
        heat: float,
        changing: float,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.seed, self.learners, self.tasks = seed, learners, tasks
        self.names = [f"learner-{k}" for k in range(learners)]
        self.cycles, self.changing = cycles, changing
        self.deadline_s = DEADLINE_S[:tasks] + longer_s
        spread = 1 + 0.05 * rng.standard_normal((learners, 1))
        bytes_per_s = BYTES_PER_S * (1 + 0.1 * rng.standard_normal((learners, 1)))
        self.gamma = heated(rng.integers(3, size=learners), 3, heat)
        self.laws = [
            DelayLaw(
                step_s=1 / (SHARD * spread * np.array([IDLE[i], BUSY, IDLE[i]])),
                sample_s=SHARD_BYTES / SHARD / bytes_per_s,
                fixed_s=2 * MODEL_BYTES[i] / bytes_per_s,
            )
            for i in range(tasks)
        ]
        self.price = rng.normal(1.0, 0.5, learners).clip(0.1, 1.5)
        self.states = States.of(
            self.laws, self.gamma, shard=[SHARD] * tasks, steps=STEPS[:tasks].tolist()
        )
        self.benchmarked = self.states.draw(rng)

    def run(self, scheme: str, budget: float) -> Service | None:
        """Run it by a scheme; None if a task was refused."""
        crews = [self._crew(i) for i in range(self.tasks)]
        entries = [self._entry(i, crew) for i, crew in enumerate(crews)]
        terms = Terms(
            names=[entry.task.name for entry in entries],
            shards=SHARDS[: self.tasks],
            deadline_s=self.deadline_s,
            budget=budget,
        )

        def known() -> tuple[Floats, Floats]:
            if scheme in ("med", "rmed", "med-probe"):
                return self.states.expected()
            if scheme == "mmtt":
                return self.states.at(self.benchmarked)
            if scheme == "med-learned":
                return learned.expected()
            rows = [
                seconds_of(crew.true_law(), entry.task)
                for crew, entry in zip(crews, entries, strict=True)
            ]
            return np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])

        def solve(problem: MultiTaskProblem, tasks: Ints, learners: Ints) -> Solved:
            if scheme == "rmed":
                return rmed(problem, self.states.only(tasks, learners))
            return exact(problem)

        j = np.arange(self.learners)
        seen = [law.at(j, self.benchmarked) for law in self.laws]
        learned = ObservedStates(
            [entry.task for entry in entries],
            lambda: (seen, self.names),
        )
        association = Association(terms, self.price, known, solve, reassigns=False)
        scheduler = TaskScheduler(
            entries,
            association,
            VirtualClock(),
            ESTIMATES[scheme],
            observe=learned.see,
        )
        asyncio.run(scheduler.run())
        happened = [record for entry in entries for record in entry.run.records]
        if any(isinstance(record, Refused) for record in happened):
            return None
        names = terms.names
        return service(
            happened,
            dict(zip(names, self.deadline_s.tolist(), strict=True)),
            dict.fromkeys(names, BATCH),
        )

    def _entry(self, i: int, crew: SimulatedLearners) -> Entry:
        return Entry(
            task=ScheduledTask(
                name=f"task-{i}",
                model=nn.Sequential(nn.Flatten(), nn.Linear(1, 1)),
                data=NOTHING,
                scheme="med",
                cycles=self.cycles,
                deadline_s=float(self.deadline_s[i]),
                seed=self.seed,
                samples=int(SHARDS[i]) * SHARD,
                shard=SHARD,
                steps=int(STEPS[i]),
            ),
            crew=crew,
        )

    def _crew(self, i: int) -> SimulatedLearners:
        return SimulatedLearners(
            self.names,
            self.laws[i],
            model=nn.Sequential(nn.Flatten(), nn.Linear(1, 1)),
            samples=NOTHING.train,
            training=Training(batch=BATCH),
            seed=1000 * self.seed + i,
            conditions=Conditions(
                probability=self.gamma,
                changing=self.changing,
                noise=0.04,
                timing=True,
            ),
        )


def point(
    learners: int,
    tasks: int,
    trials: int,
    longer_s: float,
    budget: float,
    cycles: int,
    heat: float,
    changing: float,
) -> dict[str, list[Service]]:
    """All schemes on the same clusters."""
    found: dict[str, list[Service]] = {scheme: [] for scheme in ESTIMATES}
    for seed in track(
        range(trials), f"{learners} learners, {tasks} tasks", console=err
    ):
        trial = Trial(seed, learners, tasks, longer_s, cycles, heat, changing)
        results = {scheme: trial.run(scheme, budget) for scheme in ESTIMATES}
        if None not in results.values():
            for scheme, result in results.items():
                assert result is not None
                found[scheme].append(result)
    return found


def main(
    trials: Annotated[int, typer.Option(min=2, help="Clusters for each point.")] = 40,
    cycles: Annotated[int, typer.Option(min=1, help="Of each task.")] = 5,
    heat: Annotated[float, typer.Option(help="0.1: hardly any uncertainty.")] = 0.5,
    changing: Annotated[
        float, typer.Option(help="Chance that a state changes within a cycle.")
    ] = 0.0,
    largest: Annotated[int, typer.Option(min=4, help="Learners at most.")] = 10,
) -> None:
    """Measure all points and print a table."""
    print(provenance(), flush=True)
    table = Table("learners", "tasks", "trials", "scheme", "time (s)", "tasks (%)")
    for title in (
        "learners (%)",
        "fulfilled (%)",
        "dropped (%)",
        "occupied (%)",
        "cost",
    ):
        table.add_column(title, justify="right")
    points = [(n, 3, 0.0, 300.0) for n in (4, 6, 8, 10)]
    points += [(10, m, 5.0, 200.0) for m in (1, 2, 3, 4)]
    for learners, tasks, longer_s, budget in points:
        if learners > largest:
            continue
        found = point(learners, tasks, trials, longer_s, budget, cycles, heat, changing)
        for scheme, results in found.items():
            head = [str(learners), str(tasks), str(len(results))]
            table.add_row(*head, scheme, *_cells(results))
    out.print(table)


def _cells(results: list[Service]) -> Iterable[str]:
    if not results:
        return ["–"] * 7
    times = [result.time_s for result in results]
    spread = "–"  # of one trial
    if len(times) > 1:
        spread = f"{1.96 * float(np.std(times, ddof=1)) / len(times) ** 0.5:.2f}"
    shares = ("task_satisfaction", "learner_satisfaction", "fulfilment", "drop")
    return [
        f"{fmean(times):.2f} ± {spread}",
        *(
            f"{100 * fmean(getattr(result, name) for result in results):.1f}"
            for name in (*shares, "occupancy")
        ),
        f"{fmean(result.cost or 0.0 for result in results):.0f}",
    ]


if __name__ == "__main__":
    typer.run(main)
