"""A learner in a real Chromium, called by a real orchestrator."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.browser.pages import opened, serving, through
from tests.rpc.proxies import Proxy
from tests.web.browser import Page

from melisma import rpc
from melisma.errors import RemoteError, RpcError
from melisma.fleets.attendance import Attendance
from melisma.fleets.judge import is_short, wrong_ready, wrong_speeds, wrong_update
from melisma.fleets.messages import Ready, Speeds, TaskSpec, TrainRequest, Update
from melisma.fleets.served import ModelServer, ServedTask
from melisma.jobs.files import load
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job
from melisma.launch.simulate import opened as run_of
from melisma.learning.losses import numbers
from melisma.learning.parameters import parameters_of
from melisma.learning.samples import Arrays
from melisma.learning.settings import Late
from melisma.learning.training import batch_plan, train
from melisma.rpc import values
from melisma.system.law import Mode

pytestmark = pytest.mark.browser

DEMO = Path(__file__).parents[2] / "examples" / "demo.toml"
PHONE = "phone"


@dataclass
class Joined:
    """A page that is a learner, as its orchestrator sees it."""

    page: Page
    peer: Any
    live: LiveTask
    attendance: Attendance
    proxy: Proxy | None = None

    @property
    def served(self) -> ServedTask:
        return self.live.served

    def spec(self, **changes: Any) -> TaskSpec:
        return msgspec.structs.replace(self.live.announcement.spec, **changes)

    def measured(self, **changes: Any) -> TaskSpec:
        """Have the learner prepare and benchmark itself; return the task."""
        spec = self.spec(repeats=2, **changes)
        self.peer.prepare(spec)
        keys = [] if spec.federated else self.served.store.first(200)
        assert self.peer.measure(spec.task, keys) is None
        return spec

    def order(self, spec: TaskSpec, shards: int, **changes: Any) -> TrainRequest:
        """Return an order to train on the first shards, once."""
        order = TrainRequest(
            task=spec.task,
            cycle=self.served.cycle,
            keys=self.served.store.first(shards),
            samples=shards * spec.shard,
            steps=1,
            deadline_s=30.0,
            late=Late.HALT,
        )
        return msgspec.structs.replace(order, **changes)

    def told(self, what: str) -> list[dict[str, Any]]:
        script = f"joined.told.filter((m) => m.tell === {what!r})"
        found: list[dict[str, Any]] = self.page.look(script)
        return found


@contextmanager
def joined(
    page: Page, job: Job, *, own: str = "null", engine: str = "", proxied: bool = False
) -> Iterator[Joined]:
    own_engine = f", engine: '{engine}'" if engine else ""
    options = f"{{own: {own}, options: {{chargingOnly: true{own_engine}}}}}"
    with run_of(job, None, {}) as runs:
        live = LiveTask.of(job, runs[job.name])
        live.offer_outline()
        attendance = Attendance()
        with serving(ModelServer([live.served]), attendance) as server:
            if proxied:
                with through(server) as proxy:
                    opened(page, proxy)
                    phone = _begun(page, options, live, server, attendance)
                    yield replace(phone, proxy=proxy)
            else:
                opened(page, server)
                yield _begun(page, options, live, server, attendance)
        page.go("about:blank")


def _begun(
    page: Page, options: str, live: LiveTask, server: rpc.Server, attendance: Attendance
) -> Joined:
    script = "window.joined = await import('/tests/joined.js');"
    script += f"joined.join({options})"
    page.look(f"(async () => {{ {script} }})()")
    return Joined(page, server.wait_for(PHONE)[PHONE], live, attendance)


def job(**changes: Any) -> Job:
    return msgspec.structs.replace(load(DEMO), **changes)


@pytest.mark.slow
def test_it_benchmarks_itself_bids_and_trains_as_torch_does(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.spec(repeats=2)
        ready = phone.peer.prepare(spec)
        assert isinstance(ready, Ready)
        assert (ready.measured, wrong_ready(ready, spec)) == (False, "")
        spec = phone.measured()
        speeds = phone.peer.speeds(spec.task, False)
        assert isinstance(speeds, Speeds)
        assert not wrong_speeds(speeds)
        assert phone.peer.bid(spec.task, 20.0, 1) > 10

        sent = phone.served.parameters
        request = phone.order(spec, 8)
        update = phone.peer.train(request)
        assert isinstance(update, Update)
        assert not wrong_update(update, request, sent)
        assert (update.samples, update.halted) == (request.samples, False)
        assert 0 < update.downloaded_s + update.trained_s < 60  # type: ignore[operator]
        assert phone.page.look("joined.phases().at(-1)") == "done"
        assert len(phone.told("speed")) == 1


def test_its_model_after_an_order_is_that_of_torch(page: Page) -> None:
    with joined(page, job()) as phone:
        training = replace(phone.spec().training, shuffle=False)
        spec = phone.measured(training=training)
        request = phone.order(spec, 4, steps=2)
        update = phone.peer.train(request)
        task = phone.live.task
        samples = task.data.train[: request.samples]
        before = parameters_of(task.model)
        plan = batch_plan(
            np.arange(request.samples), 2, spec.training, np.random.default_rng(0)
        )
        done = train(task.model, Arrays(numbers(samples)), plan, spec.training)
        assert update.batches == done.batches
        assert update.loss == pytest.approx(done.loss, rel=1e-4)
        for name, after in parameters_of(task.model).items():
            way = torch.linalg.norm(after - before[name])
            assert torch.linalg.norm(update.parameters[name] - after) < 1e-4 * way


@pytest.mark.slow
def test_it_halts_before_the_deadline_and_sends_what_it_has(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        request = phone.order(spec, 4, steps=20_000, deadline_s=1.5)
        update = phone.peer.train.within(5)(request)
        assert update.halted
        assert 0 < update.batches < 20_000
        assert update.downloaded_s + update.trained_s < 1.5


def test_cut_while_it_fetches_the_model_it_goes_on(page: Page) -> None:
    with joined(page, job(), proxied=True) as phone:
        spec = phone.measured()
        request = phone.order(spec, 8)
        assert phone.proxy is not None
        phone.proxy.cut_after(phone.served.model_bytes // 2)
        update = phone.peer.train(request)
        assert not wrong_update(update, request, phone.served.parameters)
        states = [state["state"] for state in phone.told("state")]
        assert states == ["connecting", "connected", "lost", "connected"]


def test_what_nobody_waits_for_is_given_up(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        call = phone.peer.train.submit(phone.order(spec, 8, steps=20_000))
        page.until("joined.phases().at(-1) === 'training'")
        call.cancel()
        page.until("joined.phases().at(-1) === 'cancelled'")
        update = phone.peer.train(phone.order(spec, 1))  # the device is free again
        assert update.samples == spec.shard


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"up": "int8"}, "codec"),
        ({"exact": True}, "redone"),
        ({"shard": 0}, "shard = 0"),
        ({"repeats": 1 << 30}, "repeats"),
        ({"task": "other"}, "there is no task 'other'"),
    ],
)
def test_tasks_that_it_cannot_do_are_refused_by_name(
    page: Page, changes: dict[str, Any], reason: str
) -> None:
    with joined(page, job()) as phone, pytest.raises(RemoteError, match=reason):
        phone.peer.prepare(phone.spec(**changes))


def test_wrong_orders_are_refused_before_anything_is_done(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        right = phone.order(spec, 2)
        for changes in (
            {"samples": 0},
            {"samples": 10**9},
            {"deadline_s": float("nan")},
            {"keys": ["a"]},
            {"steps": 1 << 27},
            {"cycle": -1},
        ):
            wrong = msgspec.structs.replace(right, **changes)
            with pytest.raises(RemoteError, match="ConfigError"):
                phone.peer.train(wrong)
        with pytest.raises(RemoteError, match="Unprepared"):
            phone.peer.train(msgspec.structs.replace(right, task="other"))
        with pytest.raises(RemoteError, match="DataError"):
            phone.peer.train(msgspec.structs.replace(right, keys=["a", "b"]))


def test_of_a_private_task_nothing_tells_how_fast_it_is(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    unpack = values.unpack

    def listening(body: Any, buffers: Any) -> Any:
        heard.append(unpack(body, buffers))
        return heard[-1]

    for room in ("caller", "dispatch"):
        monkeypatch.setattr(f"melisma.rpc.{room}.unpack", listening)
    with joined(page, job(scheme="dab")) as phone:
        spec = phone.measured()
        assert spec.private
        again = phone.peer.prepare(spec)
        assert again.measured
        shards = phone.peer.bid(spec.task, 5.0, 2)
        with pytest.raises(RemoteError, match="private"):
            phone.peer.speeds(spec.task, False)
        phone.peer.train(phone.order(spec, min(shards, 4)))
        # What the page is shown stays on the device.
        assert len(phone.told("speed")) == 1
    assert any(isinstance(value, Update) for value in heard)
    for value in heard:
        match value:
            case Ready():
                assert value.speeds is None
            case Update():
                times = {value.downloaded_s, value.trained_s, value.spent_j}
                assert times == {None}
            case [list() as args, dict() as kwargs]:  # a call: of tasks, keys, sizes
                assert not kwargs
                assert not any(isinstance(arg, float) for arg in args)
            case _:
                assert value is None or isinstance(value, int)


OWN = """{
  x: { dtype: "uint8", shape: [64, 1, 28, 28], data: new Uint8Array(64 * 784).fill(7) },
  y: { dtype: "int64", shape: [64], data: new BigInt64Array(64) },
}"""


def test_own_data_trains_and_stays_where_it_is(page: Page) -> None:
    with joined(page, job(mode=Mode.FEDERATED), own=OWN) as phone:
        spec = phone.measured()
        assert phone.peer.prepare(spec).samples == 64
        request = phone.order(spec, 0, keys=[], samples=50, steps=2)
        update = phone.peer.train(request)
        assert not wrong_update(update, request, phone.served.parameters)
        assert update.samples == 50
        with pytest.raises(RemoteError, match="there are 64 samples here"):
            phone.peer.train(msgspec.structs.replace(request, samples=65))
        page.until("joined.told.some((m) => m.tell === 'bytes')")
        sent = phone.told("bytes")[-1]["sent"]
        # Models go up, and nothing of the size of the samples' 50 kB beside them.
        assert sent < phone.served.model_bytes + 20_000


def test_who_has_no_data_of_its_own_says_so(page: Page) -> None:
    refused = pytest.raises(RemoteError, match="no data of its own")
    with joined(page, job(mode=Mode.FEDERATED)) as phone, refused:
        phone.peer.prepare(phone.spec())


@pytest.mark.slow
def test_a_probe_begins_and_the_order_brings_the_rest(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        first = phone.order(spec, 300)
        assert not wrong_speeds(phone.peer.probe(first))
        request = phone.order(spec, 400, first=300)
        update = phone.peer.train(request)
        assert not wrong_update(update, request, phone.served.parameters)
        assert (update.samples, update.halted) == (400, False)
        with pytest.raises(RemoteError, match="Unprepared"):
            phone.peer.train(request)  # its probe is used up


def test_a_page_that_is_on_battery_sends_what_it_has(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        call = phone.peer.train.submit(phone.order(spec, 8, steps=100_000))
        page.until("joined.phases().at(-1) === 'training'")
        page.look("joined.worker.postMessage({do: 'charging', value: false})")
        update = call.result()
        assert update.halted
        assert update.samples == 8 * spec.shard


def test_a_page_that_is_stopped_leaves(page: Page) -> None:
    with joined(page, job()) as phone:
        spec = phone.measured()
        page.look("joined.worker.postMessage({do: 'stop'})")
        page.until("joined.told.some((m) => m.tell === 'done')")
        with pytest.raises(RpcError):
            phone.peer.bid.within(5)(spec.task, 5.0, 1)


def test_a_page_that_is_hidden_says_so_and_that_it_is_back(page: Page) -> None:
    def until(reason: str | None) -> None:
        end_s = time.monotonic() + 10
        while phone.attendance.reason(PHONE) != reason:
            assert time.monotonic() < end_s
            page.look("1")

    with joined(page, job()) as phone:
        page.look("joined.worker.postMessage({do: 'away', reason: 'screen locked'})")
        until("away: screen locked")
        page.look("joined.worker.postMessage({do: 'charging', value: false})")
        page.look("joined.worker.postMessage({do: 'back'})")
        until("away: on battery")
        page.look("joined.worker.postMessage({do: 'charging', value: true})")
        until(None)


@pytest.mark.slow
def test_too_little_memory_is_told_with_what_would_fit(page: Page) -> None:
    # The engine has memory for batches of up to 10 samples, and there are 32 in one.
    with joined(page, job(), engine="/tests/short.js") as phone:
        spec = phone.spec()
        phone.peer.prepare(spec)
        with pytest.raises(RemoteError, match="batch = 8 would fit") as caught:
            phone.peer.measure(spec.task, phone.served.store.first(200))
        assert is_short(caught.value)
