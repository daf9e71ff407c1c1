"""A relay of TCP connections that is like a link: slow, late and shared.

    sender → relay: wait for the window → wait for the medium → latency → receiver

The medium is a token bucket for all connections of a link, at a rate that varies. The
two TCP connections at the relay's ends are on one machine and know of no distance, so
the relay does what TCP does over a long one: a round trip to connect, and a window of
ten segments that grows by what is confirmed (slow start), again after a pause. Nothing
is lost on the way, so nothing makes the window smaller; bytes keep their order.

As a program it serves one listening socket that it inherits. It prints a line when it
is ready, and ends with its standard input: its parent is gone then, however that came.
"""

import asyncio
import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

from melisma.testbed.links import Conditions, Link

BURST_S = 0.004  #: tokens that a medium keeps, more than a timer is late
PIECE_S = 0.002  #: of the medium's time that is given to one connection at once
SEGMENT = 1448  #: bytes of data in a full Ethernet frame
FIRST_WINDOW = 10 * SEGMENT  #: RFC 6928
LARGEST_WINDOW = 4 << 20  #: bytes, as Linux lets a socket's buffer grow
PAUSE_S = 0.2  #: after which TCP starts slowly again: its shortest timeout on Linux
BUFFER = 1 << 16  #: bytes that a kernel's socket holds before the relay reads them


class Medium:
    """What one direction of a link, or both, are sent on."""

    def __init__(self, conditions: Conditions, clock: Callable[[], float]) -> None:
        self._conditions, self._clock = conditions, clock
        self._began_s = clock()
        self._free_s = 0.0  #: when all that was sent so far has left

    def latency_s(self) -> float:
        """Seconds that something sent now is on its way."""
        return self._conditions.at(self._clock() - self._began_s)[0]

    def send(self, size: int, rate_bps: float) -> float:
        """Send so many bytes after all before them; return when they have left."""
        now_s = self._clock()
        _, share = self._conditions.at(now_s - self._began_s)
        start_s = max(self._free_s, now_s - BURST_S)
        self._free_s = start_s + 8 * size / (rate_bps * share)
        return self._free_s


class Flow:
    """One direction of one connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        medium: Medium,
        rate_bps: float,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._medium, self._rate_bps = medium, rate_bps
        self._window, self._unconfirmed = FIRST_WINDOW, 0
        self._confirmed = asyncio.Event()
        self._arrives_s = -math.inf  #: when the latest bytes do
        self._flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def run(self) -> None:
        """Carry all there is, then the end; raise OSError if a connection breaks."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            tasks.create_task(self._deliver())

    async def _send(self) -> None:
        piece = min(max(int(min(self._rate_bps, 1e9) * PIECE_S / 8), SEGMENT), BUFFER)
        sent_s = -math.inf
        while data := await self._reader.read(piece):
            if not self._unconfirmed and time.monotonic() - sent_s > PAUSE_S:
                self._window = FIRST_WINDOW
            while data:
                while self._unconfirmed >= self._window:
                    self._confirmed.clear()
                    await self._confirmed.wait()
                within = self._window - self._unconfirmed
                await self._put(data[:within])
                data = data[within:]
            sent_s = time.monotonic()
        await self._put(b"")

    async def _put(self, data: bytes) -> None:
        """Send bytes, or the end, on the medium; they arrive after those before."""
        self._unconfirmed += len(data)
        await _until(self._medium.send(len(data), self._rate_bps))
        arrives_s = time.monotonic() + self._medium.latency_s()
        self._arrives_s = max(self._arrives_s, arrives_s)
        self._flight.put_nowait((self._arrives_s, data))

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            arrives_s, data = await self._flight.get()
            await _until(arrives_s)
            if not data:
                self._writer.write_eof()
                return
            self._writer.write(data)
            await self._writer.drain()
            loop.call_later(self._medium.latency_s(), self._confirm, len(data))

    def _confirm(self, size: int) -> None:
        self._unconfirmed -= size
        self._window = min(self._window + size, LARGEST_WINDOW)
        self._confirmed.set()


class Relay:
    """Connects whoever comes to ``target``, over a link; None is no limit."""

    def __init__(
        self,
        target: tuple[str, int],
        link: Link,
        *,
        up_bps: float | None,
        down_bps: float | None,
        seed: str,
    ) -> None:
        self._target = target
        self._rates_bps = up_bps or math.inf, down_bps or math.inf
        up, down = (
            Medium(Conditions(link, f"{seed} {way}"), time.monotonic)
            for way in ("up", "down")
        )
        self._media = (down, down) if link.half_duplex else (up, down)

    async def serve(
        self, listener: socket.socket, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Relay all that connects, until cancelled."""
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        server = await asyncio.start_server(self._accept, sock=listener, limit=BUFFER)
        async with server:
            ready()
            await server.serve_forever()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ends = [writer]
        try:
            # The handshake of a connection over the link.
            await asyncio.sleep(sum(medium.latency_s() for medium in self._media))
            there, back = await asyncio.open_connection(*self._target, limit=BUFFER)
            ends.append(back)
            for end in ends:
                end.get_extra_info("socket").setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                )
            (up, down), (up_bps, down_bps) = self._media, self._rates_bps
            async with asyncio.TaskGroup() as flows:
                flows.create_task(Flow(reader, back, up, up_bps).run())
                flows.create_task(Flow(there, writer, down, down_bps).run())
        except* OSError:
            for end in ends:
                _reset(end)
        finally:
            for end in ends:
                end.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that its other end knows that it broke."""
    with contextlib.suppress(OSError):
        at_once = b"\1\0\0\0\0\0\0\0"  # struct linger: on, 0 s
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, at_once
        )
    writer.transport.abort()


async def _until(time_s: float) -> None:
    """Sleep until the clock shows so much."""
    if (wait_s := time_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)


def command(
    listener: socket.socket,
    target: tuple[str, int],
    link: Link,
    *,
    up_bps: float | None,
    down_bps: float | None,
    seed: str,
) -> list[str]:
    """Return the command of a relay that inherits the listening socket."""
    told = {
        "listener": listener.fileno(),
        "target": target,
        "link": link.values(),
        "up_bps": up_bps,
        "down_bps": down_bps,
        "seed": seed,
    }
    program = f"from {__name__} import main; main()"
    return [sys.executable, "-P", "-c", program, json.dumps(told)]


def main() -> None:
    """Relay as the first argument says, until standard input ends."""
    told = json.loads(sys.argv[1])
    listener = socket.socket(fileno=told.pop("listener"))
    told["link"], told["target"] = Link(**told["link"]), tuple(told["target"])

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(Relay(**told).serve(listener, lambda: print("ready", flush=True)))
