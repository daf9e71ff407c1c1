"""What shows a device how fast its link to this server is, before it takes part.

    GET  /link?bytes=N        that many random bytes, at most MOST_BYTES
    POST /link                200 {"bytes": N}, how many arrived, at most MOST_BYTES

Both need the token, as calls do, and make nobody a peer. ``Melisma-Version`` is the
version of the server. Nothing is held in memory but a piece, a few measure at a time,
and none for long: who reads slowly keeps no one but other measurements waiting.
"""

import asyncio
import os

from aiohttp import web

from melisma import __version__
from melisma.rpc.http import problem

#: Of one answer: a second on a fast link, and no burden to a server.
MOST_BYTES = 4 << 20
#: Measurements at a time, and the longest that one takes.
MOST, LIMIT_S = 8, 30.0
VERSION = "Melisma-Version"
_PIECE = 1 << 16


class Probing:
    """Answers requests for /link."""

    def __init__(self) -> None:
        self._under_way = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send or take bytes; an HTTP error where there are too many."""
        if self._under_way >= MOST:
            raise problem(
                web.HTTPServiceUnavailable, f"{MOST} measurements are under way already"
            )
        self._under_way += 1
        try:
            async with asyncio.timeout(LIMIT_S):
                work = _taken if request.method == "POST" else _sent
                return await work(request)
        except TimeoutError:
            if request.transport:
                request.transport.abort()  # an orderly close would wait for the reader
            return web.Response()  # nobody is there to get it
        finally:
            self._under_way -= 1


async def _taken(request: web.Request) -> web.StreamResponse:
    arrived = 0
    async for piece in request.content.iter_chunked(_PIECE):
        arrived += len(piece)
        if arrived > MOST_BYTES:
            raise problem(web.HTTPBadRequest, f"send at most {MOST_BYTES} bytes")
    return web.json_response({"bytes": arrived}, headers={VERSION: __version__})


async def _sent(request: web.Request) -> web.StreamResponse:
    left = _size(request.query.get("bytes", "0"))
    response = web.StreamResponse(
        headers={VERSION: __version__, "Cache-Control": "no-store"}
    )
    response.content_type = "application/octet-stream"
    response.content_length = left
    await response.prepare(request)
    while left:
        piece = os.urandom(min(left, _PIECE))  # which nothing on the way compresses
        await response.write(piece)
        left -= len(piece)
    await response.write_eof()
    return response


def _size(text: str) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) < 10
    if not digits or int(text) > MOST_BYTES:
        raise problem(
            web.HTTPBadRequest,
            f"bytes={text[:20]}: give a whole number up to {MOST_BYTES}",
        )
    return int(text)
