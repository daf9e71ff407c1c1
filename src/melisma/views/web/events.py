"""Send a run's changes as server-sent events."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from melisma.views.document import CUT_SHORT, FINISHED, Document

#: Seconds between polls of the records, statuses, and keep-alive comments.
LOOK_S, STATUS_S, ALIVE_S = 0.25, 1.0, 5.0
#: A watcher that takes longer than this to read one piece is disconnected.
STALLED_S, PIECE_BYTES = 60.0, 1 << 18
#: The second line keeps nginx from holding events back.
HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}


class Stream:
    """One watcher of one run."""

    def __init__(
        self,
        response: web.StreamResponse,
        document: Document,
        status: Callable[[], dict[str, Any]] | None,
        ending: asyncio.Event,
    ) -> None:
        self._response, self._document = response, document
        self._status, self._ending = status, ending
        self._header: dict[str, Any] = {}
        self._written = time.monotonic()

    async def follow(self, after: int, epoch: str | None) -> None:
        """Send changes until the run ends; a finished run is sent at once.

        TimeoutError if the watcher stops reading.
        """
        next_status = 0.0
        while True:
            last = self._ending.is_set()
            await asyncio.to_thread(self._document.refresh)
            status = self._status() if self._status else None
            state = status["state"] if status else None
            found = await asyncio.to_thread(self._changes, after, epoch, state)
            after, epoch = found["position"], found["epoch"]
            if len(found) > len(_ALWAYS):
                await self._send("rows", found)
            last = last or self._header["state"] in (FINISHED, CUT_SHORT)
            if status and (last or time.monotonic() >= next_status):
                next_status = time.monotonic() + STATUS_S
                await self._send("status", status)
            if last:
                return
            if time.monotonic() - self._written > ALIVE_S:
                await self._write(b": still here\n\n")
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._ending.wait()
        except TimeoutError:
            pass

    def _changes(
        self, after: int, epoch: str | None, state: str | None
    ) -> dict[str, Any]:
        found = self._document.since(after, epoch, state)
        header = self._document.header(state)
        if header != self._header:
            self._header = found["run"] = header
        return found

    async def _send(self, event: str, data: dict[str, Any]) -> None:
        lines = b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))
        await self._write(lines)

    async def _write(self, lines: bytes) -> None:
        for start in range(0, len(lines), PIECE_BYTES):
            async with asyncio.timeout(STALLED_S):
                await self._response.write(lines[start : start + PIECE_BYTES])
        self._written = time.monotonic()


#: Fields of every message; a message without others carries no change.
_ALWAYS = ("after", "epoch", "position")
