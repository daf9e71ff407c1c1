"""A TCP proxy that can cut or freeze what passes through it, or end TLS."""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Self


class Proxy:
    """Forwards connections to a port on this machine; lives on the running loop.

    With ``tls`` it ends TLS, and forwards what was in it.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._target, self._tls = port, tls
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted = 0
        self.forwarded_bytes = 0
        self._cut_after: int | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self._tls
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Abort every connection, without a closing handshake."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def cut_after(self, more_bytes: int) -> None:
        """Break every connection once that much more has passed."""
        self._cut_after = self.forwarded_bytes + more_bytes

    def freeze(self) -> None:
        """Let nothing through, and close nothing: as if a cable were out."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.accepted += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        for end in (writer, back):
            end.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )
        self._writers |= {writer, back}
        for flow in (self._forward(reader, back), self._forward(there, writer)):
            task = asyncio.create_task(flow)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
                self.forwarded_bytes += len(data)
                if self._cut_after and self.forwarded_bytes >= self._cut_after:
                    self._cut_after = None
                    self.cut()
        writer.close()
