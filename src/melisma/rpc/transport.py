"""What frames travel on: a WebSocket, or the memory of one process."""

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Protocol


class Closed(Exception):
    """The transport carries nothing more; the message says why, if anybody knows."""


class Transport(Protocol):
    """Whole frames to and from one peer, in order, until it closes."""

    async def send(self, frame: bytes) -> None:
        """Send a frame and wait while the way is blocked; Closed if there is none."""

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Send a frame without a turn of the event loop, and return what is left to do.

        Nothing else may be sent until what is returned has been awaited.
        """

    async def receive(self) -> bytes:
        """Return the next frame; Closed when there will be none."""

    async def close(self) -> None:
        """Carry nothing more. Never raises, never waits for the far side."""


def start(work: Coroutine[Any, Any, None]) -> Awaitable[None] | None:
    """Run a coroutine up to where it first waits, and return the rest of it."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    except Exception as error:
        return _raise(error)
    return _continue(work, waits_for)


@types.coroutine
def _continue(
    work: Coroutine[Any, Any, None], waits_for: Any
) -> Generator[Any, Any, None]:
    yield waits_for
    yield from work.__await__()


@types.coroutine
def _raise(error: Exception) -> Generator[Any, Any, None]:
    """Raise when awaited; unlike a coroutine, it may be left alone."""
    raise error
    yield


class MemoryTransport:
    """One end of a transport inside this process."""

    def __init__(
        self, inbox: asyncio.Queue[bytes | None], outbox: asyncio.Queue[bytes | None]
    ) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._closed = False

    async def send(self, frame: bytes) -> None:
        """Put the frame in the other end's inbox, once there is room."""
        if self._closed:
            raise Closed
        await self._outbox.put(bytes(frame))

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Put the frame in the other end's inbox, if there is room now."""
        return start(self.send(frame))

    async def receive(self) -> bytes:
        """Take the next frame out of this end's inbox."""
        frame = None if self._closed else await self._inbox.get()
        if frame is None:
            self._closed = True
            raise Closed
        return frame

    async def close(self) -> None:
        """Close both ends."""
        self._closed = True
        for queue in (self._inbox, self._outbox):
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(None)


def memory_transports(frames: int = 16) -> tuple[MemoryTransport, MemoryTransport]:
    """Return the two ends of a transport that holds up to ``frames`` each way."""
    there: asyncio.Queue[bytes | None] = asyncio.Queue(frames)
    back: asyncio.Queue[bytes | None] = asyncio.Queue(frames)
    return MemoryTransport(back, there), MemoryTransport(there, back)
