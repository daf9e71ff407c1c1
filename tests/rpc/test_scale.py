"""Many peers, many calls, much data, and readers that are slower than all of it."""

import asyncio
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from melisma import rpc
from melisma.errors import RemoteError, TransportError
from melisma.rpc import frames, link
from melisma.rpc.streams import STREAM_CREDIT
from melisma.rpc.transport import MemoryTransport, memory_transports
from melisma.rpc.values import pack_call

#: Nothing here takes this long; it only keeps a broken test from hanging.
GUARD_S = 120.0
PEERS = 1000


def silent(_: str) -> None:
    pass


async def serving(tmp_path: Path, *targets: object, **options: Any) -> rpc.Server:
    usual: dict[str, Any] = {"port": 0, "folder": tmp_path, "say": silent}
    return await rpc.aserve(*targets, **(usual | options))


async def until(true: Callable[[], object]) -> None:
    """Poll for a condition that has no event."""
    while not true():
        await asyncio.sleep(0.001)


def guarded(scenario: Any) -> None:
    """Run a scenario to its end, or fail instead of hanging."""

    async def in_time() -> None:
        async with asyncio.timeout(GUARD_S):
            await scenario

    asyncio.run(in_time())


@rpc.expose
async def echo(value: Any = None) -> Any:
    return value


# Many peers


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open a socket at either end for each peer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * PEERS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(f"the system lets a process open {hard} files: allow {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Numbered:
    def __init__(self, number: int) -> None:
        self._number = number

    @rpc.expose
    async def number(self) -> int:
        return self._number


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_a_thousand_peers_answer_one_by_one_and_all_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = await serving(tmp_path, echo)
        connections = []
        for start in range(0, PEERS, 50):
            connections += await asyncio.gather(*(
                rpc.aconnect(server.address, Numbered(i), name=f"peer-{i}")
                for i in range(start, start + 50)
            ))  # fmt: skip
        await server.wait_until(PEERS)
        for i in range(PEERS):
            assert await server.peers[f"peer-{i}"].number() == i
        answers = await server.peers.number()
        assert answers == {f"peer-{i}": i for i in range(PEERS)}
        await asyncio.gather(*(connection.close() for connection in connections))
        await until(lambda: not server.peers)
        assert not server._hub._owners
        assert server._hub.connections == 0
        await server.close()

    guarded(scenario())


def test_both_sides_call_each_other_two_hundred_times_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = await serving(tmp_path, echo)
        connection = await rpc.aconnect(server.address, echo, name="device")
        async with server, connection:
            await server.wait_for("device")
            peer = server.peers["device"]
            there = [connection.echo.submit(i) for i in range(200)]
            back = [peer.echo.submit(-i) for i in range(200)]
            assert [await call for call in there] == list(range(200))
            assert [await call for call in back] == [-i for i in range(200)]

    guarded(scenario())


@rpc.expose
def bounce(times: int) -> list[str]:
    """Call back and forth, a thread waiting at every level."""
    request = rpc.current()
    assert request.peer is not None
    deeper = request.peer.bounce(times - 1) if times else []
    return [request.caller, *deeper]


def test_callbacks_nest_ten_deep_many_times_at_once(tmp_path: Path) -> None:
    with (
        rpc.serve(bounce, port=0, folder=tmp_path, say=silent, threads=64) as server,
        rpc.connect(server.address, bounce, name="device", threads=64) as connection,
    ):
        calls = [connection.bounce.submit(10) for _ in range(8)]
        for call in calls:
            levels = call.result(GUARD_S)
            assert levels == ["device", server.address] * 5 + ["device"]


# Much data


@pytest.mark.slow
def test_small_calls_overtake_a_large_transfer(tmp_path: Path) -> None:
    large = np.ones(256_000_000, np.uint8)

    async def scenario() -> None:
        server = await serving(tmp_path, echo)
        connection = await rpc.aconnect(server.address)
        async with server, connection:
            transfer = connection.echo.submit(large)
            for i in range(100):
                assert await connection.echo(i) == i
            assert not transfer.done()
            assert np.array_equal(await transfer, large)

    guarded(scenario())


# Limits


class Gate:
    """Functions that block until released, and count those that do."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0

    @rpc.expose
    async def wait(self) -> str:
        self.waiting += 1
        await self.opened.wait()
        return "open"


def test_one_call_too_many_is_refused_where_it_is_made() -> None:
    async def scenario() -> None:
        gate = Gate()
        server = await rpc.aserve(gate, port=None)
        connection = await rpc.aconnect(server, limits=rpc.Limits(calls=3))
        async with server, connection:
            calls = [connection["wait"].submit() for _ in range(3)]
            with pytest.raises(TransportError, match="3 calls to server are pending"):
                await connection["wait"]()
            gate.opened.set()
            assert [await call for call in calls] == ["open"] * 3
            assert await connection["wait"]() == "open"

    guarded(scenario())


def test_one_call_too_many_is_refused_where_it_arrives() -> None:
    async def scenario() -> None:
        gate = Gate()
        server = await rpc.aserve(gate, port=None, limits=rpc.Limits(calls=3))
        async with server, await rpc.aconnect(server) as connection:
            calls = [connection["wait"].submit() for _ in range(3)]
            with pytest.raises(RemoteError, match="3 calls are running already"):
                await connection["wait"]()
            assert gate.waiting == 3
            gate.opened.set()
            assert [await call for call in calls] == ["open"] * 3
            assert await connection["wait"]() == "open"

    guarded(scenario())


def test_one_connection_too_many_is_told_so_and_room_is_made_again(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        server = await serving(tmp_path, echo, limits=rpc.Limits(connections=2))
        connections = [await rpc.aconnect(server.address) for _ in range(2)]
        with pytest.raises(TransportError, match="accepts no more connections"):
            await rpc.aconnect(server.address)
        await connections.pop().close()
        connections.append(await rpc.aconnect(server.address, patience_s=GUARD_S))
        assert await connections[-1].echo(1) == 1
        for connection in connections:
            await connection.close()
        await server.close()

    guarded(scenario())


def test_a_message_over_the_limit_fails_before_anything_of_it_is_sent() -> None:
    async def scenario() -> None:
        limits = rpc.Limits(message_bytes=100_000)
        server = await rpc.aserve(echo, port=None, limits=limits)
        async with server, await rpc.aconnect(server) as connection:
            received = server.metrics.received_bytes
            with pytest.raises(TransportError, match="150000 bytes are more than"):
                await connection.echo(np.zeros(150_000, np.uint8))
            assert server.metrics.received_bytes == received
            with pytest.raises(TransportError, match="more than the 100000"):
                await connection.echo(b"x" * 150_000)
            assert (await connection.echo(np.zeros(99_000, np.uint8))).size == 99_000

    guarded(scenario())


def test_a_result_over_the_limit_of_who_asked_is_an_error_there() -> None:
    @rpc.expose
    async def zeros(size: int) -> Any:
        return np.zeros(size, np.uint8)

    async def scenario() -> None:
        server = await rpc.aserve(zeros, port=None)
        limits = rpc.Limits(message_bytes=100_000)
        async with server, await rpc.aconnect(server, limits=limits) as connection:
            with pytest.raises(RemoteError, match="more than the 100000"):
                await connection.zeros(150_000)
            assert (await connection.zeros(99_000)).size == 99_000

    guarded(scenario())


# Slow readers


class Counter:
    """Streams that count what was taken out of them, and note when they are closed."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = threading.Event()

    @rpc.expose
    async def forever(self, item: Any = None) -> AsyncIterator[Any]:
        try:
            while True:
                self.made += 1
                yield item
        finally:
            self.closed.set()

    @rpc.expose
    def from_a_thread(self, item: Any = None) -> Iterator[Any]:
        try:
            while True:
                self.made += 1
                yield item
        finally:
            self.closed.set()


@pytest.mark.parametrize("function", ["forever", "from_a_thread"])
@pytest.mark.parametrize(
    ("size", "most"),
    [
        # What there is credit for, and one that waits for its turn.
        (0, STREAM_CREDIT + 1),
        (200_000, STREAM_CREDIT + 1),
        # Costs 3: five fit in 16, and three more once 9 are given back for three.
        (3_000_000, 5 + 3 + 1),
    ],
)
def test_a_stream_waits_for_a_consumer_that_stops(
    function: str, size: int, most: int
) -> None:
    async def scenario() -> None:
        counter = Counter()
        server = await rpc.aserve(counter, echo, port=None)
        async with server, await rpc.aconnect(server) as connection:
            items = await connection[function].submit(b"x" * size)
            for _ in range(3):
                await anext(items)
            await until(lambda: counter.made >= most)
            for i in range(200):
                await connection.echo(i)
            assert counter.made == most
            items.close()
            await until(counter.closed.is_set)

    guarded(scenario())


def test_a_large_item_after_small_ones_finds_room() -> None:
    @rpc.expose
    async def mixed() -> AsyncIterator[Any]:
        for size in (1, 1, 1, 40_000_000, 1, 5_000_000, 9_000_000, 1):
            yield np.zeros(size, np.uint8)

    async def scenario() -> None:
        server = await rpc.aserve(mixed, port=None)
        async with server, await rpc.aconnect(server) as connection:
            sizes = [item.size async for item in connection.mixed()]
            assert sizes == [1, 1, 1, 40_000_000, 1, 5_000_000, 9_000_000, 1]

    guarded(scenario())


def hello(name: str, message_bytes: int = 1 << 30) -> bytes:
    return frames.encode(
        frames.Hello(frames.PROTOCOL, "0", name, b"", 0, message_bytes, {}, 5.0)
    )


def request(id: int, function: str, *args: Any) -> bytes:
    body = frames.wrap(pack_call(args, {})[0])
    return frames.encode(frames.Call(id, function, None, 0, (), body))


@asynccontextmanager
async def deaf(server: rpc.Server) -> AsyncIterator[MemoryTransport]:
    """Connect to a server by hand, for a peer that does not read."""
    near, far = memory_transports()
    accepting = asyncio.ensure_future(server._hub.accept(far))
    await near.send(hello("deaf"))
    await server.wait_for("deaf")
    yield near
    await near.close()
    await accepting


@pytest.mark.parametrize("function", ["forever", "from_a_thread"])
def test_a_stream_ends_when_who_asked_never_read_it_and_left(function: str) -> None:
    async def scenario() -> None:
        counter = Counter()
        limits = rpc.Limits(grace_s=0.01)
        server = await rpc.aserve(counter, port=None, limits=limits, threads=1)
        async with server:
            for _ in range(3):  # the only thread is free again each time
                counter.made = 0
                counter.closed.clear()
                async with deaf(server) as transport:
                    for id in (1, 2):
                        item = b"x" * 200_000
                        body, buffers = pack_call((item,), {})
                        whole = frames.Call(
                            id,
                            function,
                            None,
                            id,
                            (len(body),),
                            frames.BODY_IN_TRANSFER,
                        )
                        await transport.send(frames.encode(whole))
                        for start in range(0, len(body), frames.CHUNK_BYTES):
                            part = body[start : start + frames.CHUNK_BYTES]
                            await transport.send(frames.chunk_prefix(id) + part)
                        assert not buffers
                    await until(lambda: counter.made)
                await until(counter.closed.is_set)
                await until(lambda: not server.peers)

    guarded(scenario())


def test_who_asks_without_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "BACKLOG_FRAMES", 500)

    async def scenario() -> None:
        server = await rpc.aserve(echo, port=None, limits=rpc.Limits(grace_s=0.01))
        async with server, await rpc.aconnect(server, name="innocent") as connection:
            async with deaf(server) as transport:
                asking = asyncio.ensure_future(_ask(transport))
                await until(lambda: set(server.peers) == {"innocent"})
                asking.cancel()
            assert await connection.echo(7) == 7

    guarded(scenario())


def _frames_in(message: bytes) -> list[Any]:
    whole = message[0] != frames.BATCH
    return list(map(frames.decode, [message] if whole else frames.split_batch(message)))


async def _ask(transport: MemoryTransport) -> None:
    for id in range(1, 1_000_000):
        await transport.send(request(id, "echo", "a"))


def test_who_reads_without_confirming_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "BACKLOG_FRAMES", 500)

    async def scenario() -> None:
        server = await rpc.aserve(echo, port=None, limits=rpc.Limits(grace_s=0.01))
        async with server, deaf(server) as transport:
            asking = asyncio.ensure_future(_ask(transport))
            await transport.receive()  # the answer to Hello
            kinds: list[type] = []
            while frames.Bye not in kinds:
                kinds += [type(f) for f in _frames_in(await transport.receive())]
            assert len(kinds) < 2000
            asking.cancel()

    guarded(scenario())


SERVER = """
import os, sys, threading
from melisma import rpc

def end_with_the_test():
    sys.stdin.read()
    os._exit(1)

threading.Thread(target=end_with_the_test, daemon=True).start()

@rpc.expose
def large():
    return bytes(8_000_000)

@rpc.expose
def endless():
    while True:
        yield bytes(8_000_000)

@rpc.expose
async def echo(value):
    return value

limits = rpc.Limits(message_bytes=64_000_000)
server = rpc.serve(port=0, limits=limits, say=lambda _: None)
print(server.port, flush=True)
server.wait()
"""


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process, f"127.0.0.1:{process.stdout.readline().strip()}"
    process.kill()
    process.communicate()


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.slow
@pytest.mark.parametrize("function", ["large", "endless"])
def test_what_a_slow_reader_asks_for_does_not_pile_up(
    function: str, server_process: tuple[subprocess.Popen[str], str]
) -> None:
    process, address = server_process

    async def scenario() -> None:
        async with (
            await rpc.aconnect(address, name="innocent") as connection,
            aiohttp.ClientSession() as session,
            session.ws_connect(f"http://{address}/rpc") as end,
        ):
            await end.send_bytes(hello("slow"))
            before = most = resident_bytes(process.pid)
            for id in range(1, 101):  # 800 MB of results, and none is read
                await end.send_bytes(request(id, function))
                assert await connection.echo(id) == id
                most = max(most, resident_bytes(process.pid))
            for id in range(300):
                assert await connection.echo(id) == id
                most = max(most, resident_bytes(process.pid))
            assert most - before < 400_000_000

    guarded(scenario())


def test_a_server_closes_although_a_peer_reads_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        patient = rpc.Limits(silence_s=10 * GUARD_S, grace_s=10 * GUARD_S)
        server = await serving(tmp_path, echo, limits=patient)
        async with aiohttp.ClientSession() as session:
            end = await session.ws_connect(f"http://{server.address}/rpc")
            await end.send_bytes(hello("slow"))
            await server.wait_for("slow")
            call = server.peers["slow"].echo.submit(np.zeros(60_000_000, np.uint8))
            await _stuck(server)
            await server.close()
            with pytest.raises(TransportError, match="the server stopped"):
                await call
            await end.close()

    guarded(scenario())


async def _stuck(server: rpc.Server) -> None:
    """Wait until the sockets have taken what they take."""
    sent, still = 0, 0
    while still < 100:
        await asyncio.sleep(0.001)
        still = still + 1 if server.metrics.sent_bytes == sent else 0
        sent = server.metrics.sent_bytes
