"""Coded training with six processes, one of which is struck at its work.

This process orchestrates; learners are processes, as a user starts them. One is struck
when it fetches the model of a cycle: it has begun its part by then, and cannot be done
with it, however fast or slow the machine is.
"""

import math
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.algorithms.test_coded import build, job, ran
from tests.algorithms.test_coded_live import JOB, assert_exact
from tests.fleets.learners import of
from tests.launch.chaos.processes import (
    GUARD_S,
    ORCHESTRATOR,
    Process,
    Processes,
    free_port,
    freeze,
    processes,
    rows_of,
    running_in,
    seen,
    thaw,
    until,
)

from melisma import rpc
from melisma.coding import Plan, choose
from melisma.fleets.served import ModelServer
from melisma.jobs.files import load
from melisma.jobs.schema import StragglingTable
from melisma.jobs.transmission_table import TransmissionTable
from melisma.launch.serve import orchestrate
from melisma.learning.parameters import Parameters
from melisma.learning.wire import Packed
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import RECORDS

#: If one of six dies in each cycle and none comes back, the sixth finds one alone: too
#: few to bear a straggler. So no run is over before somebody has come back.
CYCLES = 6
SLOW = "a"
#: Samples a second; what each is given of a cycle's 600 takes it about 0.3 s.
RATES = dict.fromkeys("abcdef", 360) | {SLOW: 120}


class Six:
    """Six learners, from one run to the next."""

    def __init__(self, start: Processes) -> None:
        self.start, self.port = start, 0
        self.running: dict[str, Process] = {}

    def join(self, server: rpc.Server) -> None:
        """Start those who do not run; the others dial again by themselves."""
        self.port = server.port
        for name in RATES:
            if name not in self.running or self.running[name].poll() is not None:
                self.begin(name)

    def begin(self, name: str) -> None:
        pace = ("--rate", f"{RATES[name]} samples/s")
        self.running[name] = self.start.learner(self.port, name, *pace)

    def end(self) -> None:
        """Tell everybody to end, and see it.

        Who was killed in the last cycle may have come back when all was over.
        """
        for process in self.running.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self.running.values():
            code, said = process.wait(GUARD_S), self.start.said(process)
            assert code == 0 or (code == 2 and "nobody answers" in said), said
        assert running_in(self.start.folder) == []


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Six]:
    with processes(tmp_path_factory.mktemp("six")) as start:
        six = Six(start)
        yield six
        six.end()


class Blows:
    """In each of some cycles, one of those at work is struck, but never ``spared``."""

    def __init__(
        self, strike: Callable[[str], None], cycles: Sequence[int], spared: str = ""
    ) -> None:
        self._strike, self.cycles, self._spared = strike, cycles, spared
        self._chance, self._lock = random.Random(1), threading.Lock()
        self._busy: dict[int, list[str]] = defaultdict(list)
        self._drawn: dict[int, str] = {}
        self.struck: dict[int, str] = {}  #: names by cycle

    def watch(self, record: Record) -> None:
        if isinstance(record, records.Allocated) and record.samples:
            self._busy[record.cycle].append(record.learner)

    def fetched(self, name: str, cycle: int) -> None:
        """Somebody is at work."""
        with self._lock:
            if cycle in self.cycles and cycle not in self._drawn:
                busy = sorted({*self._busy[cycle]} - {self._spared})
                self._drawn[cycle] = self._chance.choice(busy)
            if name == self._drawn.get(cycle) and cycle not in self.struck:
                self.struck[cycle] = name
                self._strike(name)


def telling(fetched: Callable[[str, int], None]) -> type[ModelServer]:
    """Tells who fetches the model of which cycle, before it is sent."""

    class Telling(ModelServer):
        @rpc.expose(idempotent=True)
        def parameters(self, task: str, cycle: int) -> Parameters | Packed:
            fetched(rpc.current().caller, cycle)
            return super().parameters(task, cycle)

    return Telling


def survived(
    six: Six, name: str, code: str, blows: Blows, **changes: Any
) -> list[Record]:
    """Train while there are blows; return what happened, once it is seen to be right.

    Whoever was struck had been given work, nothing of it came, and nobody is blamed.
    """
    job = msgspec.structs.replace(JOB, name=name, code=code, cycles=CYCLES, **changes)
    folder = six.start.folder / name
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("melisma.launch.serve.ModelServer", telling(blows.fetched))
        # A busy machine may take long to start a learner.
        patch.setattr("melisma.algorithms.coded.WAIT_S", GUARD_S)
        happened = orchestrate(
            job,
            folder,
            learners=len(RATES),
            watch=blows.watch,
            ready=six.join,
            port=six.port,
            say=lambda text: None,
        )
    assert_exact(job, folder, happened)
    assert list(blows.struck) == list(blows.cycles)
    struck, dropped = set(blows.struck.items()), of(records.Dropped, happened)
    given = {(r.cycle, r.learner) for r in of(records.Allocated, happened) if r.samples}
    assert struck <= given
    assert struck <= {(r.cycle, r.learner) for r in dropped}
    assert not struck & {(r.cycle, r.learner) for r in of(records.Uploaded, happened)}
    assert not any(r.offence for r in dropped)
    return happened


@pytest.mark.long
@pytest.mark.slow
def test_one_frozen_and_one_slow_leave_every_gradient_exact(six: Six) -> None:
    blows = Blows(lambda name: freeze(six.running[name]), cycles=[1], spared=SLOW)
    happened = survived(six, "frozen", "two-stage", blows)
    frozen = blows.struck[1]
    thaw(six.running[frozen])
    assert [record.learner for record in of(records.Left, happened)] == [frozen]


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", ["two-stage", pytest.param("hetero", marks=pytest.mark.long)]
)
def test_one_killed_in_every_cycle_leaves_every_gradient_exact(
    six: Six, code: str
) -> None:
    def kill(name: str) -> None:
        six.running[name].kill()
        assert six.running[name].wait(GUARD_S) == -signal.SIGKILL
        six.begin(name)

    blows = Blows(kill, cycles=range(1, CYCLES + 1))
    happened = survived(six, code, code, blows)
    back = {
        record.learner
        for record in of(records.Allocated, happened)
        for cycle, name in blows.struck.items()
        if record.learner == name and record.cycle > cycle
    }
    assert back


@pytest.mark.slow
def test_batteries_and_channels_outlast_one_killed_in_every_cycle(six: Six) -> None:
    def kill(name: str) -> None:
        six.running[name].kill()
        assert six.running[name].wait(GUARD_S) == -signal.SIGKILL
        six.begin(name)

    # An even share of 100 samples takes 0.3 s, so 1.4 J, and on busy cores more.
    table = TransmissionTable(battery=30.0, start=3.0, harvest=24.0, slot=0.05)  # type: ignore[arg-type]
    blows = Blows(kill, cycles=range(1, CYCLES + 1))
    happened = survived(
        six, "batteries", "two-stage", blows, transmission=table, channels=2
    )
    assert_books_balance(of(records.Powered, happened))


def assert_books_balance(rows: Sequence[records.Powered]) -> None:
    """Batteries of 30 J began with 3 J and were never empty; no joule is lost."""
    assert {row.cycle for row in rows} == set(range(1, CYCLES + 1))
    assert all(0 <= row.lowest_j <= row.battery_j <= 30.0 for row in rows)
    level_j = dict.fromkeys(RATES, 3.0)
    for row in rows:  # who was killed begins with what it last said
        spent_j = row.computing_j + row.sending_j
        end_j = level_j[row.learner] + row.stored_j - spent_j
        assert row.battery_j == pytest.approx(end_j, abs=1e-6)
        level_j[row.learner] = row.battery_j


POWERED = """
name = "powered"
scheme = "coded"
stragglers = 1
cycles = 6
samples = 600
shard = 10
deadline = "60 s"
channels = 2
training = { rate = 0.3, momentum = 0.9 }
transmission = { battery = "30 J", start = "3 J", harvest = "24 W", slot = "0.05 s" }
"""


@pytest.mark.long
@pytest.mark.slow
def test_batteries_outlast_an_orchestrator_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(POWERED)
    (copies := tmp_path / "copies").mkdir()
    for death in ("2-after", "4-before"):  # the checkpoint
        (copies / f"die-{death}").touch()
    run, port = tmp_path / "runs" / "powered", free_port()
    with processes(tmp_path) as start:

        def orchestrate(command: str, what: str) -> Process:
            where = ("--port", str(port), "--learners", str(len(RATES)))
            return start(ORCHESTRATOR, str(copies), command, what, *where)

        orchestrator = orchestrate("serve", "job.toml")
        for name, rate in RATES.items():
            start.learner(port, name, "--rate", f"{rate} samples/s")

        def its_time_has_come() -> bool:
            given = seen(rows_of(run), "allocated", cycle=5)
            return orchestrator.poll() is not None or bool(given)

        for _ in range(3):  # at two checkpoints, and when work of cycle 5 is given
            until(its_time_has_come, "a death")
            orchestrator.kill()
            assert orchestrator.wait() == -signal.SIGKILL, start.said(orchestrator)
            orchestrator = orchestrate("resume", "runs/powered")
        assert orchestrator.wait(GUARD_S) == 0, start.said(orchestrator)
    happened = records.read(run / RECORDS)
    assert_exact(load(tmp_path / "job.toml"), run, happened)
    assert not list(copies.glob("die-*"))
    assert_books_balance(of(records.Powered, happened))


@pytest.mark.slow
@pytest.mark.parametrize("helpers", ["finished", "reserved", "ring"])
def test_a_second_stage_begun_too_early_leaves_every_gradient_exact(
    helpers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_early(*args: Any, **options: Any) -> Plan:
        return replace(choose(*args, **options), t_comp_s=0.0)

    monkeypatch.setattr("melisma.coding.choice.choose", too_early)
    dead = StragglingTable(number=1, slower=math.inf)
    _, happened = ran(build(job(straggling=dead, helpers=helpers)))
    assert {r.error for r in of(records.Aggregated, happened)} == {0.0}
