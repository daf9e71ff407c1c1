"""A relay alone, on the loopback: no root, no namespaces."""

import asyncio
import contextlib
import random
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from melisma.testbed import Link
from melisma.testbed.links import Conditions
from melisma.testbed.relay import BURST_S, FIRST_WINDOW, Medium, Relay, command

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CABLE = Link(name="cable")
#: Every piece has a latency of its own, from 1 to 400 ms.
UNSTEADY = Link(name="unsteady", latency_s=0.02, jitter=1.0, hold_s=0.001)


class OffTimeError(AssertionError):
    """Something took another time than it should: the relay's fault, or another's."""


def check_took(took_s: float, expected_s: float) -> None:
    if not 0.9 * expected_s < took_s < 1.4 * expected_s + 0.03:
        raise OffTimeError(f"took {took_s:.3f} s, not {expected_s} s")


def asynchronous(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Run a test on a loop of its own.

    Again while times are off, for a minute: a busy machine delays this test now and
    then, and a wrong relay always.
    """

    @wraps(test)
    def run(**arguments: Any) -> None:
        until = time.monotonic() + 60
        while True:
            try:
                asyncio.run(test(**arguments))
                break
            except OffTimeError:
                if time.monotonic() > until:
                    raise

    return run


@contextlib.asynccontextmanager
async def relayed(
    handler: Handler,
    link: Link = CABLE,
    *,
    up_bps: float | None = None,
    down_bps: float | None = None,
) -> AsyncIterator[Callable[[], Awaitable[Ends]]]:
    """Yield what connects to ``handler`` over the link; nothing takes longer than 20 s.

    The handler's end is closed when it returns.
    """

    async def handled(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    opened: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(handled, "127.0.0.1", 0)
    target = server.sockets[0].getsockname()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    relay = Relay(target, link, up_bps=up_bps, down_bps=down_bps, seed="test")
    serving = asyncio.create_task(relay.serve(listener))

    async def connect() -> Ends:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return reader, writer

    try:
        async with asyncio.timeout(20):
            yield connect
    finally:
        for writer in opened:
            writer.close()
        server.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await asyncio.sleep(0.05)  # for both ends to be told


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def round_trip_s(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> float:
    began = time.monotonic()
    writer.write(b"?")
    await reader.readexactly(1)
    return time.monotonic() - began


@asynchronous
async def test_a_round_trip_takes_the_latency_twice() -> None:
    async with relayed(echo, Link(name="far", latency_s=0.05)) as connect:
        ends = await connect()
        first_s = await round_trip_s(*ends)
        check_took(first_s, 0.2)  # one more to connect
        check_took(await round_trip_s(*ends), 0.1)


async def down_s(size: int, link: Link, rate_bps: float | None) -> float:
    """Seconds from the first byte's coming to the last one's."""

    async def feed(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await writer.drain()

    async with relayed(feed, link, down_bps=rate_bps) as connect:
        reader, _ = await connect()
        await reader.readexactly(1)
        began = time.monotonic()
        assert len(await reader.read(-1)) == size - 1
        return time.monotonic() - began


@asynchronous
async def test_data_comes_at_the_links_rate() -> None:
    # 500 kB are 4 Mbit.
    check_took(await down_s(500_000, CABLE, 8e6), 0.5)
    check_took(await down_s(500_000, CABLE, 4e6), 1.0)


@asynchronous
async def test_connections_share_the_links_rate() -> None:
    async def feed(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(250_000))
        await writer.drain()

    async with relayed(feed, down_bps=8e6) as connect:
        began = time.monotonic()
        ends = [await connect() for _ in range(2)]
        await asyncio.gather(*(reader.read(-1) for reader, _ in ends))
        check_took(time.monotonic() - began, 0.5)


@pytest.mark.parametrize(("half", "took_s"), [(False, 0.3), (True, 0.6)])
@asynchronous
async def test_both_directions_take_turns_on_one_medium(
    half: bool, took_s: float
) -> None:
    # 300 kB each way at 8 Mbit/s: at once, or one after the other.
    async def swap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(300_000))
        await asyncio.gather(writer.drain(), reader.read(-1))

    link = Link(name="radio", half_duplex=half)
    async with relayed(swap, link, up_bps=8e6, down_bps=8e6) as connect:
        reader, writer = await connect()
        began = time.monotonic()
        writer.write(bytes(300_000))
        writer.write_eof()
        await reader.read(-1)
        check_took(time.monotonic() - began, took_s)


@asynchronous
async def test_others_on_the_link_take_their_share() -> None:
    # They send nearly always and take three quarters.
    link = Link(name="port", cross=0.75, busy_s=100.0, idle_s=0.001)
    check_took(await down_s(250_000, link, 8e6), 1.0)


@asynchronous
async def test_a_far_connection_starts_slowly() -> None:
    # Windows of 1, 2, 4 and 8 times the first: three more round trips of 0.1 s.
    link = Link(name="far", latency_s=0.05)
    check_took(await down_s(15 * FIRST_WINDOW, link, None), 0.3)


@asynchronous
async def test_after_a_pause_a_connection_starts_slowly_again() -> None:
    async def feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            writer.write(bytes(15 * FIRST_WINDOW))
            await writer.drain()

    async with relayed(feed, Link(name="far", latency_s=0.05)) as connect:
        reader, writer = await connect()
        # The window is large enough from the first time on, unless there is a pause.
        for pause_s, expected_s in ((0.0, 0.3), (0.0, 0.0), (0.4, 0.3)):
            await asyncio.sleep(pause_s)
            writer.write(b"?")
            await reader.readexactly(1)
            began = time.monotonic()
            await reader.readexactly(15 * FIRST_WINDOW - 1)
            check_took(time.monotonic() - began, expected_s)


def test_a_medium_is_as_its_link_is_at_the_moment() -> None:
    link = Link(name="radio", latency_s=0.01, jitter=0.5, fading=0.5, hold_s=1.0)
    now = [0.0]
    medium, expected = (
        Medium(Conditions(link, "a"), lambda: now[0]),
        Conditions(link, "a"),
    )
    for second in range(20):
        now[0] = second + 0.5
        latency_s, share = expected.at(now[0])
        # 8,000 bits at the share of 8 Mbit/s, after a burst that it saved up for.
        left_s = now[0] - BURST_S + 0.001 / share
        assert medium.send(1000, 8e6) == pytest.approx(left_s)
        assert medium.latency_s() == latency_s


@asynchronous
async def test_bytes_keep_their_order_whatever_their_latency() -> None:
    sent = random.Random(0).randbytes(300_000)
    async with relayed(echo, UNSTEADY, up_bps=50e6) as connect:
        reader, writer = await connect()
        writer.write(sent)
        writer.write_eof()
        assert await reader.read(-1) == sent


@asynchronous
async def test_one_direction_may_end_before_the_other() -> None:
    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked = await reader.read(-1)
        writer.write(asked.upper())
        await writer.drain()

    async with relayed(answer, Link(name="far", latency_s=0.02)) as connect:
        reader, writer = await connect()
        writer.write(b"what")
        writer.write_eof()
        assert await reader.read(-1) == b"WHAT"


@asynchronous
async def test_a_sender_waits_for_a_receiver_that_does_not_read() -> None:
    done = asyncio.Event()

    async def idle(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await done.wait()

    async with relayed(idle) as connect:
        _, writer = await connect()
        sent = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while sent < 200 << 20:
                    writer.write(bytes(1 << 20))
                    sent += 1 << 20
                    await writer.drain()
        done.set()
    # The window, and what four kernel buffers and four of ours hold.
    assert sent < 30 << 20


@asynchronous
async def test_a_receiver_that_dies_is_told_to_the_sender() -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        writer.transport.abort()

    async with relayed(die) as connect:
        for _ in range(2):  # the relay itself lives on
            reader, writer = await connect()
            writer.write(b"!")
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)


@asynchronous
async def test_a_sender_that_dies_is_told_to_the_receiver() -> None:
    broken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        try:
            await reader.read(-1)
        except ConnectionResetError:
            broken.set_result(True)
        else:
            broken.set_result(False)

    async with relayed(wait) as connect:
        _, writer = await connect()
        writer.write(b"!")
        await asyncio.sleep(0.1)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        writer.transport.abort()
        assert await broken


@asynchronous
async def test_nobody_at_the_far_end_breaks_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        target = gone.getsockname()
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay(target, CABLE, up_bps=None, down_bps=None, seed="test")
    serving = asyncio.create_task(relay.serve(listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
    writer.close()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def test_a_relay_ends_with_its_parent() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        words = command(
            listener,
            server.getsockname(),
            Link(name="far", latency_s=0.01),
            up_bps=1e6,
            down_bps=None,
            seed="test",
        )
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, pass_fds=[listener.fileno()]
        )
        server.settimeout(20)
        with process:
            link = socket.create_connection(listener.getsockname(), 20)
            far, _ = server.accept()
            with link, far:
                link.sendall(b"hello")
                assert far.recv(5) == b"hello"
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(10) == 0
