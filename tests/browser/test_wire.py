"""The wire in a real Chromium: calls both ways, over connections that break."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType, web
from tests.browser.pages import opened, routes, serving, through
from tests.web.browser import Page

from melisma import rpc
from melisma.errors import CallTimeout, RemoteError
from melisma.rpc import frames

pytestmark = pytest.mark.browser

CONNECTED = "window.wire = await import('/tests/connected.js')"
LARGE = 32 << 20


class Echo:
    """What the page calls."""

    def __init__(self) -> None:
        self.runs = 0
        self.cancelled = threading.Event()

    @rpc.expose
    async def echo(self, value: Any) -> Any:
        self.runs += 1
        return value

    @rpc.expose
    async def large(self) -> Any:
        self.runs += 1
        return np.arange(LARGE // 4, dtype="<u4")

    @rpc.expose
    async def never(self) -> None:

        try:
            await asyncio.sleep(3600)
        finally:
            self.cancelled.set()

    @rpc.expose
    async def stream(self) -> AsyncIterator[int]:
        yield 1

    @rpc.expose
    async def raises(self) -> None:
        raise ValueError("not so")


def run(page: Page, script: str) -> Any:
    """Run the lines of a script, which may wait and return."""
    return page.look(f"(async () => {{ {script} }})()")


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[rpc.Server]:
    with serving(echo) as found:
        yield found


@pytest.fixture
def peer(page: Page, server: rpc.Server) -> Any:
    """The page, connected, as Python calls it."""
    opened(page, server)
    run(page, CONNECTED)
    return server.wait_for("page")["page"]


def test_the_page_calls_python(page: Page, peer: Any) -> None:
    script = """
    const { connection } = wire;
    const value = new Map([["a", [1, null, "ε"]], ["b", { dtype: "<f4", shape: [2],
      data: new Float32Array([1.5, 2]) }]]);
    const back = await connection.call("echo", [value]);
    return [back.get("a"), [...back.get("b").data], back.get("b").dtype];
    """
    assert run(page, script) == [[1, None, "ε"], [1.5, 2], "<f4"]


def test_python_calls_the_page(page: Page, peer: Any) -> None:
    assert peer.twice(21) == 42
    array = np.arange(100_000, dtype="<i4")
    assert np.array_equal(peer.array(array), array)


def test_errors_cross_the_wire_by_their_names(page: Page, peer: Any) -> None:
    with pytest.raises(RemoteError, match="RangeError: too much"):
        peer.fails()
    with pytest.raises(RemoteError, match="UnknownFunction"):
        peer.nothing()
    script = """
    const said = [];
    const { connection } = wire;
    for (const name of ["raises", "nobody", "stream"])
      await connection.call(name).catch((e) => said.push(`${e.name} ${e.message}`));
    return said;
    """
    raised, unknown, stream = run(page, script)
    assert raised == "RemoteError ValueError: not so"
    assert "nobody" in unknown
    assert "stream" in stream


def test_limits_of_time_hold_both_ways_and_cancel(
    page: Page, peer: Any, echo: Echo
) -> None:
    with pytest.raises(CallTimeout):
        peer.waits.within(0.2)()
    page.until("wire.cancelled.length")
    script = """
    return wire.connection.call("never", [], {}, { withinS: 0.1 }).catch((e) => e.name);
    """
    assert run(page, script) == "CallTimeout"
    assert echo.cancelled.wait(10)


@pytest.mark.slow
def test_a_large_transfer_delays_no_call(page: Page, peer: Any) -> None:
    script = """
    const data = new Uint8Array(32 << 20);
    const { connection } = wire;
    let isDone = false;
    const array = { dtype: "|u1", shape: [data.length], data };
    const large = connection.call("echo", [array]);
    large.then(() => { isDone = true; });
    const took = [];
    while (!isDone) {
      const began = performance.now();
      await connection.call("echo", [1]);
      took.push(performance.now() - began);
    }
    return [took.length, took.sort((a, b) => a - b)[took.length >> 1]];
    """
    calls, usual_ms = run(page, script)
    assert calls > 2
    assert usual_ms < 250


@pytest.mark.parametrize("way", ["down", pytest.param("up", marks=pytest.mark.slow)])
def test_cut_in_a_transfer_nothing_is_lost_and_nothing_runs_twice(
    page: Page, server: rpc.Server, echo: Echo, way: str
) -> None:
    with through(server) as proxy:
        opened(page, proxy)
        run(page, CONNECTED)
        peer: Any = server.wait_for("page")["page"]
        array = np.arange(LARGE // 4, dtype="<u4")
        call = None
        if way == "up":
            call = peer.array.submit(array)
        else:
            page.look("void (window.came = wire.connection.call('large'))")
        for _ in range(2):
            proxy.cut_after(1 << 20)
            before = proxy.accepted
            end_s = time.monotonic() + 30
            while proxy.accepted == before and time.monotonic() < end_s:
                page.look("1")
        if call:
            assert np.array_equal(call.result(), array)
            assert peer.runs() == 1
        else:
            script = "const a = await came; return [a.data.length, a.data.at(-1)];"
            assert run(page, script) == [LARGE // 4, LARGE // 4 - 1]
            assert echo.runs == 1
        states = run(page, "return wire.states.map((s) => s.state)")
        assert states.count("lost") >= 2
        assert states[-1] == "connected"
        assert "ended" not in states


def test_a_silent_connection_is_given_up_for_another(page: Page, echo: Echo) -> None:
    limits = rpc.Limits(ping_s=0.2, silence_s=0.6)
    with serving(echo, limits=limits) as server, through(server) as proxy:
        opened(page, proxy)
        page.look("void (window.limits = {pingS: 0.2, silenceS: 0.6})")
        run(page, CONNECTED)
        proxy.freeze()
        page.look("void (window.came = wire.connection.call('echo', [7]))")
        page.until("wire.states.at(-1).state === 'lost'")
        proxy.thaw()
        assert run(page, "return came") == 7
        assert echo.runs == 1


def test_a_wrong_token_is_refused_for_good_and_a_right_one_is_not(
    page: Page, echo: Echo, tmp_path: Path
) -> None:
    script = """
    const { connect } = await import("/static/wire/wire.js");
    const states = [];
    const onState = ({ state }) => states.push(state);
    const one = { url: location.origin, name: "page", onState };
    const error = await connect({ ...one, token: "A".repeat(43) }).catch((e) => e.name);
    const right = await connect({ ...one, token: "TOKEN" });
    return [error, ...states, await right.call("echo", [1])];
    """
    with serving(echo, plain=True, folder=tmp_path) as server:
        token = server.shared_token("link", ("echo",), 60.0)
        assert token
        opened(page, server)
        found = run(page, script.replace("TOKEN", token))
    assert found == [
        "AccessError",
        "connecting",
        "refused",
        "connecting",
        "connected",
        1,
    ]


def test_a_server_that_ends_the_session_is_dialled_again(
    page: Page, echo: Echo
) -> None:
    with serving(echo) as server:
        port = int(server.address.rpartition(":")[2])
        opened(page, server)
        run(page, CONNECTED)
    page.until("wire.states.at(-1).state === 'ended' || wire.states.length > 3")
    with serving(echo, port=port) as server:
        peer: Any = server.wait_for("page")["page"]
        assert peer.twice(2) == 4
        assert run(page, "return wire.connection.call('echo', [5])") == 5


@contextmanager
def scripted(says: list[bytes], heard: list[Any]) -> Iterator[str]:
    """Serve the modules, and a wire that says this after its Hello."""

    async def wire(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("melisma",))
        await socket.prepare(request)
        await socket.receive_bytes()
        hello = frames.Hello((1, 0), "x", "x", b"k" * 16, 0, 1 << 20, {}, 5.0)
        await socket.send_bytes(frames.encode(hello))
        if not heard:
            for message in says:
                await socket.send_bytes(message)
        async for answer in socket:
            if answer.type is WSMsgType.BINARY:
                heard.append(frames.decode(answer.data))
        return socket

    started, loop = threading.Event(), asyncio.new_event_loop()
    address = []

    async def main() -> None:
        app = web.Application()
        routes(app, None)
        app.router.add_get("/rpc", wire)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(f"127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        await stop.wait()
        await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert started.wait(10)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"\x91\x0d", "no frame has the tag"),
        (b"\xc2\x05\x00", "a batch ends within a length"),
        (frames.chunk_prefix(7) + b"abc", "which was not announced"),
        (frames.encode(frames.Ack(5)), "confirmed that were never sent"),
        (
            frames.encode(
                frames.Call(1, "f", None, 3, (1 << 40,), frames.BODY_IN_TRANSFER)
            ),
            "announced, but at most",
        ),
        (frames.encode(frames.Hello((1, 0), "", "", b"", 0, 0, {}, 1.0)), "after the"),
    ],
)
def test_a_server_that_breaks_the_protocol_is_told_why(
    page: Page, says: bytes, reason: str
) -> None:
    heard: list[Any] = []
    with scripted([says], heard) as address:
        page.go(f"http://{address}/test")
        page.until("document.title === 'a test'")
        run(page, CONNECTED)
        ended = page.until("wire.states.find((s) => s.state === 'ended')")
    assert reason in ended["reason"]
    assert reason in next(f.reason for f in heard if isinstance(f, frames.Bye))
