"""The three styles, streams, errors, cancellation and groups, over memory."""

import asyncio
import concurrent.futures
import gc
import queue
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from melisma import rpc
from melisma.errors import (
    CallTimeout,
    ConfigError,
    RemoteError,
    RpcError,
    TransportError,
)
from melisma.rpc.threads import ThreadPool

PATIENCE_S = 20.0  # guards against hanging; nothing is measured with it


class Workshop:
    """Everything that a call can be."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()
        self.noticed, self.closed = threading.Event(), threading.Event()
        self.produced = 0

    @rpc.expose
    def add(self, a: int, b: int = 0) -> int:
        return a + b

    @rpc.expose
    async def multiply(self, a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a * b

    @rpc.expose(idempotent=True)
    def echo(self, value: Any) -> Any:
        return value

    @rpc.expose
    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    @rpc.expose
    async def acount(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    @rpc.expose
    def endless(self) -> Iterator[int]:
        try:
            while True:
                self.produced += 1
                yield self.produced
        finally:
            self.closed.set()

    @rpc.expose
    def arrays(self, n: int) -> Iterator[Any]:
        for i in range(n):
            self.produced += 1
            yield np.full(3_000_000, i)

    @rpc.expose
    def fails_after(self, n: int) -> Iterator[int]:
        yield from range(n)
        raise LookupError("no more")

    @rpc.expose
    def blocks(self) -> str:
        self.started.set()
        while not self.release.is_set():
            if rpc.current().sleep(0.01):
                self.noticed.set()
                return "given up"
        return "released"

    @rpc.expose
    async def waits(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.noticed.set()
            raise

    @rpc.expose
    def boom(self, message: str) -> None:
        raise KeyError(message)

    @rpc.expose
    async def exits(self) -> None:
        raise SystemExit(3)

    @rpc.expose
    def stops(self) -> None:
        raise StopIteration

    @rpc.expose
    def lambda_(self) -> Any:
        return lambda: 1

    @rpc.expose
    def who(self) -> tuple[str, str]:
        return rpc.current().caller, rpc.current().function

    @rpc.expose
    def remaining(self) -> float | None:
        return rpc.current().remaining_s

    @rpc.expose
    def call_back(self, depth: int) -> int:
        peer = rpc.current().peer
        assert peer is not None
        return 1 + int(peer.bounce(depth - 1)) if depth else 0

    @rpc.expose
    def close(self) -> str:
        return "a name that Connection has too"

    def hidden(self) -> None:
        raise AssertionError("this is not exposed")


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def peer(workshop: Workshop) -> Iterator[rpc.Connection]:
    with rpc.serve(workshop, port=None) as server, rpc.connect(server) as peer:
        yield peer
        workshop.release.set()


def test_a_call_reads_like_a_local_one(peer: rpc.Connection) -> None:
    assert peer.add(1, 2) == 3
    assert peer.add(1, b=5) == 6
    assert peer.multiply(6, 7) == 42


def test_a_submitted_call_is_waited_for_later(peer: rpc.Connection) -> None:
    call = peer.multiply.submit(6, 7)
    assert call.result() == call.join() == 42
    assert call.done()
    assert call.function == "multiply"


def test_submitted_calls_overlap(peer: rpc.Connection, workshop: Workshop) -> None:
    first = peer.blocks.submit()
    assert peer.add(1, 1) == 2  # while the first is under way
    assert not first.done()
    workshop.release.set()
    assert first.result(PATIENCE_S) == "released"


def test_a_call_is_awaited_in_a_coroutine(peer: rpc.Connection) -> None:
    async def scenario() -> list[int]:
        several = asyncio.gather(peer.add.submit(5), peer.add.submit(6))
        return [await peer.add(1, 2), await peer.multiply.submit(3, 4), *await several]

    assert asyncio.run(scenario()) == [3, 12, 5, 6]


def test_a_call_may_be_awaited_twice_and_runs_once(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    async def scenario() -> tuple[Any, Any]:
        call = peer.add.submit(1, 1)
        return await call, await call

    assert asyncio.run(scenario()) == (2, 2)
    assert peer.metrics.called["add"].calls == 1


def test_everything_works_on_the_callers_own_loop() -> None:
    async def scenario() -> None:
        async with (
            await rpc.aserve(Workshop(), port=None) as server,
            await rpc.aconnect(server, Workshop(), name="x") as peer,
        ):
            assert await peer.add(1, 2) == 3
            assert [item async for item in peer.count(3)] == [0, 1, 2]
            assert [item async for item in await peer.acount(3)] == [0, 1, 2]
            with pytest.raises(RuntimeError, match="await the call"):
                peer.add.submit(1).result()
            peers = await server.wait_for("x")
            assert await peers["x"].add(1, 2) == 3
            call = peer.multiply.submit(2, 3)
            assert await asyncio.to_thread(call.result) == 6

    asyncio.run(scenario())


def test_a_generator_answers_with_a_stream(peer: rpc.Connection) -> None:
    assert list(peer.count(100)) == list(range(100))
    assert list(peer.acount(100)) == list(range(100))
    assert list(peer.count.submit(3)) == [0, 1, 2]
    assert list(peer.count(0)) == []


def test_a_stream_is_followed_in_a_coroutine(peer: rpc.Connection) -> None:
    async def scenario() -> list[int]:
        return [item async for item in peer.acount(50)]

    assert asyncio.run(scenario()) == list(range(50))


def test_items_arrive_while_the_generator_still_runs(peer: rpc.Connection) -> None:
    stream = peer.endless()
    assert [next(stream) for _ in range(100)] == list(range(1, 101))


def test_a_stream_that_is_not_consumed_pauses_its_producer(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    stream = peer.endless()
    next(stream)
    for _ in range(50):
        peer.add(1)  # plenty of turns for the producer
    assert workshop.produced <= 40
    stream.close()


def test_a_large_item_waits_for_the_one_before(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    stream = peer.arrays(20)
    next(stream)
    for _ in range(50):
        peer.add(1)  # plenty of turns for the producer
    assert workshop.produced <= 5
    for i, array in enumerate(stream, 1):
        np.testing.assert_array_equal(array, np.full(3_000_000, i))


def test_leaving_a_stream_ends_the_generator(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    for item in peer.endless():
        if item == 3:
            break
    assert workshop.closed.wait(PATIENCE_S)


def test_what_a_generator_raises_comes_after_its_items(peer: rpc.Connection) -> None:
    stream = peer.fails_after(3)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RemoteError, match="LookupError: no more"):
        next(stream)


def test_a_remote_error_has_type_message_and_traceback(peer: rpc.Connection) -> None:
    with pytest.raises(RemoteError) as caught:
        peer.boom("cup")
    assert (caught.value.type, caught.value.message) == ("KeyError", "'cup'")
    assert "in boom" in caught.value.traceback
    assert str(caught.value) == "KeyError: 'cup'"


@pytest.mark.parametrize(
    ("name", "kind"), [("exits", "SystemExit"), ("stops", "RuntimeError")]
)
def test_no_exception_ends_the_server(
    peer: rpc.Connection, name: str, kind: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        peer[name]()
    assert caught.value.type == kind
    assert peer.add(1, 1) == 2


def test_a_result_that_cannot_be_sent_is_an_error_at_the_caller(
    peer: rpc.Connection,
) -> None:
    with pytest.raises(RemoteError, match="function cannot be sent"):
        peer["lambda_"]()


def test_arguments_that_cannot_be_sent_are_an_error_here(peer: rpc.Connection) -> None:
    with pytest.raises(TypeError, match="argument 1: object"):
        peer.echo(object())


def test_an_unknown_function_is_named_with_the_nearest(peer: rpc.Connection) -> None:
    with pytest.raises(RemoteError, match="unknown function 'ad': did you mean 'add'"):
        peer.ad(1)


@pytest.mark.parametrize(
    "name", ["hidden", "__init__", "__class__", "add.__call__", ""]
)
def test_nothing_but_what_is_exposed_can_be_called(
    peer: rpc.Connection, name: str
) -> None:
    with pytest.raises(RemoteError, match="unknown function"):
        peer[name]()


def test_wrong_arguments_are_a_type_error_of_the_far_side(peer: rpc.Connection) -> None:
    with pytest.raises(RemoteError, match="TypeError"):
        peer.add()


def test_a_name_that_the_stub_has_too_is_reached_by_index(peer: rpc.Connection) -> None:
    assert peer["close"]() == "a name that Connection has too"
    assert "multiply" in dir(peer)


@pytest.mark.parametrize("name", ["blocks", "waits"])
def test_a_timeout_reaches_both_sides(
    peer: rpc.Connection, workshop: Workshop, name: str
) -> None:
    with pytest.raises(
        CallTimeout, match=f"{name}: no answer from server within 0.05 s"
    ):
        peer[name].within(0.05)()
    assert workshop.noticed.wait(PATIENCE_S)
    with pytest.raises(TimeoutError):  # also Python's own kind
        peer[name].within(0.01)()


@pytest.mark.parametrize("name", ["blocks", "waits"])
def test_cancelling_reaches_the_function(
    peer: rpc.Connection, workshop: Workshop, name: str
) -> None:
    call = peer[name].submit()
    assert workshop.started.wait(PATIENCE_S)
    assert call.cancel()
    assert workshop.noticed.wait(PATIENCE_S)
    with pytest.raises(concurrent.futures.CancelledError):
        call.result()


def test_cancelling_a_task_reaches_the_function(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await peer.waits()

    asyncio.run(scenario())
    assert workshop.noticed.wait(PATIENCE_S)


def test_waiting_for_a_result_may_end_and_begin_again(
    peer: rpc.Connection, workshop: Workshop
) -> None:
    call = peer.blocks.submit()
    with pytest.raises(TimeoutError):
        call.result(0.01)
    workshop.release.set()
    assert call.result(PATIENCE_S) == "released"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_limit_is_more_than_nothing(
    peer: rpc.Connection, seconds: float
) -> None:
    with pytest.raises(ConfigError, match="give more than 0"):
        peer.add.within(seconds)


def test_a_name_that_cannot_be_sent_is_an_error(peer: rpc.Connection) -> None:
    with pytest.raises(TransportError, match="not a function name"):
        peer["\ud800"]()


def test_a_peer_in_less_of_a_hurry_is_not_taken_for_dead() -> None:
    hurried = rpc.Limits(ping_s=0.01, silence_s=0.03, grace_s=0.1)
    calm = rpc.Limits(ping_s=0.2, silence_s=0.6)
    with (
        rpc.serve(Workshop(), port=None, limits=hurried) as server,
        rpc.connect(server, limits=calm) as peer,
    ):
        threading.Event().wait(0.5)  # far longer than the hurried side's patience
        assert peer.metrics.reconnections == 0
        assert peer.add(1, 1) == 2


def test_the_function_knows_who_calls_and_how_long_they_wait(
    workshop: Workshop,
) -> None:
    with (
        rpc.serve(workshop, port=None) as server,
        rpc.connect(server, name="nano-1") as peer,
    ):
        assert peer.who() == ("nano-1", "who")
        assert peer.remaining() is None
        assert 0 < peer.remaining.within(60)() <= 60


def test_outside_of_a_call_there_is_no_current_one() -> None:
    with pytest.raises(RpcError, match="no call is being answered"):
        rpc.current()


def test_both_sides_call_each_other_to_any_depth(workshop: Workshop) -> None:
    @rpc.expose
    def bounce(depth: int) -> int:
        peer = rpc.current().peer
        assert peer is not None
        return 1 + int(peer.call_back(depth - 1)) if depth else 0

    with rpc.serve(workshop, port=None) as server, rpc.connect(server, bounce) as peer:
        assert peer.call_back(10) == 10


def test_a_server_calls_whoever_dialled_in_by_name() -> None:
    class Device:
        def __init__(self, power: int) -> None:
            self._power = power

        @rpc.expose
        def train(self, w: int) -> int:
            if self._power == 0:
                raise OSError("flat battery")
            return self._power * w

    with (
        rpc.serve(Workshop(), port=None) as server,
        rpc.connect(server, Device(2), name="a"),
        rpc.connect(server, Device(3), name="b"),
        rpc.connect(server, Device(5), name="c"),
    ):
        peers = server.wait_for("a", "b", "c")
        assert peers["b"].train(10) == 30
        assert server.peers.train(10) == {"a": 20, "b": 30, "c": 50}
        assert server.peers.only(["c", "a"]).train(1) == {"c": 5, "a": 2}
        calls = server.peers.train.submit(2)
        assert {name: call.result() for name, call in calls.items()}["c"] == 10
        assert ("c" in server.peers, "d" in server.peers) == (True, False)
        assert repr(peers) == "<Group of a, b, c>"
        with pytest.raises(RpcError, match="no peer is named 'd'; connected: a, b, c"):
            server.peers["d"]

        async def gathered() -> Any:
            return await server.peers.train(1)

        assert asyncio.run(gathered()) == {"a": 2, "b": 3, "c": 5}
        with rpc.connect(server, Device(0), name="d"):
            server.wait_for("d")
            with pytest.raises(ExceptionGroup, match="1 of 4 peers") as caught:
                server.peers.train(1)
            assert caught.value.exceptions[0].__notes__ == ["from peer d"]


def test_who_comes_and_goes_is_told() -> None:
    events: queue.Queue[str] = queue.Queue()
    with rpc.serve(
        Workshop(),
        port=None,
        joined=lambda peer: events.put(f"+{peer.name}"),
        left=lambda peer: events.put(f"-{peer.name}"),
    ) as server:
        with rpc.connect(server, Workshop(), name="a"):
            server.wait_until(1)
            assert events.get(timeout=PATIENCE_S) == "+a"
        assert events.get(timeout=PATIENCE_S) == "-a"  # at once, not after a grace
        with rpc.connect(server, Workshop(), name="b"):
            server.wait_for("b")
            assert events.get(timeout=PATIENCE_S) == "+b"
            with pytest.raises(
                TransportError, match=r"waited 0\.01 s for c to connect"
            ):
                server.wait_for("c", timeout_s=0.01)
    assert events.get(timeout=PATIENCE_S) == "-b"


def test_a_closed_connection_says_so(peer: rpc.Connection) -> None:
    peer.close()
    with pytest.raises(TransportError, match="closed on this side"):
        peer.add(1)


def test_a_server_that_stops_says_so(workshop: Workshop) -> None:
    with rpc.serve(workshop, port=None) as server:
        peer = rpc.connect(server)
        call = peer.blocks.submit()
        assert workshop.started.wait(PATIENCE_S)
    with pytest.raises(TransportError, match="the server stopped"):
        call.result(PATIENCE_S)
    assert workshop.noticed.wait(PATIENCE_S)
    peer.close()


def test_too_many_calls_are_refused_where_they_are_made(workshop: Workshop) -> None:
    with (
        rpc.serve(workshop, port=None) as server,
        rpc.connect(server, limits=rpc.Limits(calls=3)) as peer,
    ):
        calls = [peer.blocks.submit() for _ in range(3)]
        with pytest.raises(TransportError, match="3 calls to server are pending"):
            peer.add(1)
        workshop.release.set()
        assert [call.result(PATIENCE_S) for call in calls] == ["released"] * 3
        assert peer.add(1) == 1


def test_a_message_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with (
        rpc.serve(
            Workshop(), port=None, limits=rpc.Limits(message_bytes=100_000)
        ) as server,
        rpc.connect(server) as peer,
    ):
        with pytest.raises(
            TransportError, match="800000 bytes are more than the 100000"
        ):
            peer.echo(np.zeros(100_000))
        with pytest.raises(TransportError, match="more than the 100000"):
            peer.echo("x" * 200_000)
        assert peer.echo(np.zeros(10_000)).size == 10_000
    with (
        rpc.serve(Workshop(), port=None) as server,
        rpc.connect(server, limits=rpc.Limits(message_bytes=100_000)) as peer,
        pytest.raises(RemoteError, match="result of echo cannot be sent: 800000 bytes"),
    ):
        peer.echo(np.zeros(100_000))


def test_a_large_body_without_arrays_arrives(peer: rpc.Connection) -> None:
    value = {"numbers": list(range(50_000)), "text": "ä" * 300_000, "raw": b"1" * 10**6}
    assert peer.echo(value) == value


def test_many_arrays_arrive_in_place(peer: rpc.Connection) -> None:
    arrays = [np.full(i * 500, i) for i in range(60)]
    for sent, arrived in zip(arrays, peer.echo(arrays), strict=True):
        np.testing.assert_array_equal(arrived, sent)


def test_nothing_is_kept_of_an_array_that_arrived(peer: rpc.Connection) -> None:
    gc.disable()
    try:
        array = peer.echo(np.zeros(1_000_000))
        gone = weakref.ref(array.base if array.base is not None else array)
        peer.echo(np.zeros(1_000_000))
        del array
        assert gone() is None
    finally:
        gc.enable()


def test_metrics_count_calls_failures_and_times(peer: rpc.Connection) -> None:
    peer.add(1)
    peer.add(1)
    with pytest.raises(RemoteError):
        peer.boom("x")
    metrics = peer.metrics
    assert metrics.called["add"].calls == 2
    assert metrics.failed == {"boom": 1}
    assert metrics.received_bytes > 0
    assert (
        0 < metrics.called["add"].total_s <= 2 * metrics.called["add"].quantile_s(1.0)
    )


def test_latencies_fall_into_bins_of_powers_of_two() -> None:
    latencies = rpc.Latencies()
    for seconds in (0.5e-6, 3e-6, 3e-6, 1000.0):
        latencies.add(seconds)
    assert latencies.counts[0] == 1
    assert latencies.counts[2] == 2
    assert latencies.counts[-1] == 1
    assert latencies.quantile_s(0.5) == 4e-6
    assert rpc.Latencies().quantile_s(0.5) == 0.0


def test_a_function_may_run_in_an_executor_of_ones_own() -> None:
    with concurrent.futures.ThreadPoolExecutor(1, "mine") as pool:

        @rpc.expose(executor=pool)
        def where() -> str:
            return threading.current_thread().name

        with rpc.serve(where, port=None) as server, rpc.connect(server) as peer:
            assert peer.where().startswith("mine")


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="under one name"):
        rpc.serve(Workshop(), Workshop(), port=None)


def test_an_object_that_exposes_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="exposes nothing"):
        rpc.serve(object(), port=None)


@pytest.mark.parametrize("name", ["_private", "with space", "a.b", ""])
def test_only_public_names_are_exposed(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be exposed"):
        rpc.expose(name=name or "1")(lambda: None)


def test_threads_do_the_work_and_forget_it() -> None:
    pool = ThreadPool(2)
    assert sorted(pool.map(lambda x: x * x, range(10))) == [x * x for x in range(10)]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()
    begun, release = threading.Barrier(3), threading.Event()
    busy = [pool.submit(lambda: begun.wait() and release.wait()) for _ in range(2)]
    begun.wait(PATIENCE_S)
    queued = pool.submit(time.monotonic)
    assert queued.cancel()
    release.set()
    concurrent.futures.wait(busy, PATIENCE_S)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(time.monotonic)
