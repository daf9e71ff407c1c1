"""The client side of a session: connect, handshake, reconnect with backoff."""

import asyncio
import logging
import random
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from melisma.errors import (
    AccessError,
    ConfigError,
    RpcError,
    TransportError,
    UnverifiedError,
)
from melisma.rpc import certificates, frames
from melisma.rpc.address import Address
from melisma.rpc.hub import HANDSHAKE_S, check_protocol
from melisma.rpc.metrics import Metrics
from melisma.rpc.session import Session
from melisma.rpc.transport import Closed, Transport
from melisma.rpc.values import Malformed
from melisma.rpc.websocket import CLOSE_S, ClientSocket, WebSocket

log = logging.getLogger("melisma.rpc")

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 15.0
#: Pause between tries from which on an outage is told: after some three seconds. Who
#: ends a run takes its learners along, and they have nothing to say to that.
TOLD_FROM_S = 1.6
#: While somebody else answers in the server's place.
LONGEST_UNVERIFIED_S = 300.0
CONNECT_S = 10.0

Dial = Callable[[], Awaitable[Transport]]


class Foreign(TransportError):
    """Something else than a melisma server answers at its address."""


class Dialer:
    """Keeps a session connected until it is closed or the server itself refuses it.

    Once it was let in, whatever else answers at the address is an outage: it dials on,
    more slowly. Else one moment of a captive portal would end all devices behind it.
    """

    def __init__(self, session: Session, name: str, dial: Dial) -> None:
        self._session, self._name, self._dial = session, name, dial
        self._resumes = False
        self._task: asyncio.Task[None] | None = None

    async def start(self, patience_s: float) -> None:
        """Connect, with retries for up to ``patience_s``; then reconnect as needed."""
        loop = asyncio.get_running_loop()
        until, backoff_s = loop.time() + patience_s, FIRST_BACKOFF_S
        while True:
            try:
                transport = await self._connect()
                break
            except TransportError:
                if loop.time() + backoff_s > until:
                    raise
                await asyncio.sleep(backoff_s)
                backoff_s = _next_backoff(backoff_s, LONGEST_BACKOFF_S)
        self._task = loop.create_task(self._keep_connected(transport))

    async def wait(self) -> None:
        """Wait until closed; AccessError if the server refuses permanently."""
        assert self._task is not None
        await asyncio.shield(self._task)

    async def close(self) -> None:
        """End the session and stop reconnecting."""
        self._session.end("the connection was closed on this side")
        await self._session.wait_closed()  # the Bye goes out first
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError, RpcError):
                await self._task

    async def _keep_connected(self, transport: Transport | None) -> None:
        backoff_s, failure = FIRST_BACKOFF_S, ""
        while True:
            longest_s = LONGEST_BACKOFF_S
            try:
                transport = transport or await self._connect()
                if failure:
                    log.warning("connected to %s again", self._session.name)
                backoff_s, failure = FIRST_BACKOFF_S, ""
                await self._session.run(transport)
                self._resumes = self._session.ended is None
                if self._resumes:
                    log.warning("lost the connection to %s", self._session.name)
            except (UnverifiedError, Foreign, ConfigError) as error:
                longest_s = LONGEST_UNVERIFIED_S
                failure = _logged(f"dialling on, more slowly: {error}", failure)
            except AccessError as error:
                self._session.end(error)
                raise
            except TransportError as error:
                if backoff_s >= TOLD_FROM_S:
                    failure = _logged(f"dialling on: {error}", failure)
            transport = None
            await asyncio.sleep(min(backoff_s, longest_s) * random.uniform(0.5, 1.0))
            backoff_s = _next_backoff(backoff_s, longest_s)

    async def _connect(self) -> Transport:
        """Connect and shake hands once; AccessError or TransportError if it fails.

        ConfigError if the server speaks another version of the protocol.
        """
        transport = await self._dial()
        session, resumes = self._session, self._resumes and not self._session.ended
        try:
            await transport.send(session.hello(self._name, resumes))
            async with asyncio.timeout(HANDSHAKE_S):
                reply = frames.decode(await transport.receive())
            if type(reply) is frames.Refused:
                kind = AccessError if reply.permanent else TransportError
                raise kind(f"{session.name} refused: {frames.printable(reply.reason)}")
            if type(reply) is not frames.Hello:
                raise Malformed("the first frame is not Hello")
            check_protocol(reply)
            if not resumes or reply.session != session.link.key:
                session.restart(reply.session)
            session.resume(reply)
        except (Closed, Malformed, TimeoutError) as error:
            await transport.close()
            kind = Foreign if isinstance(error, Malformed) else TransportError
            raise kind(
                f"the handshake with {session.name} failed:"
                f" {error or 'no reply in time'}"
            ) from error
        except (RpcError, ConfigError):
            await transport.close()
            raise
        session.metrics.reconnections += self._resumes
        self._resumes = True
        return transport


def _logged(failure: str, previous: str) -> str:
    """Log why there is no connection, unless that was the reason before."""
    if failure != previous:
        log.warning("%s", failure)
    return failure


def _next_backoff(backoff_s: float, longest_s: float) -> float:
    return min(longest_s, 2.0 * backoff_s)


def default_name() -> str:
    """Return a unique name for a peer that chose none."""
    return f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"


class Pin(aiohttp.Fingerprint):
    """The fingerprint of the only trusted certificate; expired ones are refused too."""

    def check(self, transport: asyncio.Transport) -> None:
        """Raise before data is sent unless the certificate matches and is valid."""
        super().check(transport)
        der = transport.get_extra_info("ssl_object").getpeercert(True)
        if until := certificates.expired(der):
            transport.abort()
            raise UnverifiedError(
                f"the server's certificate expired on {until:%Y-%m-%d}: it needs a new"
                " one, and this device a new join string"
            )


class WebSocketDial:
    """Opens WebSockets to a server; the token is sent after the certificate matched."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext, metrics: Metrics, silence_s: float
    ) -> None:
        self._address, self._tls = address, tls
        self._metrics, self._silence_s = metrics, silence_s
        pin = address.fingerprint
        stays = aiohttp.TraceConfig()
        stays.on_request_redirect.append(_refuse_redirect)
        self._http = aiohttp.ClientSession(
            trace_configs=[stays],
            ws_response_class=ClientSocket,
            connector=aiohttp.TCPConnector(
                force_close=True,
                ssl=Pin(bytes.fromhex(pin)) if pin else True,
            ),
        )

    async def __call__(self) -> Transport:
        """Open a WebSocket; AccessError or TransportError if that fails."""
        address = self._address
        token = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        refused: RpcError | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                websocket = await self._http.ws_connect(
                    f"{address.url}/rpc",
                    headers=token,
                    ssl=self._tls if address.tls else True,
                    compress=0,
                    max_msg_size=frames.FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        except aiohttp.WSServerHandshakeError as error:
            refused = _refusal(address, error)
        except aiohttp.ServerFingerprintMismatch:
            raise UnverifiedError(
                f"{address} has another certificate than the join string pins: it has a"
                " new one, or somebody intercepts the connection"
            ) from None
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError) as error:
            raise UnverifiedError(
                f"the TLS handshake with {address} failed: {error}"
            ) from None
        except aiohttp.ClientResponseError:
            raise Foreign(
                f"{address} does not answer in HTTP: not a melisma server"
            ) from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise TransportError(
                f"nobody answers at {address} ({error or 'no answer in time'}): is the"
                " server running, and is this its address?"
            ) from None
        if refused:  # raised out here: the error above holds the token
            raise refused
        return WebSocket(websocket, self._metrics, self._silence_s)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._http.close()


async def _refuse_redirect(session: object, context: object, params: Any) -> None:
    """Follow nobody to another server."""
    params.response.close()
    raise Foreign(f"{params.url} answers with a redirect: not a melisma server")


def _refusal(address: Address, error: aiohttp.WSServerHandshakeError) -> RpcError:
    match error.status:
        case 401 | 403:
            # Without TLS anybody may have said so.
            kind = AccessError if address.tls else UnverifiedError
            return kind(
                f"{address} does not accept this token: ask for a new join string"
            )
        case 503:
            return TransportError(f"{address} accepts no more connections")
        case status if status >= 500:  # an error of the server, or of a proxy of its
            return TransportError(f"{address} answers {status}: not a melisma server")
        case 400 | 426:  # of a server that was asked for a page
            return Foreign(
                f"{address} answers {error.status}: not a melisma server, or behind a "
                "proxy that passes no WebSockets on"
            )
        case status:
            return Foreign(f"{address} answers {status}: not a melisma server")
