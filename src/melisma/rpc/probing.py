"""What shows a device how fast its link to this server is, before it takes part.

    GET  /link?bytes=N        that many random bytes, at most MOST_BYTES
    POST /link                200 {"bytes": N}, how many arrived

Both need the token, as calls do, and make nobody a peer. ``Melisma-Version`` is the
version of the server.
"""

import os

from aiohttp import web

from melisma import __version__
from melisma.rpc.http import problem

#: Of one answer: a second on a fast link, and no burden to a server.
MOST_BYTES = 4 << 20
VERSION = "Melisma-Version"


async def link(request: web.Request) -> web.Response:
    """Answer a request for /link."""
    headers = {VERSION: __version__}
    if request.method == "POST":
        arrived = len(await request.read())
        return web.json_response({"bytes": arrived}, headers=headers)
    body = os.urandom(_size(request.query.get("bytes", "0")))  # nothing compresses it
    headers |= {"Cache-Control": "no-store"}
    kind = "application/octet-stream"
    return web.Response(body=body, content_type=kind, headers=headers)


def _size(text: str) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) < 10
    if not digits or int(text) > MOST_BYTES:
        raise problem(
            web.HTTPBadRequest,
            f"bytes={text[:20]}: give a whole number up to {MOST_BYTES}",
        )
    return int(text)
