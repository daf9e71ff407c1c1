"""Learners come, go, freeze, offend and fail; the run goes on with who is there."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import Steady, changed, joined, live, of, slow

from melisma import rpc
from melisma.algorithms import averaging, loop
from melisma.algorithms.log import OFFENCES
from melisma.errors import InfeasibleError, TrainingError
from melisma.fleets import roster
from melisma.fleets.messages import Ready, Speeds, TaskSpec, TrainRequest, Update
from melisma.fleets.protocols import NOT_THERE
from melisma.jobs.schema import AggregationTable
from melisma.launch.serve import orchestrate
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.parameters import load
from melisma.learning.settings import Late, Rule
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL
from melisma.units import Deadline, Seconds

pytestmark = [pytest.mark.slow, pytest.mark.alone]

#: Long enough for a steady learner on busy cores.
SHORT = Seconds(4.0)


def test_who_joins_later_takes_part_from_then_on(tmp_path: Path) -> None:
    lines = ExitStack()
    servers: list[rpc.Server] = []

    def bring_another(record: Record) -> None:
        if isinstance(record, records.Evaluated) and record.cycle == 1:
            another = joined(servers[0], [Steady(name="b")])
            coming = threading.Thread(target=lines.enter_context, args=(another,))
            coming.start()
            coming.join()

    def start(server: rpc.Server) -> None:
        servers.append(server)
        lines.enter_context(joined(server, [Steady(name="a")]))

    with lines:
        happened = orchestrate(
            changed(cycles=8),
            tmp_path,
            learners=1,
            watch=bring_another,
            ready=start,
            port=0,
            say=lambda text: None,
        )
    came = {record.learner: record.cycle for record in of(records.Joined, happened)}
    assert came["a"] == 1
    assert 2 <= came["b"] <= 8
    merged = [record.learners for record in of(records.Aggregated, happened)]
    assert merged == [1] * (came["b"] - 1) + [2] * (9 - came["b"])


def test_who_has_left_is_recorded_and_not_waited_for(tmp_path: Path) -> None:
    lines: dict[str, rpc.Connection] = {}

    def start(server: rpc.Server) -> None:
        for name in ("a", "b"):
            service = Service(Steady(name=name))
            lines[name] = rpc.connect(server.address, service, name=name)

    def hang_up(record: Record) -> None:
        if isinstance(record, records.Evaluated) and record.cycle == 1:
            lines.pop("b").close()

    happened = orchestrate(
        changed(cycles=3),
        tmp_path,
        learners=2,
        watch=hang_up,
        ready=start,
        port=0,
        say=lambda text: None,
    )
    lines["a"].close()
    (left,) = of(records.Left, happened)
    assert (left.learner, left.cycle) == ("b", 2)
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 1, 1]


def test_a_cycle_does_not_wait_for_who_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "HURRY_S", 1.0)
    thawed = threading.Event()

    class Freezing(Steady):
        def prepare(self, spec: TaskSpec) -> Ready:
            if self._tasks:  # from its second cycle on
                thawed.wait(30.0)
            return super().prepare(spec)

    happened = live(changed(cycles=4), tmp_path, [Steady(name="a"), Freezing(name="b")])
    thawed.set()
    (left,) = of(records.Left, happened)
    assert (left.learner, left.cycle) == ("b", 2)
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 1, 1, 1]


class Nan(Steady):
    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        for tensor in update.parameters.values():
            tensor.fill_(torch.nan)
        return update


class Failing(Steady):
    def train(self, request: TrainRequest, caller: Caller) -> Update:
        raise OSError("the disk is full")


class Stale(Steady):
    def train(self, request: TrainRequest, caller: Caller) -> Update:
        return msgspec.structs.replace(super().train(request, caller), cycle=0)


class Huge(Steady):
    """Sends ten gigabytes: pages of nothing, which take no memory unless read."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        much = torch.from_numpy(np.zeros(2_500_000_000, dtype=np.float32))
        return msgspec.structs.replace(update, parameters={"1.weight": much})


@pytest.mark.parametrize("offender", [Nan, Failing, Stale, Huge])
def test_repeated_offenders_are_expelled_for_good(
    tmp_path: Path, offender: type[Steady]
) -> None:
    learners = [Steady(name="a"), offender(name="b")]
    happened = live(changed(cycles=OFFENCES + 2), tmp_path, learners)
    offences = [r for r in of(records.Dropped, happened) if r.offence]
    assert [(r.learner, r.cycle) for r in offences] == [("b", 1), ("b", 2), ("b", 3)]
    (expelled,) = of(records.Expelled, happened)
    assert (expelled.learner, expelled.cycle) == ("b", OFFENCES)
    assert [r.learners for r in of(records.Aggregated, happened)] == [1] * 5


def test_who_was_expelled_stays_out_of_a_resumed_run(tmp_path: Path) -> None:
    live(changed(cycles=OFFENCES), tmp_path, [Steady(name="a"), Nan(name="b")])
    learners = [Steady(name="a"), Steady(name="b")]  # it promises to be good
    happened = live(changed(cycles=OFFENCES + 2), tmp_path, learners, least=1)
    late = [r for r in happened if r.cycle > OFFENCES]
    assert {r.learner for r in of(records.Allocated, late)} == {"a"}


def test_offences_are_remembered_by_a_resumed_run(tmp_path: Path) -> None:
    live(changed(cycles=OFFENCES - 1), tmp_path, [Steady(name="a"), Nan(name="b")])
    happened = live(
        changed(cycles=OFFENCES), tmp_path, [Steady(name="a"), Nan(name="b")]
    )
    (expelled,) = of(records.Expelled, happened)
    assert expelled.cycle == OFFENCES
    assert len(of(records.Joined, happened)) == 2  # they had not left


class Tardy(Steady):
    """Not done by the deadline in its first cycle."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        if request.cycle == 1:
            sleep_unless(caller.gave_up, 1.5 * SHORT)
        return super().train(request, caller)


def test_who_is_late_is_dropped_if_so_configured(tmp_path: Path) -> None:
    job = changed(samples=100, deadline=SHORT, late=Late.DROP)
    happened = live(job, tmp_path, [Steady(name="a"), Tardy(name="b")])
    dropped = [r for r in of(records.Dropped, happened) if r.cycle == 1]
    found = [(r.learner, r.reason, r.offence, r.late) for r in dropped]
    assert found == [("b", NOT_THERE, False, True)]
    assert of(records.Aggregated, happened)[0].truancy == 0.0


def test_who_is_late_is_waited_for_if_so_configured(tmp_path: Path) -> None:
    job = changed(samples=100, deadline=SHORT, late=Late.WAIT)
    happened = live(job, tmp_path, [Steady(name="a"), Tardy(name="b")])
    assert not of(records.Dropped, happened)
    first, second = of(records.Aggregated, happened)
    assert (first.learners, second.learners) == (2, 2)
    assert first.truancy > 0.4


class Hopeless(Steady):
    """Says that it cannot do a shard by the deadline, from its second cycle on."""

    cycle = 0

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        self.cycle = request.cycle
        return super().train(request, caller)

    def speeds(self, task: str, drifted: bool) -> Speeds:
        slow = 100.0 if self.cycle else 1.0
        return Speeds(step_s=0.01 * slow, sample_s=0.001, fixed_s=0.1)


def test_who_can_no_longer_meet_the_deadline_sits_out(tmp_path: Path) -> None:
    job = changed(scheme="csa", samples=200, deadline=Deadline(10.0), cycles=2)
    happened = live(job, tmp_path, [Steady(name="a"), Hopeless(name="b")])
    given = {(r.cycle, r.learner): r.samples for r in of(records.Allocated, happened)}
    assert given[1, "b"] > 0
    assert (given[2, "a"], given[2, "b"]) == (200, 0)


def test_a_cycle_without_an_update_does_not_end_the_run(tmp_path: Path) -> None:
    class Away(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle == 2:
                sleep_unless(caller.gave_up, 1.5 * SHORT)
            return super().train(request, caller)

    job = changed(samples=100, deadline=SHORT, cycles=3)
    happened = live(job, tmp_path, [Away(name="a")])
    assert [r.learners for r in of(records.Aggregated, happened)] == [1, 0, 1]
    one, two, three = (r.metrics["accuracy"] for r in of(records.Evaluated, happened))
    assert one == two != three


def test_a_run_without_updates_ends_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "FRUITLESS", 2)

    class Idle(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            sleep_unless(caller.gave_up, 5.0)
            raise AssertionError("it was cut off before")

    with pytest.raises(TrainingError, match=r"cycle 2 .* without one update"):
        live(changed(samples=100, deadline=Deadline(0.5)), tmp_path, [Idle(name="a")])


def test_a_deadline_that_nobody_can_meet_is_an_error_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Measured(Steady):
        """Needs no benchmark, which would take some of the waiting time."""

        def prepare(self, spec: TaskSpec) -> Ready:
            return msgspec.structs.replace(super().prepare(spec), measured=True)

    monkeypatch.setattr(averaging, "WAIT_S", 2.0)
    monkeypatch.setattr(averaging, "POLL_S", 0.1)
    job = changed(scheme="csa", deadline=Deadline(0.2))
    with pytest.raises(InfeasibleError, match=r"0\.2 s"):
        live(job, tmp_path, [Measured(name="a")])
    assert len([text for text in caplog.messages if "waiting up to" in text]) == 1


def test_a_bid_out_of_measure_is_cut_to_what_there_is(tmp_path: Path) -> None:
    class Greedy(Steady):
        def bid(self, task: str, deadline_s: float, steps: int) -> Any:
            return 2**62

    class Odd(Steady):
        def bid(self, task: str, deadline_s: float, steps: int) -> Any:
            return "as many as you like"

    job = changed(scheme="dab", cycles=1, shard=500)
    happened = live(job, tmp_path, [Greedy(name="a"), Odd(name="b"), Steady(name="c")])
    given = {r.learner: r.samples for r in of(records.Allocated, happened)}
    assert (given["a"], given["b"]) == (4000, 0)


class Poisoning(Steady):
    """Sends a model that leads far away."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        poison = {name: t + 100.0 for name, t in update.parameters.items()}
        return msgspec.structs.replace(update, parameters=poison)


@pytest.mark.parametrize(
    "aggregation",
    [
        AggregationTable(rule=Rule.MEDIAN),
        AggregationTable(rule=Rule.TRIMMED, trim=0.34),
        AggregationTable(clip=0.1),
    ],
)
def test_poison_of_a_minority_does_little_where_the_job_defends_itself(
    tmp_path: Path, aggregation: AggregationTable
) -> None:
    def learnt(name: str, aggregation: AggregationTable) -> float:
        learners = [Steady(name="a"), Steady(name="b"), Poisoning(name="c")]
        job = changed(cycles=1, samples=600, aggregation=aggregation)
        live(job, tmp_path / name, learners)
        model = load(tmp_path / name / MODEL)
        return max(float(tensor.abs().max()) for tensor in model.values())

    assert learnt("open", AggregationTable()) > 30.0  # a third of it
    assert learnt("defended", aggregation) < 1.0


def test_a_device_that_slows_down_is_given_less(tmp_path: Path) -> None:
    class Heating(Learner):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle == 2:
                self._device.background = slow(100.0)
            return super().train(request, caller)

    job = changed(scheme="dab", cycles=5, deadline=Deadline(2.0), shard=10)
    hot = Heating(name="a", background=slow(1500.0))
    happened = live(job, tmp_path, [hot, Learner(name="b")])
    given = [r.samples for r in of(records.Allocated, happened) if r.learner == "a"]
    # It finishes up to 1,500 a second at first (fewer where others take the
    # core), and 100 then.
    assert max(given[:2]) > 400
    assert 0 < given[-1] < 200


@pytest.mark.parametrize("scheme", ["csa", "dab"])
def test_a_device_that_slows_down_keeps_its_promise_again(
    scheme: str, tmp_path: Path
) -> None:
    class Heating(Learner):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle == 3:
                self._device.background = slow(100.0)
            return super().train(request, caller)

    job = changed(
        scheme=scheme, cycles=12, deadline=Deadline(1.5), shard=10, late_at_most=0.2
    )
    hot = Heating(name="a", background=slow(1500.0))
    happened = live(job, tmp_path, [hot, Learner(name="b", background=slow(2000.0))])
    mine = [r for r in of(records.Allocated, happened) if r.learner == "a"]
    passes = [r.samples * r.steps for r in mine]
    assert len(passes) == 12
    assert max(passes[:3]) > 300
    assert passes[-1] < 150  # 100 samples a second, for 1.5 s
    halted = {r.cycle for r in of(records.Halted, happened) if r.learner == "a"}
    assert 3 in halted
    assert len(halted.intersection(range(8, 13))) <= 2
    planned = [r.planned_s for r in mine]
    if scheme == "dab":  # which are its own
        assert planned == [None] * 12
    else:
        assert all(p is not None and p <= 1.5 for p in planned)


def test_who_was_started_anew_since_it_was_ready_has_not_offended(
    tmp_path: Path,
) -> None:
    class Forgetful(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle == 1:
                self._tasks.clear()  # as in a fresh process
            return super().train(request, caller)

    happened = live(changed(), tmp_path, [Steady(name="a"), Forgetful(name="b")])
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.cycle, dropped.offence) == ("b", 1, False)
    assert [r.learners for r in of(records.Aggregated, happened)] == [1, 2]
