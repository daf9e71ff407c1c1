"""Coded training of real networks on the paper's testbed, in virtual time.

    python benchmarks/bench_coded_training.py          about ten minutes on one core

6 workers with 2, 2, 4, 4, 8 and 8 cores; in each iteration one or two, drawn at random,
are 8 times slower, or dead; speeds vary by 5 %. The whole cycle runs: models go out,
gradients are computed and coded, answers come back, speeds and stragglers are learnt
from them. TwoNN on the embedded digits, and a convolutional network on CIFAR-10 where
its files are ($MELISMA_DATA); the mean time of an iteration with its 95 % interval, in
units of the ideal one, the accuracy in the end, and how far the model is from that of
uncoded training without stragglers.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec
import numpy as np
import typer

from melisma.algorithms.loop import train
from melisma.errors import DataError
from melisma.jobs.schema import (
    DataTable,
    Job,
    LearnersTable,
    StragglingTable,
    TrainingTable,
)
from melisma.launch.simulate import build
from melisma.learning.parameters import Parameters
from melisma.learning.samples import Arrays
from melisma.maths.statistics import mean_interval
from melisma.provenance import provenance
from melisma.runs.records import Aggregated, Record
from melisma.runs.store import RunWriter
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views.history import history

CORES = (2, 2, 4, 4, 8, 8)
TESTED = 1000  #: images on which accuracy is measured, after every iteration
RATE = 10.0  #: samples per second and core
TROUBLES = {
    "1 slow": StragglingTable(number=1),
    "1 dead": StragglingTable(number=1, slower=math.inf),
    "2 slow": StragglingTable(number=2),
    "2 dead": StragglingTable(number=2, slower=math.inf),
}
SCHEMES: dict[str, dict[str, Any]] = {
    "uncoded": {"code": "uncoded"},
    "cyclic": {"code": "cyclic"},
    "fractional, loads by speed": {"code": "fractional"},
    "heterogeneity-aware": {"code": "hetero"},
    "two-stage, helpers reserved": {"code": "two-stage", "helpers": "reserved"},
    "two-stage, ours": {"code": "two-stage"},
    "two-stage, ours, s predicted": {"code": "two-stage", "stragglers": None},
}


def job_of(data: str, model: str, samples: int, iterations: int) -> Job:
    """The work, on workers of which nobody straggles."""
    return Job(
        name="coded",
        scheme="coded",
        code="uncoded",
        stragglers=0,
        model=model,
        cycles=iterations,
        deadline=Deadline(1e6),
        samples=samples,
        shard=5,
        noise=0.05,
        data=DataTable(name=data),
        training=TrainingTable(rate=0.1, momentum=0.9),
        learners=tuple(
            LearnersTable(
                name=f"w{i}",
                rate=SamplesPerSecond(RATE * cores),
                bandwidth=BytesPerSecond(1e9),
            )
            for i, cores in enumerate(CORES)
        ),
    )


def trained(job: Job) -> tuple[Parameters, list[Record]]:
    """Train a job; return the model and what happened."""
    ready = build(job).built
    data = ready.task.taken
    few = replace(data, test=Arrays(data.test[:TESTED]))
    task = replace(ready.task, ready=few)
    run = RunWriter()
    return asyncio.run(train(task, ready.crew, ready.algorithm, run)), run.records


def distance(ours: Parameters, theirs: Parameters) -> float:
    """‖ours − theirs‖ / ‖theirs‖."""
    off = sum(float(((ours[n] - theirs[n]) ** 2).sum()) for n in theirs)
    return math.sqrt(off / sum(float((t**2).sum()) for t in theirs.values()))


def table(job: Job, troubles: Sequence[str]) -> None:
    """Print a row for each scheme and trouble."""
    plain, happened = trained(job)
    ideal_s = job.samples / (RATE * sum(CORES))  # type: ignore[operator]
    last = history(happened).metric[-1]
    print(f"{job.model} on {job.data.name}, {job.cycles} iterations of {job.samples}")
    print(f"  plain descent: accuracy {100 * last:.1f} %")
    for title in troubles:
        trouble = TROUBLES[title]
        dead = math.isinf(trouble.slower)
        print(f"  {title}")
        for name, changes in SCHEMES.items():
            if dead and name == "uncoded":
                continue
            model, happened = trained(
                msgspec.structs.replace(
                    job,
                    straggling=trouble,
                    **({"stragglers": trouble.number} | changes),
                )
            )
            merged = [r for r in happened if isinstance(r, Aggregated)]
            mean, half = mean_interval(np.array([r.cycle_s for r in merged]) / ideal_s)
            last = history(happened).metric[-1]
            worst = max(r.error or 0.0 for r in merged)
            print(
                f"    {name:<30}{mean:7.3f} ± {half:.3f}   accuracy {100 * last:5.1f} %"
                f"   {distance(model, plain):.0e} off   error {worst:.0e}",
                flush=True,
            )


def main(
    iterations: Annotated[int, typer.Option(min=2, help="Of the digits.")] = 60,
    only: Annotated[str, typer.Option(help="Of digits,cifar.")] = "digits,cifar",
    troubles: Annotated[str, typer.Option(help="Of the workers.")] = ",".join(TROUBLES),
) -> None:
    """Print the tables."""
    print(provenance(), flush=True)
    chosen = troubles.split(",")
    if "digits" in only:
        table(job_of("mnist-5k", "TwoNN", 1000, iterations), chosen)
    if "cifar" not in only:
        return
    try:
        slow = [title for title in chosen if "slow" in title]
        table(job_of("cifar10", "CifarCNN", 500, max(2, iterations // 3)), slow)
    except DataError as error:
        print(f"CIFAR-10 is left out: {error}")


if __name__ == "__main__":
    typer.run(main)
