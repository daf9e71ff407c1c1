"""The HTTP server: one port for the WebSockets of peers, JSON calls and other routes.

    GET  /rpc                 WebSocket with the frames of a session
    POST /call/FUNCTION       {"args": [...], "kwargs": {...}}, both optional
                              200 {"result": ...}; a generator: one object per line
    GET, POST /link           bytes that measure the link

All require ``Authorization: Bearer TOKEN`` if the server has tokens. A browser, which
cannot set that header of a WebSocket, offers the subprotocols ``melisma`` and
``melisma.token.TOKEN``. Requests that web pages of other origins make are refused, on
loopback too.
"""

import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from melisma.errors import AccessError, ConfigError
from melisma.rpc import frames
from melisma.rpc.address import Address, is_loopback
from melisma.rpc.http import JSON_BYTES, answer, problem
from melisma.rpc.hub import Hub
from melisma.rpc.probing import Probing
from melisma.rpc.tokens import ANONYMOUS, Identity, Tokens
from melisma.rpc.websocket import CLOSE_S, WebSocket

#: A connection without a request for this long is closed.
IDLE_S = 20.0

#: The subprotocol of browsers, and what their token follows in another one.
SUBPROTOCOL, TOKEN_IN = "melisma", "melisma.token."

#: Of aiohttp's own errors.
log = logging.getLogger("melisma.rpc.http")

NO_SECRETS: Mapping[str, Identity] = {}


class Identify(Protocol):
    """Authenticates a request; HTTP error for a wrong token or another origin."""

    def __call__(
        self, request: web.Request, also: Mapping[str, Identity] = NO_SECRETS
    ) -> Identity:
        """Return the identity of the token; ``also`` are tokens that are in no file."""


#: Answers a request of who was identified.
Work = Callable[[Identity], Awaitable[web.StreamResponse]]

#: Adds routes to the application.
Routes = Callable[[web.Application, Identify], None]


class Listener:
    """Listens on a port, authenticates requests, and hands them to a hub."""

    def __init__(
        self,
        hub: Hub,
        tokens: Tokens | None,
        tls: ssl.SSLContext | None,
        routes: Routes = lambda app, identify: None,
        *,
        plain: bool = False,
    ) -> None:
        self.hub = hub
        self._plain = plain  # without TLS wherever it listens: its owner asked for that
        self.address: Address
        self._tokens, self._tls, self._routes = tokens, tls, routes
        self._http_calls, self._probing = 0, Probing()
        if tokens:
            hub.reserved = tokens.reserves
        self._runner: web.AppRunner | None = None

    async def listen(self, host: str, port: int) -> None:
        """Bind the port, any free one if 0; ConfigError if that fails."""
        safe = self._tokens and (self._tls or self._plain)
        if not safe and not is_loopback(host):
            raise ConfigError(
                f"'{host}' is reachable from other machines, which requires TLS and a"
                " token: leave out secure=False, or listen on 127.0.0.1"
            )
        app = web.Application(client_max_size=JSON_BYTES)
        app.on_response_prepare.append(_sign)
        app.router.add_get("/rpc", self._accept)
        app.router.add_post("/call/{function}", self._call)
        app.router.add_get("/link", self._link)
        app.router.add_post("/link", self._link)
        self._routes(app, self._identify)
        self._runner = web.AppRunner(
            app,
            logger=log,
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
        """End all sessions and free the port."""
        await self.hub.close()
        if self._runner:
            await self._runner.cleanup()

    def _identify(
        self, request: web.Request, also: Mapping[str, Identity] = NO_SECRETS
    ) -> Identity:
        """Return the identity of a request; see Identify."""
        try:
            self._check_origin(request)
        except ValueError:
            raise problem(
                web.HTTPForbidden, "the Host or Origin header is not valid"
            ) from None
        token = _token_of(request)
        presented = (token or "").encode("utf-8", "replace")
        for secret, identity in also.items():
            if token and hmac.compare_digest(presented, secret.encode()):
                return identity
        if self._tokens is None:
            return ANONYMOUS
        try:
            if token is None:
                raise AccessError("a token is needed: Authorization: Bearer TOKEN")
            return self._tokens.identify(token)
        except AccessError as error:
            raise problem(web.HTTPUnauthorized, str(error)) from None

    def _check_origin(self, request: web.Request) -> None:
        """Refuse requests of web pages of other origins, and DNS rebinding."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise problem(web.HTTPForbidden, "pages of other origins may not call")
        name = urlsplit(f"//{request.host}").hostname or ""
        if self._tokens is None and not is_loopback(name):
            raise problem(
                web.HTTPForbidden, f"'{name}' is not a name of this machine's loopback"
            )

    async def _call(self, request: web.Request) -> web.StreamResponse:
        return await self._limited(request, partial(answer, request, self.hub))

    async def _link(self, request: web.Request) -> web.StreamResponse:
        return await self._limited(
            request, lambda identity: self._probing.answer(request)
        )

    async def _limited(self, request: web.Request, work: Work) -> web.StreamResponse:
        """Do what a request asks for, if it may, and not too many at a time."""
        identity, limit = self._identify(request), self.hub.limits.calls
        if identity.name and self.hub.expulsion(identity.name, identity) is not None:
            raise problem(web.HTTPForbidden, f"'{identity.name}' was expelled")
        if self._http_calls >= limit:
            raise problem(
                web.HTTPServiceUnavailable, f"{limit} calls are running already"
            )
        self._http_calls += 1
        try:
            return await work(identity)
        finally:
            self._http_calls -= 1

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        offered = _subprotocols(request)
        if offered and SUBPROTOCOL not in offered:  # aiohttp would log them
            raise problem(web.HTTPBadRequest, f"offer the subprotocol {SUBPROTOCOL}")
        identity = self._identify(request)
        limits = self.hub.limits
        if self.hub.connections >= limits.connections:
            raise problem(
                web.HTTPServiceUnavailable,
                f"{limits.connections} peers are connected, and no more are accepted",
            )
        websocket = web.WebSocketResponse(
            timeout=CLOSE_S,
            compress=False,
            max_msg_size=frames.FRAME_BYTES,
            protocols=(SUBPROTOCOL,),
        )
        try:
            await websocket.prepare(request)
        except ConnectionError:  # it gave up while others were served
            return web.Response()  # aiohttp would fail to close the unprepared one
        except ValueError as error:  # of aiohttp, for a key that is not ASCII
            raise problem(
                web.HTTPBadRequest, f"the handshake is not valid: {error}"
            ) from None
        transport = WebSocket(websocket, self.hub.metrics, limits.silence_s)
        await self.hub.accept(transport, identity)
        return websocket


def _token_of(request: web.Request) -> str | None:
    """Return the token of a request, from its header or from its subprotocols."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind == "Bearer":
        return token.strip()
    tokens = [name for name in _subprotocols(request) if name.startswith(TOKEN_IN)]
    return tokens[0].removeprefix(TOKEN_IN) if tokens else None


def _subprotocols(request: web.Request) -> list[str]:
    offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", []))
    return [name.strip() for name in offered.split(",") if name.strip()]


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Say who answers, and hide the versions of Python and aiohttp.

    A proxy that puts its own name in the first header leaves the second one.
    """
    response.headers["Server"] = "melisma"
    if response.status == web.HTTPUnauthorized.status_code:
        response.headers["WWW-Authenticate"] = 'Bearer realm="melisma"'


def _without_traceback(record: logging.LogRecord) -> bool:
    """Make one line of a request that is not HTTP: anybody can send many of them."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = "refused a request: %s"
        record.args = (frames.printable(error.message).strip(),)
    return True


log.addFilter(_without_traceback)
