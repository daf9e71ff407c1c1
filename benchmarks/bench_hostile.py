"""What learners that lie, hoard or flood can do to a live run.

    python benchmarks/bench_hostile.py                                all of it
    python benchmarks/bench_hostile.py --families csa --answers 200   to see it run
    python benchmarks/bench_hostile.py --only-memory

Lies: honest learners train beside liars that draw their answers from a grammar of wrong
ones at every call, by a seed (`peers/lies.py`), until so many wrong answers were given
in each family. Nobody is expelled, so that all are heard. Bars: no run ends early, no
honest learner has an offence, every cycle's model is the one that follows from honest
answers alone (`peers/recomputed.py`), and mean accuracy over the last third of the
cycles is at most a point below that of a run with the honest alone, who there train on
as many samples a cycle. In the fog nobody sends samples to others: what a liar is sent
is lost until it is expelled.

Memory: an orchestrator in a process of its own, with 1.6 GB of memory, serves ten
honest learners and a hundred hostile ones (`peers/hostile_learners.py`). Bars: it is
not killed, and each cycle has the update of every honest learner. The limit takes
Linux with cgroups v1 and root; without, the output says "not limited".

Exit code 1 if a bar is missed.
"""

import json
import logging
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import numpy as np
import typer
from peers.lies import Liar, answer_by
from peers.processes import running
from peers.recomputed import Recomputed
from peers.small_memory import limited, started
from peers.small_orchestrator import SHARD, TASK
from rich.console import Console
from rich.table import Table

from melisma import rpc
from melisma.algorithms import log
from melisma.errors import MelismaError
from melisma.fleets.messages import Ready, Speeds, TaskSpec, TrainRequest, Update
from melisma.jobs.fog_table import FogTable, Moving
from melisma.jobs.schema import Job, TaskTable, TrainingTable
from melisma.launch.serve import orchestrate
from melisma.learner.fog import FogLearner
from melisma.learner.learner import Learner
from melisma.learner.service import FogService, Service
from melisma.learner.source import Caller
from melisma.learning import Part, data
from melisma.learning.data import Dataset
from melisma.learning.training import use_threads
from melisma.provenance import provenance
from melisma.runs import records
from melisma.runs.records import Record
from melisma.system.law import Mode
from melisma.units import Deadline

HONEST, LIARS = 4, 24
LYING = 0.4  #: of a liar's answers before its update
POINT = 0.01  #: of accuracy, that lies may cost
OWN = 800  #: samples of each learner's own
FEW = 10  #: samples on which a liar trains
MEMORY_BYTES = 1_600_000_000  #: of the orchestrator that is besieged
SIEGE_S = 900.0  #: longest that it may take
PEERS = Path(__file__).parent / "peers"

PLAIN = Job(
    name="hostile",
    scheme="csa",
    samples=600,
    shard=10,
    steps=1,
    deadline=Deadline(30.0),
    model="FogMLP",
    training=TrainingTable(rate=0.1, batch=10),
)
changed = msgspec.structs.replace
FAMILIES = {
    "csa": PLAIN,
    "dab": changed(PLAIN, scheme="dab"),
    "federated": changed(PLAIN, mode=Mode.FEDERATED, samples=None, shard=50),
    "checked": changed(PLAIN, checks=0.2),
    "coded": changed(PLAIN, scheme="coded", training=TrainingTable(rate=0.2)),
    "fog": changed(
        PLAIN,
        scheme="fog",
        mode=Mode.FEDERATED,
        samples=None,
        shard=4,
        deadline=Deadline(0.5),
        training=TrainingTable(rate=0.05, batch=10),
        fog=FogTable(period=2, plan=Moving.ALONE),
    ),
    "tasks": changed(
        PLAIN,
        scheme="med-probe",
        shard=20,
        tasks=(TaskTable(name="one", samples=600, steps=1),),
    ),
}

out = Console()


class Quick(Learner):
    """Needs no benchmark, and reports the same speeds always."""

    def prepare(self, spec: TaskSpec) -> Ready:
        """Be ready at once."""
        return changed(super().prepare(spec), measured=True)

    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Report the same always."""
        return Speeds(step_s=0.25, sample_s=0.001, fixed_s=0.1)

    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        """Take the same always."""
        return 10


class Hasty(Quick):
    """Trains on its first shard alone, once: a liar has no time for more."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        """Train a little."""
        shard = request.samples // max(1, len(request.keys))
        little = changed(
            request, keys=request.keys[:1], samples=min(shard, FEW), steps=1
        )
        return super().train(little, caller)


class Device(FogLearner):
    """Reports the same speeds always."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Report the same always."""
        return Speeds(step_s=0.005, sample_s=1e-4, fixed_s=0.01)


def learner(job: Job, name: str, *, lies: bool) -> Learner:
    """Make a learner as the job needs it."""
    if job.scheme == "fog":
        return Device(name=name, own=own(name), share_data=True)
    if job.tasks:
        return Learner(name=name)
    kind = Hasty if lies else Quick
    return kind(name=name, own=own(name) if job.mode == Mode.FEDERATED else None)


def own(name: str) -> Dataset:
    """Return samples of a learner's own."""
    whole, first = data.load("mnist-5k"), zlib.crc32(name.encode()) % 3000
    rows = np.arange(first, first + OWN)
    return Dataset(name, Part(whole.train, rows), Part(whole.train, rows[:0]))


@dataclass
class Run:
    """What came of a run."""

    happened: list[Record]
    models: Recomputed
    ended: str = ""  #: why it ended early

    @property
    def accuracy(self) -> float:
        """Mean of the last third of the cycles: a single one moves by points."""
        last = self._done[-(self.cycles // 3 or 1) :]
        return mean(r.metrics["accuracy"] or 0.0 for r in last) if last else 0.0

    @property
    def cycles(self) -> int:
        """That came to their end."""
        return len(self._done)

    @property
    def _done(self) -> list[records.Evaluated]:
        return [r for r in self.happened if isinstance(r, records.Evaluated)]

    def offences(self) -> Counter[str]:
        """Return how often each learner was refused."""
        dropped = [r for r in self.happened if isinstance(r, records.Dropped)]
        return Counter(r.learner for r in dropped if r.offence)

    def samples(self, names: Sequence[str]) -> float:
        """Return how many samples these learners were given in a cycle."""
        given = [r for r in self.happened if isinstance(r, records.Allocated)]
        return sum(r.samples for r in given if r.learner in names) / max(1, self.cycles)


def run(job: Job, names: Sequence[str], liars: dict[str, Liar]) -> Run:
    """Train with honest learners and liars, which dial a real server."""
    happened: list[Record] = []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        models = Recomputed(job, Path(folder))

        def watch(record: Record) -> None:
            models.watch(record)
            happened.append(record)

        def join(server: rpc.Server) -> None:
            for name in (*names, *liars):
                one = learner(job, name, lies=name in liars)
                service = stack.enter_context(serving(one, models))
                if name in liars:
                    liars[name].takes(service)
                line = rpc.connect(server.address, service, name=name)
                stack.enter_context(line)

        result = Run(happened, models)
        try:
            orchestrate(
                job,
                Path(folder),
                learners=len(names) + len(liars),
                watch=watch,
                ready=join,
                port=0,
                say=lambda text: None,
            )
            models.check()
        except MelismaError as error:
            result.ended = str(error)
    return result


@contextmanager
def serving(learner: Learner, models: Recomputed) -> Iterator[Service]:
    """Yield a learner's service, whose honest updates are known."""

    def known(update: Update) -> Update:
        models.computed(learner.name, update)
        return update

    if not isinstance(learner, FogLearner):
        service = Service(learner)
        answer_by(service, "train", known)
        yield service
        return
    device = FogService(learner)
    answer_by(device, "finish", known)
    try:
        yield device
    finally:
        device.close()


@dataclass
class Result:
    """What a family came to."""

    told: Counter[str] = field(default_factory=Counter)  #: wrong answers, by call
    offences: int = 0
    accused: set[str] = field(default_factory=set)  #: honest learners
    cycles: int = 0
    ended: list[str] = field(default_factory=list)  #: runs, and why
    right: int = 0  #: models
    approximate: int = 0
    wrong: list[str] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)  #: of the honest in a cycle
    accuracy: list[float] = field(default_factory=list)  #: of each run
    alone: float = 0.0  #: of a run with the honest alone
    took_s: float = 0.0

    @property
    def lost(self) -> float:
        """Accuracy that the lies cost."""
        return self.alone - mean(self.accuracy)

    @property
    def good(self) -> bool:
        """Whether all bars are met."""
        failed = self.ended or self.accused or self.wrong
        return not failed and self.lost <= POINT

    def add(self, run: Run, honest: Sequence[str]) -> None:
        """Take in a run."""
        offences = run.offences()
        self.offences += offences.total()
        self.accused |= offences.keys() & set(honest)
        self.cycles += run.cycles
        self.ended += [run.ended] if run.ended else []
        self.right += run.models.right
        self.approximate += run.models.approximate
        self.wrong += run.models.wrong
        self.samples.append(run.samples(honest))
        self.accuracy.append(run.accuracy)


def measured(job: Job, answers: int, seed: int) -> Result:
    """Run a family until its liars have told so many wrong answers."""
    honest = [f"honest-{k}" for k in range(HONEST)]
    result, began = Result(), time.monotonic()
    while result.told.total() < answers and not result.ended:
        place = len(result.accuracy)
        liars = {f"liar-{k}": Liar([seed, place, k], LYING) for k in range(LIARS)}
        result.add(run(job, honest, liars), honest)
        for liar in liars.values():
            result.told += liar.told
    alone = run(with_samples(job, mean(result.samples)), honest, {})
    result.alone, result.took_s = alone.accuracy, time.monotonic() - began
    return result


def with_samples(job: Job, samples: float) -> Job:
    """Return a job that gives out so many samples a cycle, where it says how many."""
    shards = max(HONEST, round(samples / job.shard))
    if job.tasks:
        task = changed(job.tasks[0], samples=shards * job.shard)
        return changed(job, tasks=(task,))
    if job.samples is None or job.scheme in ("dab", "coded"):
        return job  # as many as learners have, bid for, or are to be summed over
    return changed(job, samples=shards * job.shard)


@contextmanager
def everybody_stays() -> Iterator[None]:
    """Expel nobody, and log no refused answer: there are thousands."""
    logger = logging.getLogger("melisma")
    before, level = log.OFFENCES, logger.level
    log.OFFENCES = sys.maxsize
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.OFFENCES = before
        logger.setLevel(level)


def lies(names: Sequence[str], answers: int, cycles: int, seed: int) -> bool:
    """Hear wrong answers in these families; return whether all bars are met."""
    table = Table("family", "answers", "offences", "cycles", "models", "samples")
    for column in ("accuracy", "alone", "bars"):
        table.add_column(column)
    results = []
    for name in names:
        with everybody_stays():
            result = measured(changed(FAMILIES[name], cycles=cycles), answers, seed)
        calls = ", ".join(f"{call} {n:,}" for call, n in result.told.most_common())
        out.print(f"{name}: {result.took_s:.0f} s; wrong answers: {calls}")
        for why in (*result.ended, *sorted(result.accused), *result.wrong):
            out.print(f"  {why}")
        results.append(result)
        table.add_row(
            name,
            f"{result.told.total():,}",
            f"{result.offences:,}",
            f"{result.cycles:,}",
            f"{result.right:,}"
            + f" + {result.approximate:,}≈" * bool(result.approximate),
            f"{mean(result.samples):.0f}",
            f"{mean(result.accuracy):.3f} ({min(result.accuracy):.3f} to "
            f"{max(result.accuracy):.3f})",
            f"{result.alone:.3f}",
            "met" if result.good else "missed",
        )
    out.print(table)
    return all(result.good for result in results)


@dataclass
class Siege:
    """What came of an orchestrator with little memory."""

    updates: int = 0  #: of the honest, that count
    due: int = 0  #: of all that had joined, in all cycles
    lost: dict[str, int] = field(default_factory=dict)  #: why others do not
    cycles: int = 0
    cycle_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0  #: resident in its process
    budget_bytes: int = 0  #: that peers may fill of it
    limited: bool = False
    group_bytes: int = 0  #: most in its group, caches of files included
    exit_code: int | None = None  #: None: it was not done in time
    attacks: Counter[str] = field(default_factory=Counter)


def besieged(cycles: int, honest: int, hostile: int) -> Siege:
    """Let hostile learners attack an orchestrator that trains with honest ones."""
    with (
        TemporaryDirectory() as name,
        limited(MEMORY_BYTES) as group,
        ExitStack() as stack,
    ):
        folder = Path(name)
        command = ("-m", "peers.small_orchestrator", folder, cycles, honest, hostile)
        process = stack.enter_context(started(command, group))
        invited = folder / "honest.json"
        wait_until(lambda: invited.exists() or process.poll() is not None)
        if not invited.exists():
            return Siege(exit_code=process.poll(), limited=group is not None)
        begun, report = folder / "begun", folder / "attacks.json"
        hostile_ones = (folder / "hostile.json", TASK, SHARD, begun, report)
        join = json.loads(invited.read_text())
        with running([(PEERS / "hostile_learners.py", *hostile_ones)]):
            wait_until(lambda: begun.exists() or process.poll() is not None)
            with running([(PEERS / "live_learners.py", "crowd", join, 0, honest)]):
                wait_until(lambda: process.poll() is not None)
                exit_code = process.poll()
        siege = Siege(exit_code=exit_code, limited=group is not None)
        if exit_code == 0:
            siege = replace(siege, **json.loads((folder / "result.json").read_text()))
        if group:
            siege.group_bytes = group.peak_bytes
        siege.attacks = Counter(json.loads(report.read_text()))
    return siege


def wait_until(over: Callable[[], bool]) -> None:
    """Wait for something, up to SIEGE_S."""
    until = time.monotonic() + SIEGE_S
    while not over() and time.monotonic() < until:
        time.sleep(0.1)


def siege(cycles: int, honest: int, hostile: int) -> bool:
    """Attack an orchestrator's memory; return whether all bars are met."""
    result = besieged(cycles, honest, hostile)
    limit = f"{MEMORY_BYTES / 1e9:.1f} GB" if result.limited else "not limited"
    attacks = ", ".join(f"{what} {n:,}" for what, n in result.attacks.most_common())
    out.print(f"memory: {limit}; {honest} honest, {hostile} hostile: {attacks}")
    if result.exit_code != 0:
        how = {None: "not done", -9: "killed"}.get(result.exit_code, "failed")
        out.print(f"the orchestrator was {how} ({result.exit_code})")
        return False
    out.print(
        f"{result.updates} of {result.due} honest updates in {result.cycles} cycles of "
        f"{median(result.cycle_s):.1f} s; "
        f"peak {result.peak_bytes / 1e6:.0f} MB resident, "
        f"{result.group_bytes / 1e6:.0f} MB with caches; "
        f"budget of peers {result.budget_bytes / 1e6:.0f} MB"
    )
    for why, updates in result.lost.items():
        out.print(f"  {updates} lost: {why}")
    return result.updates == result.due and result.cycles == cycles


def main(
    answers: Annotated[int, typer.Option(min=1, help="Of each family.")] = 10_000,
    families: Annotated[str, typer.Option(help="By comma.")] = ",".join(FAMILIES),
    cycles: Annotated[int, typer.Option(min=1, help="Of a run.")] = 60,
    seed: int = 0,
    siege_cycles: Annotated[int, typer.Option(min=1, help="Of the siege.")] = 100,
    honest: Annotated[int, typer.Option(min=1, help="In the siege.")] = 10,
    hostile: Annotated[int, typer.Option(min=1, help="In the siege.")] = 100,
    only_lies: Annotated[bool, typer.Option(help="Leave the memory out.")] = False,
    only_memory: Annotated[bool, typer.Option(help="Leave the lies out.")] = False,
) -> None:
    """Hear wrong answers, and be besieged; exit code 1 if a bar is missed."""
    names = families.split(",")
    if unknown := sorted({*names} - {*FAMILIES}):
        raise typer.BadParameter(
            f"no families {unknown}: give of {', '.join(FAMILIES)}"
        )
    print(provenance(), flush=True)
    use_threads(1)
    bars = []
    if not only_memory:
        bars.append(lies(names, answers, cycles, seed))
    if not only_lies:
        bars.append(siege(siege_cycles, honest, hostile))
    sys.exit(0 if all(bars) else 1)


if __name__ == "__main__":
    typer.run(main)
