"""What a live orchestrator spends in a cycle, measured in its own process."""

import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from torch import nn

from melisma import rpc
from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learning.models import build, model_bytes, perceptron
from melisma.learning.training import use_threads
from melisma.runs.files import RECORDS
from melisma.runs.records import Aggregated, Allocated, Evaluated, Record
from melisma.system.law import Mode
from melisma.units import Deadline
from peers.processes import running

LIGHT = Path(__file__).parent / "light_learners.py"
PROCESSES = 2  #: that the learners share
DEADLINE_S = 600.0  #: far off: a cycle ends with its last update
MILLION = f"{__name__}:million"  #: a job's name of the larger model


def million() -> nn.Module:
    """Make a perceptron of 997,320 parameters."""
    return perceptron(784, 1000, 210, 10)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one orchestrator spent: medians over its cycles, of all learners together.

    CPU is of the orchestrator's process alone, with all its threads.
    """

    model: str
    model_bytes: int
    learners: int
    lost: int  #: updates that did not count, in all cycles
    join_cpu_s: float  #: for all learners to join, before the first cycle
    ready_cpu_s: float  #: to ask who is ready, and to allocate
    exchange_cpu_s: float  #: to send the model, receive updates and merge them
    rest_cpu_s: float  #: to evaluate and checkpoint
    cycle_s: float  #: by the clock, the learners on the same cores
    sent_bytes: int
    received_bytes: int
    records_bytes: int
    connected_bytes: int  #: of memory that connections take, before the first cycle
    cycle_bytes: int  #: of memory that cycles take on top of that, at most

    @property
    def cpu_s(self) -> float:
        """Of a whole cycle."""
        return self.ready_cpu_s + self.exchange_cpu_s + self.rest_cpu_s


@dataclass(frozen=True, slots=True)
class Tick:
    """The meters as they stood at one moment."""

    cycle: int
    event: type[Record]
    cpu_s: float
    at_s: float
    sent_bytes: int
    received_bytes: int


class Meters:
    """Reads them when everybody has work, when all is merged, and when a cycle ends."""

    def __init__(self) -> None:
        self.server: rpc.Server
        self.ticks: list[Tick] = []
        self._began_cpu_s, self._began_bytes = 0.0, 0
        self._joined_bytes = 0

    def begin(self, server: rpc.Server) -> None:
        """Read before anybody dials."""
        self.server = server
        self._began_cpu_s, self._began_bytes = time.process_time(), memory("VmRSS")

    def watch(self, record: Record) -> None:
        """Read at the records that part a cycle."""
        event = type(record)
        last = self.ticks[-1] if self.ticks else None
        if event not in (Allocated, Aggregated, Evaluated):
            return
        if last and (last.event, last.cycle) == (event, record.cycle):
            return  # one Allocated is enough
        if last is None:
            self._joined_bytes = memory("VmRSS")
        metrics = self.server.metrics
        self.ticks.append(
            Tick(
                record.cycle,
                event,
                time.process_time(),
                time.perf_counter(),
                metrics.sent_bytes,
                metrics.received_bytes,
            )
        )

    @property
    def join_cpu_s(self) -> float:
        """Until the first cycle."""
        return self.ticks[0].cpu_s - self._began_cpu_s

    @property
    def connected_bytes(self) -> int:
        """Memory that came until the first cycle."""
        return self._joined_bytes - self._began_bytes

    @property
    def cycle_bytes(self) -> int:
        """Memory that came on top of that, at most."""
        return memory("VmHWM") - self._joined_bytes

    def cpu_s(self, begins: type[Record], ends: type[Record]) -> float:
        """Between two events that follow each other."""
        return median(
            after.cpu_s - before.cpu_s
            for before, after in pairwise(self.ticks)
            if (before.event, after.event) == (begins, ends)
        )

    def each_cycle(self, meter: str) -> float:
        """How far a meter moves from one cycle's end to the next."""
        ends = [getattr(tick, meter) for tick in self.ticks if tick.event is Evaluated]
        return float(median(after - before for before, after in pairwise(ends)))


def measure(model: str, learners: int, cycles: int, folder: Path) -> Cost:
    """Be an orchestrator of light learners, over TLS on loopback; return its cost."""
    use_threads(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    job = Job(
        name="crowd",
        scheme="eta",
        model=model,
        mode=Mode.FEDERATED,
        cycles=cycles,
        deadline=Deadline(DEADLINE_S),
    )
    run, meters = folder / "run", Meters()
    run.mkdir()
    with ExitStack() as stack:

        def ready(server: rpc.Server) -> None:
            meters.begin(server)
            share = -(-learners // PROCESSES)
            commands = [
                (LIGHT, server.invite(), first, min(share, learners - first))
                for first in range(0, learners, share)
            ]
            stack.enter_context(running(commands))

        happened = orchestrate(
            job,
            run,
            learners=learners,
            watch=meters.watch,
            ready=ready,
            port=0,
            secure=True,
            folder=folder / "secrets",
            say=lambda text: None,
        )
    merged = [record.learners for record in happened if isinstance(record, Aggregated)]
    return Cost(
        model=model.partition(":")[2] or model,
        model_bytes=model_bytes(build(model, seed=0)),
        learners=learners,
        lost=cycles * learners - sum(merged),
        join_cpu_s=meters.join_cpu_s,
        ready_cpu_s=meters.cpu_s(Evaluated, Allocated),
        exchange_cpu_s=meters.cpu_s(Allocated, Aggregated),
        rest_cpu_s=meters.cpu_s(Aggregated, Evaluated),
        cycle_s=meters.each_cycle("at_s"),
        sent_bytes=int(meters.each_cycle("sent_bytes")),
        received_bytes=int(meters.each_cycle("received_bytes")),
        records_bytes=(run / RECORDS).stat().st_size // cycles,
        connected_bytes=meters.connected_bytes,
        cycle_bytes=meters.cycle_bytes,
    )


def memory(what: str) -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM at most; see proc(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {what}: this takes Linux")
