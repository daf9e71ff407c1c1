"""Live learners over real sockets, in this process: who does what, and what counts."""

import asyncio
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import JOB, Steady, changed, joined, live, of, slow

from melisma import rpc
from melisma.errors import CallTimeout, RemoteError, TrainingError
from melisma.fleets import judge
from melisma.fleets.live import LiveLearners
from melisma.fleets.messages import Speeds, TaskSpec, TrainRequest, Update
from melisma.fleets.protocols import Order
from melisma.fleets.served import ServedTask
from melisma.launch.local import resumable
from melisma.launch.serve import orchestrate
from melisma.learner.background import BackgroundLoad, State
from melisma.learner.device import PART_BYTES, Device, Link, WarmTask
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller, RpcSource
from melisma.learner.speed import Speed
from melisma.learner.throttle import sleep_unless
from melisma.learner.training import LocalTraining
from melisma.learning.parameters import all_finite, load
from melisma.learning.samples import Arrays
from melisma.learning.settings import Late, Training
from melisma.learning.shards import Shard, ShardStore, key_of
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import CHECKPOINT, MODEL, PREVIOUS, RECORDS, Checkpoint
from melisma.schemes import DECENTRALISED, SCHEMES, SPENDING
from melisma.units import Deadline, Seconds


@pytest.mark.parametrize(
    "scheme",
    [
        scheme
        if scheme in ("csa", "dab")
        else pytest.param(scheme, marks=pytest.mark.slow)
        for scheme in SCHEMES
    ],
)
def test_every_scheme_runs_live(tmp_path: Path, scheme: str) -> None:
    learners = [Learner(name=name) for name in ("a", "b")]
    # However late they are: on a busy machine a benchmark may promise too much.
    job = changed(scheme=scheme, cycles=1, deadline=Deadline(2.0), late=Late.WAIT)
    happened = live(job, tmp_path, learners)
    assert len(of(records.Evaluated, happened)) == 1
    uploaded = {record.learner for record in of(records.Uploaded, happened)}
    assert uploaded == {"a", "b"} or (scheme in SPENDING and uploaded)
    predicted = {
        record.predicted_s is None for record in of(records.Allocated, happened)
    }
    assert predicted == {scheme in DECENTRALISED}
    assert (tmp_path / MODEL).exists()


def test_the_model_learns(tmp_path: Path) -> None:
    job = changed(cycles=4, samples=2000, steps=2, scheme="dab", most=20)
    happened = live(job, tmp_path, [Learner(name=name) for name in ("a", "b")])
    assert of(records.Evaluated, happened)[-1].metrics["accuracy"] > 0.75


#: A steady learner says that it takes 44.1 s for one pass over 4,000 samples.
ONE_PASS = Seconds(60.0)


def test_a_shard_is_sent_to_a_learner_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    fetch = RpcSource.shards

    def counted(self: RpcSource, task: str, keys: list[str], *limit: Any) -> Any:
        asked.extend(keys)
        return fetch(self, task, keys, *limit)

    monkeypatch.setattr(RpcSource, "shards", counted)
    learner = Steady(name="a")
    # All 80 shards in every cycle; 8 of them were fetched for the benchmark before,
    # at two sizes with a warm-up and repeats, which time the transfer for real.
    job = changed(samples=4000, deadline=ONE_PASS)
    live(job, tmp_path, [learner])
    assert len(set(asked)) == 80
    benchmarked = {key for key in asked if asked.count(key) > 1}
    assert len(benchmarked) <= 8


def test_many_shards_are_fetched_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    fetch = RpcSource.shards

    def counted(self: RpcSource, task: str, keys: list[str], *limit: Any) -> Any:
        asked.append(len(keys))
        return fetch(self, task, keys, *limit)

    monkeypatch.setattr(RpcSource, "shards", counted)
    # Shards of 50 images, each of 784 bytes and a label of one: ten in a part.
    monkeypatch.setattr("melisma.learner.device.PART_BYTES", 10 * 50 * 785)
    job = changed(samples=4000, cycles=1, deadline=ONE_PASS)
    happened = live(job, tmp_path, [Steady(name="a")])
    assert max(asked) == 10
    (trained,) = of(records.Trained, happened)
    assert trained.samples == 4000


def test_a_fetch_whose_parts_take_too_long_is_given_up() -> None:
    spec = msgspec.structs.replace(_spec("TwoNN"), shard=2)
    parts: list[list[str]] = []

    class Slow(RpcSource):
        def __init__(self) -> None:
            """Have no connection."""

        def shards(self, task: str, keys: list[str], within_s: float | None = None):  # type: ignore[no-untyped-def]
            parts.append(keys)
            return [{"x": torch.zeros(2, PART_BYTES)} for _ in keys]

    clock = iter(range(100)).__next__
    training = Training()
    device = Device(
        name="a", own=None, background=BackgroundLoad([State()]), clock=clock
    )
    speed = Speed(model_bytes=0, sample_bytes=PART_BYTES)
    model = torch.nn.Linear(1, 1)
    task = WarmTask(spec, model, speed, training, transform=lambda batch: batch)
    link = Link(device, task, Slow(), 1.0)
    with pytest.raises(CallTimeout, match="of 9 shards came within 5 s"):
        link.shards([str(k) for k in range(9)], within_s=5.0)
    assert all(len(part) == 1 for part in parts)


def test_the_loop_answers_while_shards_are_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def watched(shard: Shard) -> str:
        threads.append(threading.get_ident())
        return key_of(shard)

    monkeypatch.setattr("melisma.learning.shards.key_of", watched)
    samples = Arrays({"x": torch.arange(20)})
    roster: Any = None  # is not asked
    crew = LiveLearners(roster, ServedTask("task", {}, ShardStore(samples, 5)))
    order = Order(learner=0, samples=10, steps=1, rows=np.arange(10))
    request = asyncio.run(crew._request(order, 9.0, time.monotonic()))
    assert request.keys == [key_of(samples[:5]), key_of(samples[5:10])]
    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.slow
def test_the_same_learners_give_the_same_model(tmp_path: Path) -> None:
    models = []
    for run in ("first", "second"):
        live(JOB, tmp_path / run, [Steady(name=name) for name in ("a", "b")])
        models.append(load(tmp_path / run / MODEL))
    assert all(torch.equal(models[0][name], t) for name, t in models[1].items())


@pytest.mark.slow
def test_a_run_that_was_cut_short_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    names = ("a", "b")
    job = changed(cycles=4)
    live(job, whole, [Steady(name=name) for name in names])

    def pull_the_plug(record: Record) -> None:
        if record.cycle == 3 and isinstance(record, records.Uploaded):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live(job, cut, [Steady(name=name) for name in names], pull_the_plug)
    done = Checkpoint.read(cut)
    assert done is not None
    assert done.cycle == 2
    assert (cut / RECORDS).stat().st_size > done.records_bytes  # half a cycle more
    assert not (cut / MODEL).exists()
    happened = live(job, cut, [Steady(name=name) for name in names])
    expected, resumed = load(whole / MODEL), load(cut / MODEL)
    assert all(torch.equal(expected[name], t) for name, t in resumed.items())
    assert [record.cycle for record in of(records.Evaluated, happened)] == [1, 2, 3, 4]
    times_s = [record.time_s for record in of(records.Evaluated, happened)]
    assert times_s == sorted(times_s)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    live(JOB, tmp_path, [Steady(name="a")])
    (tmp_path / CHECKPOINT).write_bytes(b"cut short")
    (tmp_path / PREVIOUS).unlink(missing_ok=True)
    with pytest.raises(Exception, match="not a readable model"):
        live(JOB, tmp_path, [Steady(name="a")])


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is no run"):
        resumable(tmp_path)


class Frozen(Steady):
    """A learner that never comes back from its first request."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        if request.cycle == 1:
            self.gave_up = caller.gave_up
            sleep_unless(caller.gave_up, 60.0)
            # Nobody waits; training now would take the next request's place.
            raise TrainingError("thawed too late")
        return super().train(request, caller)


@pytest.mark.slow
@pytest.mark.alone
def test_at_the_deadline_the_cycle_goes_on_without_the_missing(tmp_path: Path) -> None:
    frozen = Frozen(name="b")
    job = changed(deadline=Deadline(8.0), samples=100)
    happened = live(job, tmp_path, [Steady(name="a"), frozen])
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.cycle) == ("b", 1)
    assert dropped.reason == "not there by the deadline"
    assert [r.learners for r in of(records.Aggregated, happened)] == [1, 2]
    assert frozen.gave_up()  # the deadline stops the computing, too


def test_a_learner_that_leaves_costs_its_share_of_the_cycle(tmp_path: Path) -> None:
    lines: dict[str, rpc.Connection] = {}

    class Leaving(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            if request.cycle == 2:
                lines["b"]._session.loop.call_soon_threadsafe(
                    lines["b"]._session.end, "unplugged"
                )
                sleep_unless(caller.gave_up, 60.0)
            return super().train(request, caller)

    def start(server: rpc.Server) -> None:
        for learner in (Steady(name="a"), Leaving(name="b")):
            lines[learner.name] = rpc.connect(
                server.address, Service(learner), name=learner.name
            )

    happened = orchestrate(
        changed(cycles=3),
        tmp_path,
        learners=1,
        ready=start,
        port=0,
        say=lambda text: None,
    )
    for line in lines.values():
        line.close()
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.cycle) == ("b", 2)
    assert dropped.reason.startswith("lost: ")
    assert len(of(records.Evaluated, happened)) == 3


class Wrong(Steady):
    """A learner whose updates are not what was asked for."""

    def __init__(self, name: str, **changes: Any) -> None:
        super().__init__(name=name)
        self._changes = changes

    def train(self, request: TrainRequest, caller: Caller) -> Any:
        update = super().train(request, caller)
        if "anything" in self._changes:
            return self._changes["anything"]
        return msgspec.structs.replace(update, **self._changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cycle": 7}, "an update of cycle 7"),
        ({"samples": 10**6}, "1000000 samples claimed of 300 given"),
        ({"samples": -1}, "-1 samples claimed of 300 given"),
        ({"parameters": {}}, "parameters of another model"),
        ({"parameters": {"1.weight": torch.zeros(3)}}, "parameters of another model"),
        ({"anything": 42}, "not an update"),
    ],
)
def test_a_wrong_update_is_refused_and_recorded(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    happened = live(JOB, tmp_path, [Steady(name="a"), Wrong("b", **changes)])
    dropped = of(records.Dropped, happened)
    assert {(record.learner, record.reason) for record in dropped} == {("b", reason)}
    assert [r.learners for r in of(records.Aggregated, happened)] == [1, 1]


def test_nan_is_refused(tmp_path: Path) -> None:
    class NotANumber(Steady):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            update = super().train(request, caller)
            for tensor in update.parameters.values():
                tensor.fill_(torch.nan)
            return update

    happened = live(JOB, tmp_path, [Steady(name="a"), NotANumber(name="b")])
    reasons = {record.reason for record in of(records.Dropped, happened)}
    assert reasons == {"parameters are not finite"}


class Far(Steady):
    """Sends parameters that are finite and of no use, in one cycle or in all."""

    def __init__(self, name: str, value: float, cycle: int | None = None) -> None:
        super().__init__(name=name)
        self._value, self._cycle = value, cycle

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        if self._cycle in (None, request.cycle):
            for tensor in update.parameters.values():
                tensor.fill_(self._value)
        return update


@pytest.mark.slow
@pytest.mark.parametrize("value", [3e38, 1e30])
def test_one_huge_update_harms_nobody_else(tmp_path: Path, value: float) -> None:
    learners = [Steady(name="a"), Far("b", value)]
    happened = live(changed(cycles=4), tmp_path, learners)
    assert [r.learner for r in of(records.Expelled, happened)] == ["b"]
    assert {r.learner for r in of(records.Dropped, happened)} == {"b"}
    assert of(records.Evaluated, happened)[-1].loss < 3.0
    assert all_finite(load(tmp_path / MODEL))


def test_a_merged_model_that_is_of_no_use_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(judge, "MOST_TIMES", 1e40)  # as if it had passed
    learners = [Steady(name="a"), Far("b", 1e30, cycle=2)]
    happened = live(changed(cycles=3), tmp_path, learners)
    one, two, three = of(records.Evaluated, happened)
    assert (two.metrics, two.loss) == (one.metrics, one.loss)
    assert three.loss not in (None, one.loss)
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 0, 2]
    assert not of(records.Dropped, happened)
    assert any("the old one stays" in text for text in caplog.messages)


@pytest.mark.slow
def test_a_repeated_offender_is_sent_away(tmp_path: Path) -> None:
    job = changed(cycles=5)
    learners = [Steady(name="a"), Wrong("b", cycle=7)]
    with ExitStack() as stack:
        happened = orchestrate(
            job,
            tmp_path,
            learners=1,
            ready=lambda server: stack.enter_context(joined(server, learners)),
            port=0,
            say=lambda text: None,
        )
    assert len(of(records.Dropped, happened)) >= 3
    assert len(of(records.Evaluated, happened)) == 5


@pytest.mark.slow
def test_a_slow_learner_halts_and_its_part_counts(tmp_path: Path) -> None:
    class Boastful(Learner):
        """Claims to be fast, and is slow."""

        def speeds(self, task: str, drifted: bool) -> Speeds:
            return Speeds(step_s=1e-5, sample_s=1e-6, fixed_s=0.01)

    late = Boastful(name="b", background=slow(150.0))
    job = changed(cycles=1, deadline=Deadline(8.0), samples=4000, scheme="eta")
    happened = live(job, tmp_path, [Boastful(name="a"), late])
    halted = {record.learner: record for record in of(records.Halted, happened)}
    assert "b" in halted
    assert 0 < halted["b"].samples < 2000
    assert not of(records.Dropped, happened)


def test_a_learner_trains_no_model_because_somebody_names_it() -> None:
    with (
        rpc.serve(Service(Learner(name="a")), port=None) as device,
        rpc.connect(device) as caller,
        pytest.raises(RemoteError, match="unknown model 'os:system'"),
    ):
        caller.prepare(_spec("os:system"))


def test_under_a_decentralised_scheme_no_speed_is_told() -> None:
    with (
        rpc.serve(Service(Learner(name="a")), port=None) as device,
        rpc.connect(device) as caller,
    ):
        caller.prepare(_spec("TwoNN"))
        with pytest.raises(RemoteError, match="keeps its speed private"):
            caller.speeds("t", True)


def _spec(model: str) -> Any:
    return TaskSpec(
        task="t",
        model=model,
        seed=0,
        training=Training(rate=0.1),
        shard=50,
        federated=False,
        private=True,
    )


@pytest.mark.parametrize(("late", "batches"), [("overrun", 11), ("wait", 30)])
def test_a_learner_looks_at_the_clock_every_few_batches(
    late: str, batches: int
) -> None:
    # 0.6 s a batch, looks after 1, 6 and 11 of them: 5.4 s is past the 5 s, unseen.
    now = [0.0]
    spec = msgspec.structs.replace(_spec("TwoNN"), look_every=5)
    device = Device(
        name="a", own=None, background=BackgroundLoad(), clock=lambda: now[0]
    )
    model, source = torch.nn.Linear(1, 1), RpcSource(None)  # type: ignore[arg-type]
    speed = Speed(model_bytes=0)
    task = WarmTask(spec, model, speed, Training(), transform=lambda batch: batch)
    request = TrainRequest(
        task="t",
        cycle=1,
        keys=[],
        samples=120,
        steps=1,
        deadline_s=5.0,
        late=Late(late),
    )
    training = LocalTraining(device, task, request, Caller(source, lambda: False))
    halt, done = training._halt(np.full(30, 4)), 0
    while done < 30 and not halt():
        now[0] += 0.6
        done += 1
    assert done == batches


@pytest.mark.slow
def test_an_update_that_overran_the_deadline_counts(tmp_path: Path) -> None:
    # 600 samples at 300 a second take 2 s: it sees so after 1, 6 or 11 of 19 batches.
    job = changed(
        late=Late.OVERRUN, look_every=5, cycles=1, deadline=Deadline(0.9), scheme="sync"
    )

    class Boastful(Learner):
        def speeds(self, task: str, drifted: bool) -> Speeds:
            return Speeds(step_s=1e-3, sample_s=1e-6, fixed_s=0.01)

    happened = live(job, tmp_path, [Boastful(name="a", background=slow(300.0))])
    (halted,) = of(records.Halted, happened)
    assert halted.batches % 5 == 1
    assert halted.batches < 19
    (uploaded,) = of(records.Uploaded, happened)
    (allocated,) = of(records.Allocated, happened)
    assert uploaded.time_s - allocated.time_s > 0.9
    assert of(records.Aggregated, happened)[0].samples == halted.samples


def test_an_overhead_is_planned_for(tmp_path: Path) -> None:
    # 600 samples: 4 passes of 6 s by 30 s, 0.7 s of transfers, and 2 s of overhead.
    job = changed(cycles=1, overhead=Seconds(2.0))
    (allocated,) = of(records.Allocated, live(job, tmp_path, [Steady(name="a")]))
    assert allocated.predicted_s == pytest.approx(26.7)


def test_who_bids_is_asked_for_what_an_overhead_leaves(tmp_path: Path) -> None:
    asked = []

    class Asked(Learner):
        def bid(self, name: str, deadline_s: float, steps: int) -> int:
            asked.append(deadline_s)
            return 1

    live(
        changed(cycles=1, scheme="dab", overhead=Seconds(2.0)),
        tmp_path,
        [Asked(name="a")],
    )
    assert asked == [28.0]
