"""Transports of frames: the protocol, and one within this process."""

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Protocol


class Closed(Exception):
    """The transport is closed; the message says why, if known."""


class Transport(Protocol):
    """Sends and receives whole messages in order, until it closes."""

    async def send(self, frame: bytes) -> None:
        """Send a message, and wait while the buffer is full; Closed if closed."""

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Send a message within this turn of the event loop, as far as possible.

        Await the result, if there is one, before sending anything else.
        """

    async def receive(self) -> bytes:
        """Return the next message; Closed when there is none any more."""

    async def close(self) -> None:
        """Close the transport; never raises, and hardly waits for the peer."""


def start(work: Coroutine[Any, Any, None]) -> Awaitable[None] | None:
    """Run a coroutine to its first suspension, and return the rest of it, if any."""
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
    """Raise when awaited; unlike a coroutine, it need not be awaited."""
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
        """Put a message into the other end's queue, once there is room."""
        if self._closed:
            raise Closed
        await self._outbox.put(bytes(frame))

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Put a message into the other end's queue, now if there is room."""
        return start(self.send(frame))

    async def receive(self) -> bytes:
        """Take the next message from this end's queue."""
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
    """Return two connected ends, with queues of ``frames`` messages each way."""
    first: asyncio.Queue[bytes | None] = asyncio.Queue(frames)
    second: asyncio.Queue[bytes | None] = asyncio.Queue(frames)
    return MemoryTransport(first, second), MemoryTransport(second, first)
