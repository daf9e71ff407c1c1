"""Transport over a WebSocket of aiohttp."""

import asyncio
import os
import socket
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import aiohttp
from aiohttp import web

from melisma.rpc.metrics import Metrics
from melisma.rpc.transport import Closed, start

#: How long to wait for the peer's part of the closing handshake.
CLOSE_S = 0.5


class ClientSocket(aiohttp.ClientWebSocketResponse):
    """Releases its connection also after a loss, where aiohttp does not."""

    async def close(self, *, code: int = 1000, message: bytes = b"") -> bool:
        """Close, and release the connection."""
        try:
            return await super().close(code=code, message=message)
        finally:
            self._response.close()


class WebSocket:
    """A transport over either end of a WebSocket."""

    def __init__(
        self,
        websocket: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
        metrics: Metrics,
        silence_s: float,
    ) -> None:
        self._websocket, self._metrics = websocket, metrics
        self._closed = False
        self._socket = websocket.get_extra_info("socket")
        _set_timeout(self._socket, silence_s)

    async def send(self, frame: bytes) -> None:
        """Send one binary message."""
        if self._closed:
            raise Closed
        self._metrics.sent_bytes += len(frame)
        try:
            await self._websocket.send_bytes(frame)
        except (ConnectionError, RuntimeError) as error:
            raise Closed(str(error)) from error

    def start_send(self, frame: bytes) -> Awaitable[None] | None:
        """Write a message to the socket; await the rest while its buffer is full."""
        return start(self.send(frame))

    async def receive(self) -> bytes:
        """Return the next binary message."""
        message = await self._websocket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        raise Closed(f"{message.type.name}: {message.extra or message.data or ''}")

    async def close(self) -> None:
        """Close the connection, with the closing handshake if that is quick."""
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(2 * CLOSE_S):
                await self._websocket.close()
        except TimeoutError:  # the peer reads nothing, so the buffers are full
            _abort(self._socket)
        except (ConnectionError, RuntimeError):
            pass


def _abort(connection: Any) -> None:
    """Shut a socket down at once, by a duplicate: uvloop's own cannot."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _set_timeout(connection: Any, silence_s: float) -> None:
    """Let the kernel close a connection whose host acknowledges nothing."""
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        timeout_ms = int(silence_s * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
