"""The client side of a session: connect, handshake, reconnect with backoff."""

import asyncio
import logging
import random
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp

from melisma.errors import AccessError, RpcError, TransportError
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
CONNECT_S = 10.0

Dial = Callable[[], Awaitable[Transport]]


class Dialer:
    """Keeps a session connected until it is closed or permanently refused."""

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
                backoff_s = _next_backoff(backoff_s)
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
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                transport = transport or await self._connect()
                backoff_s = FIRST_BACKOFF_S
                await self._session.run(transport)
                self._resumes = self._session.ended is None
                if self._resumes:
                    log.warning("lost the connection to %s", self._session.name)
            except AccessError as error:
                self._session.end(error)
                raise
            except TransportError as error:
                log.info("reconnecting: %s", error)
            transport = None
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = _next_backoff(backoff_s)

    async def _connect(self) -> Transport:
        """Connect and shake hands once; AccessError or TransportError if it fails."""
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
            raise TransportError(
                f"the handshake with {session.name} failed:"
                f" {error or 'no reply in time'}"
            ) from error
        except RpcError:
            await transport.close()
            raise
        session.metrics.reconnections += self._resumes
        self._resumes = True
        return transport


def _next_backoff(backoff_s: float) -> float:
    return min(LONGEST_BACKOFF_S, 2.0 * backoff_s)


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
            raise AccessError(
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
        self._http = aiohttp.ClientSession(
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
            raise AccessError(
                f"{address} has another certificate than the join string pins: it has a"
                " new one, or somebody intercepts the connection"
            ) from None
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError) as error:
            raise AccessError(
                f"the TLS handshake with {address} failed: {error}"
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


def _refusal(address: Address, error: aiohttp.WSServerHandshakeError) -> RpcError:
    match error.status:
        case 401 | 403:
            return AccessError(
                f"{address} does not accept this token: ask for a new join string"
            )
        case 503:
            return TransportError(f"{address} accepts no more connections")
        case status:
            return TransportError(f"{address} answers {status}: not a melisma server")
