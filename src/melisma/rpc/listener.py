"""One port: peers come in over a WebSocket, everybody else calls with POST and JSON.

    GET  /rpc                 upgraded to a WebSocket: frames, both ways
    POST /call/FUNCTION       {"args": [...], "kwargs": {...}}, or nothing
                              200 {"result": ...}; a generator answers line by line

Both take ``Authorization: Bearer TOKEN``. Pages of other origins get nothing, whatever
the browser that shows them can reach. ``routes`` adds others to the port.
"""

import hmac
import ssl
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from melisma.errors import AccessError, ConfigError
from melisma.rpc import frames
from melisma.rpc.address import Address, is_loopback
from melisma.rpc.http import JSON_BYTES, answer, problem
from melisma.rpc.hub import Hub
from melisma.rpc.tokens import ANYBODY, Identity, Tokens
from melisma.rpc.websocket import CLOSE_S, WebSocket

#: A connection that asks for nothing for this long is closed.
IDLE_S = 20.0

NOBODY_ELSE: Mapping[str, Identity] = {}


class Identify(Protocol):
    """Says who sends a request; an HTTP error if nobody may, or from another page."""

    def __call__(
        self, request: web.Request, also: Mapping[str, Identity] = NOBODY_ELSE
    ) -> Identity:
        """Return who shows which token; ``also`` are secrets that are in no file."""


#: Adds routes to the port.
Routes = Callable[[web.Application, Identify], None]


class Listener:
    """A hub on a port."""

    def __init__(
        self,
        hub: Hub,
        tokens: Tokens | None,
        tls: ssl.SSLContext | None,
        routes: Routes = lambda app, identify: None,
    ) -> None:
        self.hub = hub
        self.address: Address
        self._tokens, self._tls, self._routes = tokens, tls, routes
        self._posts = 0
        if tokens:
            hub.reserved = tokens.reserves
        self._runner: web.AppRunner | None = None

    async def listen(self, host: str, port: int) -> None:
        """Listen; a port of 0 is any free one. ConfigError if it cannot be had."""
        if not (self._tls and self._tokens) and not is_loopback(host):
            raise ConfigError(
                f"{host} can be reached from elsewhere: that needs TLS and a token"
            )
        app = web.Application(client_max_size=JSON_BYTES)
        app.on_response_prepare.append(_sign)
        app.router.add_get("/rpc", self._accept)
        app.router.add_post("/call/{function}", self._call)
        self._routes(app, self._identify)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_S,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
        bound = self._runner.addresses[0][1]
        self.address = Address(host=host, port=bound, tls=self._tls is not None)

    async def close(self) -> None:
        """Send everybody away and free the port."""
        await self.hub.close()
        if self._runner:
            await self._runner.cleanup()

    def _identify(
        self, request: web.Request, also: Mapping[str, Identity] = NOBODY_ELSE
    ) -> Identity:
        """Return who asks; an HTTP error if nobody may."""
        try:
            self._check_origin(request)
        except ValueError:
            raise problem(web.HTTPForbidden, "no host or origin") from None
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        shown = token.strip().encode("utf-8", "replace")
        for secret, identity in also.items():
            if kind == "Bearer" and hmac.compare_digest(shown, secret.encode()):
                return identity
        if self._tokens is None:
            return ANYBODY
        try:
            if kind != "Bearer":
                raise AccessError("a token is needed: Authorization: Bearer TOKEN")
            return self._tokens.identify(token.strip())
        except AccessError as error:
            raise problem(web.HTTPUnauthorized, str(error)) from None

    def _check_origin(self, request: web.Request) -> None:
        """Refuse what a page of another origin made a browser send."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise problem(web.HTTPForbidden, "pages of other origins may not call")
        name = urlsplit(f"//{request.host}").hostname or ""
        if self._tokens is None and not is_loopback(name):
            raise problem(web.HTTPForbidden, f"'{name}' is not this machine's own name")

    async def _call(self, request: web.Request) -> web.StreamResponse:
        identity, limit = self._identify(request), self.hub.limits.calls
        if self._posts >= limit:
            raise problem(
                web.HTTPServiceUnavailable, f"{limit} calls are under way already"
            )
        self._posts += 1
        try:
            return await answer(request, self.hub, identity)
        finally:
            self._posts -= 1

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        identity = self._identify(request)
        limits = self.hub.limits
        if self.hub.connections >= limits.connections:
            raise problem(
                web.HTTPServiceUnavailable,
                f"{limits.connections} peers are connected, and more are not let in",
            )
        end = web.WebSocketResponse(
            timeout=CLOSE_S, compress=False, max_msg_size=frames.FRAME_BYTES
        )
        await end.prepare(request)
        transport = WebSocket(end, self.hub.metrics, limits.silence_s)
        await self.hub.accept(transport, identity)
        return end


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Name the server without its versions."""
    response.headers["Server"] = "melisma"
