"""What lying learners cost: every call of every family answered wrongly, over and over.

    python benchmarks/bench_hostile.py                 ten thousand answers a family
    python benchmarks/bench_hostile.py --answers 200   to see it run

Honest learners train beside liars that draw each answer from a grammar of wrong ones
(`peers/lies.py`), by a seed. Nobody is expelled, so that all of them are heard. The
same job is run with the honest alone. Bars: no run ends early, no honest learner has an
offence, every model is finite, and its accuracy is within a point of the honest one's.
Exit code 1 if a bar is missed.
"""

import sys
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from peers.lies import CALLS, lie_at
from rich.console import Console
from rich.table import Table

from melisma import rpc
from melisma.algorithms import log
from melisma.fleets.messages import Ready, Speeds, TaskSpec
from melisma.jobs.schema import FogTable, Job, Moving, TaskTable, TrainingTable
from melisma.launch.serve import orchestrate
from melisma.learner.fog import FogLearner
from melisma.learner.learner import Learner
from melisma.learner.service import FogService, Service
from melisma.learning import data
from melisma.learning.data import Dataset
from melisma.learning.parameters import all_finite, load
from melisma.provenance import provenance
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.system.law import Mode
from melisma.units import Seconds

HONEST, LIARS = 4, 6
POINT = 0.01  #: of accuracy, that lies may cost

PLAIN = Job(
    name="hostile",
    scheme="csa",
    samples=600,
    shard=10,
    steps=1,
    deadline=Seconds(30.0),
    training=TrainingTable(rate=0.1, batch=10),
)


def changed(job: Job, **changes: Any) -> Job:
    """Return a job with some keys changed."""
    return msgspec.structs.replace(job, **changes)


FOG = changed(
    PLAIN,
    scheme="fog",
    mode=Mode.FEDERATED,
    model="FogMLP",
    samples=None,
    shard=4,
    deadline=Seconds(0.6),
    fog=FogTable(period=2, plan=Moving.KNOWN, discard=10.0),
)
FAMILIES = {
    "csa": PLAIN,
    "dab": changed(PLAIN, scheme="dab"),
    "federated": changed(PLAIN, mode=Mode.FEDERATED, samples=None, shard=50),
    "checked": changed(PLAIN, checks=0.2),
    "coded": changed(PLAIN, scheme="coded", stragglers=1),
    "fog": FOG,
    "tasks": changed(
        PLAIN,
        scheme="med-probe",
        shard=20,
        task=(TaskTable(name="one", samples=600, steps=1),),
    ),
}

out = Console()


class Quick(Learner):
    """Needs no benchmark, and reports the same speeds always."""

    def prepare(self, spec: TaskSpec) -> Ready:
        """Be ready at once."""
        ready = super().prepare(spec)
        return msgspec.structs.replace(ready, measured=True)

    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Report the same always."""
        return Speeds(step_s=0.1, sample_s=0.001, fixed_s=0.1)

    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        """Take the same always."""
        return 6


class Device(FogLearner):
    """Reports the same speeds always."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Report the same always."""
        return Speeds(step_s=0.005, sample_s=1e-4, fixed_s=0.01)


@dataclass
class Lies:
    """Draws wrong answers, and counts them."""

    seed: int
    told: int = 0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def __call__(self, wrong: list[Any]) -> Any:
        """Return one of the wrong answers."""
        self.told += 1
        return wrong[int(self.rng.integers(len(wrong)))]


def learners_of(job: Job, names: Sequence[str]) -> list[Learner]:
    """Make learners as the job needs them."""
    if job.scheme == "fog":
        return [Device(name=n, own=own(n), share_data=True) for n in names]
    if job.mode == Mode.FEDERATED:
        return [Quick(name=n, own=own(n)) for n in names]
    return [(Learner if job.task else Quick)(name=n) for n in names]


def own(name: str) -> Dataset:
    """Return six hundred samples of a learner's own."""
    whole, first = data.load("mnist-5k"), zlib.crc32(name.encode()) % 3000
    x, y = whole.train_x[first : first + 600], whole.train_y[first : first + 600]
    return Dataset(name, x, y, x[:0], y[:0])


def run(job: Job, folder: Path, learners: Sequence[Learner]) -> list[Record]:
    """Train with these learners, which dial a real server."""
    with ExitStack() as stack:

        def join(server: rpc.Server) -> None:
            for one in learners:
                service = Service(one)
                if isinstance(one, FogLearner):
                    service = FogService(one, listens=None)
                    stack.callback(service.close)
                line = rpc.connect(server.address, service, name=one.name)
                stack.enter_context(line)

        return orchestrate(
            job,
            folder,
            learners=len(learners),
            ready=join,
            port=0,
            say=lambda text: None,
        )


@dataclass
class Result:
    """What a family came to."""

    told: int = 0
    offences: int = 0
    accused: set[str] = field(default_factory=set)  #: honest learners
    cycles: int = 0
    missing: int = 0  #: cycles that did not come to their end
    finite: bool = True
    accuracy: list[float] = field(default_factory=list)  #: of each run
    alone: float = 0.0  #: of a run with the honest alone

    @property
    def good(self) -> bool:
        """Whether all bars are met."""
        lost = self.alone - min(self.accuracy, default=0.0)
        return self.finite and not self.missing and not self.accused and lost <= POINT


def measured(job: Job, answers: int, seed: int) -> Result:
    """Run a family until its liars have told so many answers."""
    honest = [f"honest-{k}" for k in range(HONEST)]
    result = Result()
    with TemporaryDirectory() as folder:
        alone = run(job, Path(folder), learners_of(job, honest))
        result.alone = _accuracy(alone)
    while result.told < answers:
        everybody = learners_of(job, [*honest, *(f"liar-{k}" for k in range(LIARS))])
        lies = [Lies(seed + result.cycles + k) for k in range(LIARS)]
        for liar, lie in zip(everybody[HONEST:], lies, strict=True):
            for call in CALLS:
                if hasattr(liar, call):
                    lie_at(liar, call, lie)
        with TemporaryDirectory() as folder:
            happened = run(job, Path(folder), everybody)
            model = Path(folder) / (job.task[0].name if job.task else "") / MODEL
            result.finite &= all_finite(load(model))
        done = [r for r in happened if isinstance(r, records.Evaluated)]
        dropped = [r for r in happened if isinstance(r, records.Dropped) and r.offence]
        result.told += sum(lie.told for lie in lies)
        result.offences += len(dropped)
        result.accused |= {r.learner for r in dropped}.intersection(honest)
        result.cycles += len(done)
        result.missing += job.cycles - len(done)
        result.accuracy.append(_accuracy(happened))
    return result


def _accuracy(happened: Sequence[Record]) -> float:
    done = [r for r in happened if isinstance(r, records.Evaluated)]
    return done[-1].accuracy if done else 0.0


def main(
    answers: Annotated[int, typer.Option(min=1, help="Of each family.")] = 10_000,
    only: Annotated[str, typer.Option(help="Families, by comma.")] = ",".join(FAMILIES),
    cycles: Annotated[int, typer.Option(min=1, help="Of a run.")] = 40,
    seed: int = 0,
) -> None:
    """Hear wrong answers in every family; exit code 1 if a bar is missed."""
    print(provenance(), flush=True)
    log.OFFENCES = sys.maxsize  # to hear all of them
    table = Table(
        "family", "answers", "offences", "cycles", "accuracy", "alone", "bars"
    )
    results = {}
    for name in only.split(","):
        out.print(f"{name} …")
        result = measured(changed(FAMILIES[name], cycles=cycles), answers, seed)
        results[name] = result
        table.add_row(
            name,
            f"{result.told:,}",
            f"{result.offences:,}",
            f"{result.cycles:,}",
            f"{min(result.accuracy):.3f} to {max(result.accuracy):.3f}",
            f"{result.alone:.3f}",
            "met" if result.good else "missed",
        )
    out.print(table)
    sys.exit(0 if all(result.good for result in results.values()) else 1)


if __name__ == "__main__":
    typer.run(main)
