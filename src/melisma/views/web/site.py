"""The routes: the page, the JSON API behind it, events, control and metrics.

GET  /                                   the page; no data, so no token
GET  /api/runs                           summaries of the runs in the folder
GET  /api/runs/{id}                      one run as a document
GET  /api/runs/{id}/records?after=&limit=    its records as they were written
GET  /api/runs/{id}/events?after=        its changes as server-sent events
GET  /api/status                         status of the live run
GET  /api/invitation                     how devices join it, a token with it
POST /api/control                        control the live run
GET  /metrics                            for Prometheus
"""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from melisma.algorithms.control import Control
from melisma.errors import MelismaError
from melisma.fleets.remotes import Remotes, RpcRemotes
from melisma.rpc import Server
from melisma.rpc.http import problem
from melisma.rpc.listener import Identify
from melisma.views.document import Document
from melisma.views.library import Library
from melisma.views.web import control, events, metrics
from melisma.views.web.access import Access
from melisma.views.web.live import NONE, Invitation, Live

STATIC = Path(__file__).parent / "static"
#: Most records in a response, and most watchers at a time.
LIMIT, STREAMS = 10_000, 64
#: Longest that the end of a run waits for watchers to receive the last changes.
LAST_S = 5.0

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'"
    "; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Dashboard:
    """Serves the runs in ``root``, with the live one among them if there is one."""

    def __init__(self, root: Path, live: Live | None = None) -> None:
        self._library = Library(root, live.folder if live else None)
        self._live, self._access = live, Access()
        self._streams = 0
        self._ending: asyncio.Event

    @classmethod
    def of(cls, folder: Path, control: Control, fixed: str = "") -> "Dashboard":
        """Return the dashboard of a run that this process orchestrates."""
        return cls(folder.resolve().parent, Live(folder, control, fixed))

    def attend(self, server: Server, learners: Remotes | None = None) -> str:
        """Show the presence of this server's learners, or of those given.

        Returns the link whose bearer may control the run.
        """
        if self._live:
            self._live.server = learners or RpcRemotes(server)
        return f"{server.url}/#token={self._access.secret}"

    def invite(self, invitation: Invitation | None) -> None:
        """Show how learners join, if they do from elsewhere."""
        if self._live:
            self._live.invitation = invitation

    def close(self) -> None:
        """Mark the run as over; watchers get the last changes as the server closes."""
        if self._live:
            self._live.over = True

    def routes(self, app: web.Application, identify: Identify) -> None:
        """Add the routes to a server's port."""
        self._access.guard(identify)
        self._ending = asyncio.Event()
        app.on_response_prepare.append(_protect)
        app.on_shutdown.append(self._end)
        app.router.add_get("/", _page)
        app.router.add_static("/static", STATIC)
        app.router.add_get("/api/runs", self._runs)
        app.router.add_get("/api/runs/{id}", self._run)
        app.router.add_get("/api/runs/{id}/records", self._records)
        app.router.add_get("/api/runs/{id}/events", self._events)
        app.router.add_get("/api/status", self._status)
        app.router.add_get("/api/invitation", self._invitation)
        app.router.add_post("/api/control", self._steer)
        app.router.add_get("/metrics", self._metrics)

    async def _end(self, app: web.Application) -> None:
        """Wait for watchers to receive the last changes, at most LAST_S."""
        self._ending.set()
        try:
            async with asyncio.timeout(LAST_S):
                while self._streams:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        self._access.check_watch(request)
        runs = await asyncio.to_thread(self._library.summaries)
        live = self._live.id if self._live else None
        summaries = [msgspec.to_builtins(run) for run in runs]
        for run in summaries:
            if run["id"] == live and self._live and not self._live.over:
                run["state"] = self._live.control.intent.value  # it may be paused
        return _json({"live": live, "runs": summaries})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        self._access.check_watch(request)
        document = await self._document(request.match_info["id"])
        state = self._state(document)
        squeeze = "gzip" in request.headers.get("Accept-Encoding", "")
        body = await asyncio.to_thread(_body, document, state, squeeze)
        headers = {"Content-Encoding": "gzip"} if squeeze else None
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _records(self, request: web.Request) -> web.StreamResponse:
        self._access.check_watch(request)
        document = await self._document(request.match_info["id"])
        after, limit = _number(request, "after", 0), _number(request, "limit", LIMIT)
        limit = min(limit, LIMIT)
        next, lines = await asyncio.to_thread(document.raw, after, limit)
        body = b'{"next":%d,"records":[%s]}' % (next, b",".join(lines))
        response = web.Response(body=body, content_type="application/json")
        response.enable_compression()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        may_control = self._access.may_control(request)
        document = await self._document(request.match_info["id"])
        after, epoch = _number(request, "after", 0), request.query.get("epoch")
        if self._streams >= STREAMS:
            raise problem(
                web.HTTPServiceUnavailable,
                f"{STREAMS} pages are watching already: close a page",
            )
        response = web.StreamResponse(headers=events.HEADERS)
        await response.prepare(request)
        status = None
        if self._is_live(document):
            live = self._live
            assert live is not None

            def status() -> dict[str, Any]:
                return live.status(document) | {"may_control": may_control}

        self._streams += 1
        try:
            stream = events.Stream(response, document, status, self._ending)
            await stream.follow(after, epoch)
        except TimeoutError:
            if request.transport:
                request.transport.abort()  # an orderly close would wait for the watcher
            raise
        finally:
            self._streams -= 1
        await response.write_eof()
        return response

    async def _status(self, request: web.Request) -> web.StreamResponse:
        may_control = self._access.may_control(request)
        if self._live is None:
            return _json(NONE | {"may_control": False})
        document = await self._document(self._live.id)
        return _json(self._live.status(document) | {"may_control": may_control})

    async def _invitation(self, request: web.Request) -> web.StreamResponse:
        self._access.check_control(request)
        live = self._live
        if live is None or live.over or live.invitation is None:
            raise problem(web.HTTPNotFound, "nobody joins from elsewhere here")
        return _json(live.invitation)

    async def _steer(self, request: web.Request) -> web.StreamResponse:
        self._access.check_control(request)
        command = await control.command_of(request)
        document = await self._document(self._live.id) if self._live else None
        control.steer(command, self._live, document)
        return _json({"ok": True})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self._access.check_watch(request)
        if self._live is None:
            raise problem(web.HTTPNotFound, "no run is under way here")
        document = await self._document(self._live.id)
        server = self._live.server
        body = metrics.text(
            document, self._live.status(document), server.metrics if server else None
        )
        return web.Response(
            body=body.encode(), headers={"Content-Type": metrics.CONTENT_TYPE}
        )

    async def _document(self, id: str) -> Document:
        try:
            return await asyncio.to_thread(self._library.document, id)
        except MelismaError as error:
            raise problem(web.HTTPNotFound, str(error)) from None

    def _is_live(self, document: Document) -> bool:
        live = self._live
        return live is not None and live.folder.resolve() == document.folder

    def _state(self, document: Document) -> str | None:
        """Return the state of a live run; None if the folder alone decides."""
        is_live = self._live and self._is_live(document)
        return self._live.state(document) if self._live and is_live else None


def _body(document: Document, state: str | None, squeeze: bool) -> bytes:
    """Encode a document; gzip at its fastest level shrinks it to a seventh."""
    body = msgspec.json.encode(document.since(0, state=state))
    return gzip.compress(body, compresslevel=1) if squeeze else body


async def _page(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(STATIC / "index.html")


async def _protect(request: web.Request, response: web.StreamResponse) -> None:
    """Set headers: browsers load only our own files, and store no data."""
    if request.path.startswith(("/rpc", "/call/", "/join")):
        return
    response.headers.update(HEADERS)
    is_data = request.path.startswith(("/api/", "/metrics"))
    response.headers["Cache-Control"] = "no-store" if is_data else "no-cache"


def _json(content: Any) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content), content_type="application/json"
    )


def _number(request: web.Request, name: str, usual: int) -> int:
    """Return a whole number of the query; an HTTP error if it is not one."""
    text = request.query.get(name, str(usual))
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise problem(web.HTTPBadRequest, f"{name}={text[:20]}: give a whole number")
    return int(text)
