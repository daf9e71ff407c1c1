"""Fog training on devices in this process, over real sockets."""

import asyncio
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import changed, joined, live, of
from tests.learner.test_orders import FOG

from melisma import rpc
from melisma.algorithms import fog
from melisma.algorithms.fog import Fog
from melisma.algorithms.loop import train
from melisma.errors import (
    AccessError,
    ConfigError,
    DataError,
    RemoteError,
    RpcError,
)
from melisma.fleets.batches import batch_order
from melisma.fleets.live_fog import RelayServer
from melisma.fleets.messages import SlotDone, SlotRequest, Speeds, Update
from melisma.fleets.moves import Move
from melisma.fleets.remotes import RpcRemotes
from melisma.fleets.simulated_fog import SimulatedDevices
from melisma.jobs.building import task_of, training_of
from melisma.jobs.fog import settings_of
from melisma.jobs.fog_table import FogTable, Moving
from melisma.jobs.schema import Job, LearnersTable, TrainingTable
from melisma.launch.local import run_locally
from melisma.launch.serve import orchestrate
from melisma.learner import delivery
from melisma.learner.delivery import Inbox
from melisma.learner.fog import FogLearner
from melisma.learner.service import Listener
from melisma.learner.source import Caller, Relay
from melisma.learning import data, models
from melisma.learning.data import Dataset
from melisma.learning.losses import numbers
from melisma.learning.parameters import Model, Parameters, load, parameters_of, put
from melisma.learning.samples import Arrays, Part, length
from melisma.learning.samples import joined as together
from melisma.learning.shards import Shard
from melisma.learning.training import Session, batch_plan
from melisma.runs import records
from melisma.runs.records import Joined, Left, Moved, Record
from melisma.runs.store import MODEL, RunWriter
from melisma.system.law import DelayLaw, Mode
from melisma.system.streams import Stream
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

#: Slots of 0.8 s, in which nobody is in a hurry.
JOB = changed(
    name="fog",
    scheme="fog",
    mode=Mode.FEDERATED,
    model="FogMLP",
    cycles=2,
    deadline=Deadline(2.4),
    samples=None,
    shard=4,
    training=TrainingTable(rate=0.2, batch=8),
    fog=FogTable(period=3, plan=Moving.KNOWN, discard=10.0),
)
#: Seconds of a sample on each device: c should train on all there is.
STEP_S = {"a": 0.1, "b": 0.04, "c": 0.002}
ROWS = {"a": range(0, 90), "b": range(90, 150), "c": range(150, 210)}


class Reporting(FogLearner):
    """A device that reports the speed of its name, whatever the machine."""

    def __init__(self, *, listens: str | None, **options: Any) -> None:
        super().__init__(**options)
        self.listens, self.directly = listens, list[str]()
        self.requests: dict[int, SlotRequest] = {}

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=STEP_S[self.name], sample_s=2e-4, fixed_s=0.2)

    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        self.requests[request.slot] = request
        done = super().slot(request, caller, relay)
        self.directly += done.directly
        return done


def own(name: str) -> Dataset:
    whole, rows = data.load("mnist-5k"), np.array(ROWS[name])
    return Dataset(name, Part(whole.train, rows), Part(whole.train, rows[:0]))


def devices(
    kinds: dict[str, type[Reporting]] | None = None, listens: Sequence[str] = "abc"
) -> list[Reporting]:
    return [
        (kinds or {}).get(name, Reporting)(
            name=name,
            own=own(name),
            share_data=True,
            listens="127.0.0.1" if name in listens else None,
        )
        for name in "abc"
    ]


class Replay:
    """Plain descent on the samples that the records say went where."""

    def __init__(self, job: Job, skipped: dict[tuple[str, int], int]) -> None:
        self.job, self.training = job, training_of(job)
        self.skipped = skipped  # where that is not what was collected before
        self.seed, self.taken = job.seed, dict.fromkeys("abc", 0)
        self._sessions: dict[tuple[int, str], tuple[Model, Session]] = {}

    def model(self) -> Model:
        return models.build(self.job.model, self.job.seed)

    def collected(self, row: Moved) -> list[Shard]:
        """What a device keeps of its next samples, and what it sends to each other."""
        here, first = own(row.learner), self.taken[row.learner]
        first = self.skipped.get((row.learner, row.slot), first)
        seed = [self.seed, Stream.SPLIT, zlib.crc32(row.learner.encode())]
        order = np.random.default_rng(seed).permutation(len(here.train))
        self.taken[row.learner] += row.collected
        cuts = np.cumsum([row.trained - row.arrived, *row.sent.values()])
        parts = np.split(order[first : first + row.collected], cuts)[:-1]
        return [here.train[part] for part in parts]

    def trained(self, w: Parameters, row: Moved, shards: list[Shard]) -> Parameters:
        """Train from ``w`` on, over all slots of a cycle with the same optimiser."""
        samples = Arrays(numbers(together(shards)))
        rng = batch_order(self.seed, row.slot, row.learner)
        plan = batch_plan(np.arange(len(samples)), 1, self.training, rng)
        key = row.cycle, row.learner
        if key not in self._sessions:
            put(w, model := self.model())
            self._sessions[key] = model, Session(model, self.training)
        model, session = self._sessions[key]
        session.train(samples, plan)
        return parameters_of(model)

    def leaves(self, cycle: int, name: str) -> None:
        """Forget what a device has trained in a cycle."""
        self._sessions.pop((cycle, name), None)


def replayed(
    job: Job, happened: Sequence[Record], skipped: dict[tuple[str, int], int]
) -> Parameters:
    replay = Replay(job, skipped)
    w = parameters_of(replay.model())
    waiting: dict[tuple[int, str], list[Shard]] = defaultdict(list)
    for cycle in range(1, job.cycles + 1):
        theirs, weights = dict.fromkeys("abc", w), Counter[str]()
        for row in (r for r in of((Moved, Left), happened) if r.cycle == cycle):
            name = row.learner
            if isinstance(row, Left):
                replay.leaves(cycle, name)
                theirs[name], weights[name] = w, 0
                continue
            slot = row.slot
            if row.discarded == row.collected + row.arrived:  # all of it, or it is gone
                waiting.pop((slot, name), None)
                replay.taken[name] += row.collected
                continue
            kept, *parts = replay.collected(row)
            for receiver, part in zip(row.sent, parts, strict=True):
                waiting[slot + 1, receiver].append(part)
            due = [kept, *waiting.pop((slot, name), [])]
            theirs[name] = replay.trained(w, row, due)
            weights[name] += row.trained
        w = {
            key: sum(
                (weights[n] / weights.total() * theirs[n][key] for n in "abc"),
                start=torch.zeros(()),
            )
            for key in w
        }
    return w


def assert_replayed(
    job: Job,
    folder: Path,
    happened: Sequence[Record],
    skipped: dict[tuple[str, int], int] | None = None,
) -> None:
    theirs = replayed(job, happened, skipped or {})
    for name, value in load(folder / MODEL).items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name


def sent(happened: Sequence[Record]) -> int:
    return sum(sum(r.sent.values()) for r in of(Moved, happened))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("momentum", [None, 0.9])  # which lasts for a cycle
def test_devices_send_to_one_another_and_learn_what_the_records_say(
    tmp_path: Path, momentum: float | None
) -> None:
    made = devices()
    training = msgspec.structs.replace(JOB.training, momentum=momentum)
    job = msgspec.structs.replace(JOB, training=training)
    happened = live(job, tmp_path, made)
    assert set(made[0].directly) == {"c"}
    assert len(of(records.Evaluated, happened)) == 2
    assert sent(happened) > 20
    assert not of(records.Dropped, happened)
    assert_replayed(job, tmp_path, happened)


@pytest.mark.alone
@pytest.mark.slow
def test_who_cannot_be_reached_gets_its_samples_by_the_orchestrator(
    tmp_path: Path,
) -> None:
    made = devices(listens="ab")
    happened = live(JOB, tmp_path, made)
    assert not made[0].directly + made[1].directly
    assert sent(happened) > 20
    assert_replayed(JOB, tmp_path, happened)


def simulated() -> list[Moved]:
    """What simulated devices of the same data and speeds do."""
    task = replace(task_of(JOB), shard=1)
    crew = SimulatedDevices(
        list("abc"),
        DelayLaw(
            step_s=np.array([STEP_S[name] for name in "abc"]),
            sample_s=np.full(3, 2e-4),
            fixed_s=np.full(3, 0.2),
        ),
        model=task.model,
        samples=task.taken.train,
        own_rows=[np.array(ROWS[name]) for name in "abc"],
        training=task.training,
        steps=1,
        seed=JOB.seed,
    )
    run = RunWriter()
    asyncio.run(train(task, crew, Fog(crew, settings_of(JOB)), run))
    return of(Moved, run.records)


@pytest.mark.alone
@pytest.mark.slow
def test_simulated_and_live_devices_are_given_the_same_moves(tmp_path: Path) -> None:
    made = devices()
    happened = live(JOB, tmp_path, made)
    orders = {(one.name, slot): r for one in made for slot, r in one.requests.items()}
    # What is not delivered or done in time changes what comes after.
    late = {
        r.slot
        for r in of(Moved, happened)
        if r.sent != orders[r.learner, r.slot].sent or not r.trained
        if orders[r.learner, r.slot].sent or orders[r.learner, r.slot].kept
    }
    compared = [r for r in simulated() if r.slot <= min(late, default=7)]
    assert {r.slot for r in compared} >= {1}
    for r in compared:
        order = orders[r.learner, r.slot]
        assert order.collected == r.collected
        assert order.kept == r.trained - r.arrived
        assert order.sent == r.sent


class Vanishing(Reporting):
    """Is gone in the second slot of the first cycle, and back in the second cycle."""

    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        if request.slot == 2:
            raise ConfigError("I have had enough")
        return super().slot(request, caller, relay)


@pytest.mark.alone
@pytest.mark.slow
def test_one_that_fails_costs_its_share_and_comes_back(tmp_path: Path) -> None:
    made = devices({"c": Vanishing})
    happened = live(JOB, tmp_path, made)
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.cycle) == ("c", 1)
    mine = [r for r in of(Moved, happened) if r.learner == "c"]
    assert [r.slot for r in mine if r.trained or r.slot != 3] == [1, 2, 4, 5, 6, 7]
    assert mine[1].discarded == mine[1].collected + mine[1].arrived  # lost with it
    third = {r.learner: r for r in of(Moved, happened) if r.slot == 3}
    assert "c" not in third["a"].sent  # not planned any more
    assert len(of(records.Evaluated, happened)) == 2


class Doors:
    """Devices that connect and leave when a slot is over, while a job runs."""

    def __init__(self, *devices: Reporting) -> None:
        self.devices = list(devices)
        self._at: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self._open: dict[str, ExitStack] = {}
        self._work = ThreadPoolExecutor(1)
        self._done: list[Future[None]] = []
        self.watch: Callable[[Record], None] = lambda record: None

    def after(self, slot: int, act: Callable[[], None]) -> None:
        self._at[slot].append(act)

    def now(self, act: Callable[[], None]) -> None:
        self._done.append(self._work.submit(act))

    def enter(self, device: Reporting) -> None:
        stack = self._open[device.name] = ExitStack()
        stack.enter_context(joined(self._server, [device]))

    def leave(self, name: str) -> None:
        self._open.pop(name).close()

    def run(self, job: Job, folder: Path) -> list[Record]:
        folder.mkdir(exist_ok=True)

        def watch(record: Record) -> None:
            self.watch(record)
            if isinstance(record, Moved):
                for act in self._at.pop(record.slot, []):
                    self.now(act)

        def ready(server: rpc.Server) -> None:
            self._server = server
            for device in self.devices:
                self.enter(device)

        try:
            return orchestrate(
                job,
                folder,
                learners=len(self.devices),
                watch=watch,
                ready=ready,
                port=0,
                say=lambda text: None,
            )
        finally:
            for work in self._done:
                work.result(30)
            self._work.shutdown()
            for name in list(self._open):
                self.leave(name)


def skipped_by(*devices: Reporting) -> dict[tuple[str, int], int]:
    return {
        (device.name, slot): request.skipped
        for device in devices
        for slot, request in device.requests.items()
    }


#: Ten slots of 0.8 s in one cycle.
LONG = changed(
    JOB,
    cycles=1,
    deadline=Deadline(8.0),
    fog=FogTable(period=10, plan=Moving.KNOWN, discard=10.0),
)


@pytest.mark.alone
@pytest.mark.slow
def test_a_late_joiner_takes_part_from_the_next_slot(tmp_path: Path) -> None:
    a, b, c = devices()
    doors = Doors(a, b)
    doors.after(1, lambda: doors.enter(c))
    happened = doors.run(LONG, tmp_path)
    slots = [r.slot for r in of(Moved, happened) if r.learner == "c"]
    assert 1 < slots[0] < 10
    assert slots == list(range(slots[0], 12))
    (late,) = [r for r in of(Joined, happened) if r.learner == "c"]
    assert late.cycle == 1
    assert late.time_s > 0.8
    assert any("c" in r.sent for r in of(Moved, happened))  # it is the fastest
    assert "c" in {r.learner for r in of(records.Uploaded, happened)}
    assert not of(records.Dropped, happened)
    assert_replayed(LONG, tmp_path, happened, skipped_by(a, b, c))


@pytest.mark.alone
@pytest.mark.slow
def test_a_device_that_leaves_and_comes_back_begins_anew(tmp_path: Path) -> None:
    a, b, c = devices()
    again = devices()[2]
    doors = Doors(a, b, c)
    doors.after(2, lambda: doors.leave("c"))
    doors.after(5, lambda: doors.enter(again))
    happened = doors.run(LONG, tmp_path)
    mine = [r for r in of(Moved, happened) if r.learner == "c" and r.trained]
    assert len({r.slot for r in mine}) == len(mine) >= 4
    assert again.requests
    back = min(again.requests)
    assert back > max(c.requests) + 1
    # Nothing is sent to it while it is away, once a slot may have found it gone.
    for r in of(Moved, happened):
        assert "c" not in r.sent or not max(c.requests) + 1 < r.slot < back
    (update,) = [r for r in of(records.Trained, happened) if r.learner == "c"]
    assert update.samples == sum(r.trained for r in mine if r.slot >= back)
    if of(Left, happened):  # else it was gone in the midst of a slot, and failed
        assert len([r for r in of(Joined, happened) if r.learner == "c"]) == 2


class Quitting(Reporting):
    """Leaves when its second slot's work is done, before that slot is over."""

    quit: Callable[[], None]

    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        done = super().slot(request, caller, relay)
        if request.slot == 2:
            self.quit()
        return done


@pytest.mark.alone
@pytest.mark.slow
def test_who_left_between_two_slots_is_not_counted_on(tmp_path: Path) -> None:
    made = devices({"c": Quitting})
    doors = Doors(*made)

    def leave() -> None:
        time.sleep(0.1)  # for its answer to arrive
        doors.leave("c")

    assert isinstance(made[2], Quitting)
    made[2].quit = lambda: doors.now(leave)
    happened = doors.run(LONG, tmp_path)
    (left,), (dropped,) = of(Left, happened), of(records.Dropped, happened)
    assert (left.learner, dropped.learner, dropped.reason) == ("c", "c", "left")
    mine = [r for r in of(Moved, happened) if r.learner == "c"]
    assert {r.slot for r in mine if r.collected} == {1, 2}
    assert all("c" not in r.sent for r in of(Moved, happened) if r.slot > 2)


@pytest.mark.alone
@pytest.mark.slow
def test_a_fog_that_has_grown_goes_on_where_it_was(tmp_path: Path) -> None:
    job = changed(LONG, cycles=2)
    a, b, c = devices()
    doors = Doors(a, b)
    doors.after(1, lambda: doors.enter(c))

    def stop(record: Record) -> None:
        if isinstance(record, Moved) and record.slot == 12:
            raise KeyboardInterrupt

    doors.watch = stop
    with pytest.raises(KeyboardInterrupt):
        doors.run(job, tmp_path)
    before = {
        name: dict(one.requests) for name, one in zip("abc", (a, b, c), strict=True)
    }
    happened = live(job, tmp_path, (a, b, c))
    assert len(of(records.Evaluated, happened)) == 2
    for name, one in zip("abc", (a, b, c), strict=True):
        for slot in (11, 12):  # the same data as before it was killed
            now, then = one.requests[slot], before[name].get(slot)
            assert then is None or (now.skipped, now.collected) == (
                then.skipped,
                then.collected,
            )
    assert len([r for r in of(Joined, happened) if r.learner == "c"]) == 1
    assert_replayed(job, tmp_path, happened, skipped_by(a, b, c))


class Deaf(Reporting):
    """Takes no samples of others in the first slot."""

    def deliver(self, name: str, slot: int, sender: str, shard: Any) -> None:
        if slot == 1:
            raise DataError("not now")
        super().deliver(name, slot, sender, shard)


@pytest.mark.alone
@pytest.mark.slow
def test_what_nobody_takes_comes_back_and_is_trained_on(tmp_path: Path) -> None:
    made = devices({"c": Deaf}, listens="")
    happened = live(JOB, tmp_path, made)
    first = {r.learner: r for r in of(Moved, happened) if r.slot == 1}
    second = {r.learner: r for r in of(Moved, happened) if r.slot == 2}
    assert first["a"].sent == {}
    assert second["a"].arrived == first["a"].collected - first["a"].trained > 0
    assert second["a"].trained >= second["a"].arrived
    assert second["c"].arrived == 0


class Boasting(Reporting):
    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        done = super().slot(request, caller, relay)
        return msgspec.structs.replace(done, trained=done.trained + 100)


class Inventing(Reporting):
    def slot(self, request: SlotRequest, caller: Caller, relay: Relay) -> SlotDone:
        return msgspec.structs.replace(
            super().slot(request, caller, relay), delivered={"c": 10_000}
        )


class Swelling(Reporting):
    def finish(self, name: str, cycle: int, caller: Caller) -> Update:
        update = super().finish(name, cycle, caller)
        return msgspec.structs.replace(update, samples=update.samples * 1000)


class Swapping(Reporting):
    def finish(self, name: str, cycle: int, caller: Caller) -> Update:
        update = super().finish(name, cycle, caller)
        return msgspec.structs.replace(update, parameters={})


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("kind", [Boasting, Inventing, Swelling, Swapping])
def test_who_claims_what_cannot_be_is_dropped(
    tmp_path: Path, kind: type[Reporting]
) -> None:
    job = changed(JOB, cycles=1, fog=FogTable(period=3, plan=Moving.ALONE))
    made = devices({"b": kind})
    happened = live(job, tmp_path, made)
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.offence) == ("b", True)
    (merged,) = of(records.Aggregated, happened)
    assert merged.learners == 2


@pytest.mark.alone
@pytest.mark.slow
def test_a_killed_orchestrator_goes_on_where_it_was(tmp_path: Path) -> None:
    def stop(record: Record) -> None:
        if isinstance(record, Moved) and record.slot == 4:
            raise KeyboardInterrupt

    made = devices()
    with pytest.raises(KeyboardInterrupt):
        live(JOB, tmp_path, made, stop)
    happened = live(JOB, tmp_path, made)
    assert len(of(records.Evaluated, happened)) == 2
    slots = [r.slot for r in of(Moved, happened) if r.learner == "c"]
    assert slots == [1, 2, 3, 4, 5, 6, 7]
    assert_replayed(JOB, tmp_path, happened)


@pytest.mark.alone
@pytest.mark.slow
def test_a_resumed_fog_goes_on_without_a_device_that_is_lost_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(record: Record) -> None:
        if isinstance(record, Moved) and record.slot == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live(JOB, tmp_path, devices(), stop)
    monkeypatch.setattr(fog, "WAIT_S", 0.1)
    happened = live(JOB, tmp_path, [one for one in devices() if one.name != "b"])
    assert len(of(records.Evaluated, happened)) == 2
    later = {r.learner for r in of(Moved, happened) if r.slot > 3}
    assert later == {"a", "c"}
    assert "the fog goes on without b" in caplog.messages


def shard(rows: int = 3, label: int = 1) -> Any:
    x = torch.zeros(rows, 1, 28, 28, dtype=torch.uint8)
    return {"x": x, "y": torch.full((rows,), label, dtype=torch.uint8)}


@contextmanager
def opened() -> Iterator[tuple[Inbox, str]]:
    """An inbox that listens, and the address for a sender named a."""
    learner = FogLearner(name="x", own=own("a"), share_data=True)
    learner.prepare(msgspec.structs.replace(FOG, task="t"))
    inbox = learner.inbox
    inbox.start("t", 1)
    listener = Listener(inbox, "127.0.0.1")
    try:
        yield inbox, listener.admit("a")
    finally:
        listener.close()


def test_samples_arrive_once_and_for_their_slot() -> None:
    with opened() as (inbox, address), rpc.connect(address, name="a") as line:
        line.deliver("t", 1, shard(3))
        inbox.advance("t", 1)
        line.deliver("t", 2, shard(4))
        line.deliver("t", 2, shard(5))
    assert [length(one) for one in inbox.take("t", 1, {"a": 9})] == [3]
    assert [length(one) for one in inbox.take("t", 2, {"a": 4, "b": 1})] == [4]
    inbox.advance("t", 3)
    assert inbox.take("t", 1, {"a": 9}) == []
    assert [length(one) for one in inbox.take("t", 2, {"b": 1, "a": 9})] == [5]


def test_nobody_is_let_in_without_the_token_of_its_name() -> None:
    with opened() as (_, address):
        with pytest.raises(RpcError, match="this token is for 'a'"):
            rpc.connect(address, name="b")
        host = address.partition("@")[2]
        with pytest.raises(AccessError):
            rpc.connect(f"melisma://{host}", name="a")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (shard(label=10), "class 10: give classes from 0 to 9"),
        (shard() | {"y": torch.zeros(3).long()}, "expected x: uint8"),
        (shard() | {"x": torch.zeros(3, 1, 28, 28)}, r"samples of x: float32 \(1, 28"),
        (shard() | {"x": torch.zeros(3, 9, 9).byte()}, r"samples of x: uint8 \(9, 9"),
        (shard() | {"y": torch.zeros(2).byte()}, "differ in their numbers of samples"),
        ({"x": shard()["x"]}, "expected x: uint8"),
        ({"x": "x", "y": "y"}, "has to be tensors"),
        (("x", "y"), "is not a shard"),
    ],
)
def test_samples_that_do_not_fit_are_refused(wrong: Any, why: str) -> None:
    with opened() as (inbox, address), rpc.connect(address, name="a") as line:
        with pytest.raises(RemoteError, match=why):
            line.deliver("t", 1, wrong)
        with pytest.raises(RemoteError, match="no task 'u'"):
            line.deliver("u", 1, shard())
    assert inbox.take("t", 1, {"a": 9}) == []


def test_an_inbox_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MOST_BYTES", 3 * 785)
    with opened() as (inbox, _):
        inbox.put("t", 1, "a", shard(2))
        with pytest.raises(DataError, match="no room"):
            inbox.put("t", 1, "b", shard(2))
        inbox.put("t", 1, "a", shard(3))  # in place of the first


def test_the_orchestrator_passes_on_what_is_planned_and_nothing_else() -> None:
    relay = RelayServer("t")
    passed: list[Any] = []

    class Receiver:
        @rpc.expose
        def deliver(self, *what: Any) -> None:
            passed.append(what[:3])

        @rpc.expose
        def admit(self, task: str, sender: str) -> str:
            return f"to {sender}"

    with rpc.serve(relay, port=0, say=lambda text: None) as server:
        relay.remotes = RpcRemotes(server)
        relay.plan(1, {"a": Move(collected=5, sent={"b": 3})})
        with (
            rpc.connect(server.address, Receiver(), name="b"),
            rpc.connect(server.address, name="a") as a,
            rpc.connect(server.address, name="c") as c,
        ):
            assert a.address("t", "b") == "to a"
            a.relay("t", 1, "b", shard(3))
            for line, call in (
                (a, ("t", 1, "b", shard(4))),  # too many
                (a, ("t", 2, "b", shard(3))),  # another slot
                (a, ("t", 1, "c", shard(3))),  # to another
                (c, ("t", 1, "b", shard(3))),  # from another
                (a, ("u", 1, "b", shard(3))),  # of another task
            ):
                with pytest.raises(RemoteError, match="ConfigError"):
                    line.relay(*call)
            with pytest.raises(RemoteError, match="nothing to send"):
                c.address("t", "b")
    assert passed == [("t", 1, "a")]


@pytest.mark.parametrize("wrong", [7, b"x", "x" * 5000, "a\x1b[31m", ["x"]])
def test_an_address_that_is_none_is_passed_on_to_nobody(wrong: Any) -> None:
    relay, accused = RelayServer("t"), list[tuple[str, str]]()
    relay.accuse = lambda name, reason: accused.append((name, reason))

    class Receiver:
        @rpc.expose
        def admit(self, task: str, sender: str) -> Any:
            return wrong

    with rpc.serve(relay, port=0, say=lambda text: None) as server:
        relay.plan(1, {"a": Move(collected=5, sent={"b": 3})})
        with (
            rpc.connect(server.address, Receiver(), name="b"),
            rpc.connect(server.address, name="a") as a,
        ):
            with pytest.raises(RemoteError, match="no cycle has begun yet"):
                a.address("t", "b")
            relay.remotes = RpcRemotes(server)
            assert a.address("t", "b") is None
    assert accused == [("b", "not an address")]


@pytest.mark.long
@pytest.mark.slow
def test_a_fog_runs_locally_in_processes(tmp_path: Path) -> None:
    unlike = tuple(
        LearnersTable(
            name=name,
            rate=SamplesPerSecond(rate),
            bandwidth=BytesPerSecond(2e6),
        )
        for name, rate in (("a", 200.0), ("c", 4000.0))
    )
    job = changed(JOB, learners=unlike, deadline=Deadline(6.0))
    happened = run_locally(job, tmp_path)
    assert len(of(records.Evaluated, happened)) == 2
    assert sent(happened) > 0
    assert not of(records.Dropped, happened)
    assert (tmp_path / "moves.csv").exists()
