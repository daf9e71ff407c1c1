"""``serve``: let others call functions of this process.

``serve`` returns at once, and a thread of this process does the work; ``aserve`` lives
on the caller's own event loop. Methods of what they return block too; inside a
coroutine they are awaited.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from melisma.errors import ConfigError, TransportError
from melisma.rpc import certificates
from melisma.rpc.address import DEFAULT_PORT, is_loopback, reachable
from melisma.rpc.hub import Hub
from melisma.rpc.limits import Limits
from melisma.rpc.listener import Listener, Routes
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Group, Peer
from melisma.rpc.service import Service
from melisma.rpc.threads import background_loop, run, settle
from melisma.rpc.tokens import EVERYTHING, Tokens
from melisma.rpc.transport import Transport, memory_transports

#: Where this user's certificate and tokens are kept.
HOME = Path.home() / ".melisma"


def say(text: str) -> None:
    """Tell the person at the terminal, apart from the program's own output."""
    print(text, file=sys.stderr, flush=True)


class Server:
    """Listens, answers, and calls whoever dialled in. Made by ``serve``."""

    def __init__(
        self,
        listener: Listener,
        hub: Hub,
        tokens: Tokens | None,
        fingerprint: str | None,
    ) -> None:
        self._listener, self._hub = listener, hub
        self._tokens = tokens
        self.fingerprint = fingerprint  #: of the certificate to pin, if there is one
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        """Return HOST:PORT."""
        return str(self._listener.address)

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._listener.address.port

    @property
    def url(self) -> str:
        """Return where a browser finds this server."""
        address = self._listener.address
        return replace(address, host=reachable(address.host)).url

    @property
    def metrics(self) -> Metrics:
        """Return what has been called, answered, sent and received so far."""
        return self._hub.metrics

    @property
    def silences_s(self) -> dict[str, float | None]:
        """Return how long ago each peer was heard; None if it is cut off for now."""
        return self._hub.silences_s

    @property
    def peers(self) -> Group:
        """Return who is there now: one by its name, all, or ``only`` some."""
        return self._hub.peers

    def wait_for(self, *names: str, timeout_s: float | None = None) -> Any:
        """Wait until peers of those names are connected, and return them."""
        waiting = self._hub.wait_for(set(names))
        return self._settle(_in_time(waiting, timeout_s, f"{', '.join(names)} to come"))

    def wait_until(self, count: int, timeout_s: float | None = None) -> Any:
        """Wait until that many peers are connected, and return all that are."""
        waiting = self._hub.wait_until(count)
        return self._settle(_in_time(waiting, timeout_s, f"{count} peers to come"))

    def invite(
        self, name: str | None = None, may_call: tuple[str, ...] = EVERYTHING
    ) -> str:
        """Make a token and return the join string with it: the only time it is seen.

        With a ``name``, whoever shows it has that name, and nobody else can take it.
        """
        if self._tokens is None:
            return self.address
        return replace(
            self._listener.address,
            host=reachable(self._listener.address.host),
            token=self._tokens.add(name, may_call),
            fingerprint=self.fingerprint,
        ).join_string()

    def expel(self, name: str, reason: str) -> None:
        """End the session with a peer; nobody of that name is let in by this server.

        Revoke its token to keep it out under another name, and of later servers.
        """
        self._loop.call_soon_threadsafe(self._hub.expel, name, reason)

    def wait(self) -> Any:
        """Serve until closed, or until Ctrl-C."""
        try:
            return self._settle(self._closed.wait())
        except KeyboardInterrupt:
            return self.close()

    def close(self) -> Any:
        """Send everybody away and free the port."""
        return self._settle(self._close())

    async def _close(self) -> None:
        await self._listener.close()
        self._closed.set()

    def _settle(self, work: Coroutine[Any, Any, Any]) -> Any:
        return settle(work, self._loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._close(), self._loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _dial(self) -> Transport:
        near, far = memory_transports()
        self._accepting = asyncio.ensure_future(self._hub.accept(far))
        return near


async def aserve(
    *targets: object,
    host: str = "127.0.0.1",
    port: int | None = DEFAULT_PORT,
    secure: bool | None = None,
    folder: Path | str = HOME,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    client_ca: Path | str | None = None,
    limits: Limits | None = None,
    threads: int = 32,
    joined: Callable[[Peer], None] | None = None,
    left: Callable[[Peer], None] | None = None,
    routes: Routes = lambda app, identify: None,
    say: Callable[[str], None] = say,
) -> Server:
    """Serve on this coroutine's event loop; see ``serve``."""
    secure = not is_loopback(host) if secure is None else secure
    hub = Hub(
        Service(targets),
        limits=limits or Limits(),
        threads=threads,
        joined=joined,
        left=left,
    )
    if not secure:
        server = Server(Listener(hub, None, None, routes), hub, None, None)
    else:
        server = _secured(hub, Path(folder), certificate, key, client_ca, routes)
    if port is not None:
        await server._listener.listen(host, port)
        _announce(server, say)
    return server


def _secured(
    hub: Hub,
    folder: Path,
    certificate: Path | str | None,
    key: Path | str | None,
    client_ca: Path | str | None,
    routes: Routes,
) -> Server:
    own = certificate is not None
    if own and key is None:
        raise ConfigError("a certificate needs its key: serve(certificate=…, key=…)")
    shown, secret = (
        (Path(str(certificate)), Path(str(key))) if own else certificates.ensure(folder)
    )
    tls = certificates.server_context(
        shown, secret, Path(client_ca) if client_ca else None
    )
    tokens = Tokens(folder / "tokens.json")
    # One's own certificate is checked against its authority; ours is pinned.
    pin = None if own else certificates.fingerprint_of(shown)
    return Server(Listener(hub, tokens, tls, routes), hub, tokens, pin)


def _announce(server: Server, say: Callable[[str], None]) -> None:
    tokens = server._tokens
    if tokens is None:
        say(
            f"listening on {server.address}, for this machine only; host='0.0.0.0'"
            " opens it to others, with TLS and a token"
        )
    elif tokens.list():
        say(f"listening on {server.address} with TLS; earlier join strings work")
    else:
        say(
            f"listening on {server.address} with TLS; to join, and only shown now:\n"
            f"  {server.invite()}"
        )


def serve(*targets: object, **options: Any) -> Server:
    """Let others call functions of this process, and return at once.

    Args:
        *targets: functions, or objects with methods, marked by ``expose``; without
            any, every function marked in this process.
        **options: as follows.
            host: where to listen. Addresses other than loopback get TLS and a token.
            port: 0 for any that is free; None for no socket at all, for ``connect``
                with the server itself in place of an address.
            secure: True for TLS and a token on loopback too.
            folder: where certificate and tokens are kept and, the first time, made.
            certificate, key: your own, in PEM files. client_ca: peers must show a
                certificate from this authority.
            limits: how much is borne from a peer. threads: for plain functions.
            joined, left: called with each Peer that comes or is gone for good.
            routes: called with the port's aiohttp application, to which it may add
                routes, and a function that says who sends a request.
            say: where to tell the address and, the first time, the join string.
    """
    return run(aserve(*targets, **options), background_loop(), "await aserve(…)")


async def _in_time(
    work: Coroutine[Any, Any, Any], timeout_s: float | None, what: str
) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise TransportError(f"waited {timeout_s:g} s for {what}") from None
