"""``serve``: a server whose functions others call, and which calls them back.

``serve`` returns at once, and its I/O runs on a background thread; ``aserve`` runs on
the caller's own event loop. Methods of a Server that wait block; where an event loop
runs, they return an awaitable.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from melisma.errors import ConfigError, TransportError
from melisma.rpc import certificates
from melisma.rpc.address import DEFAULT_PORT, Address, is_loopback, reachable
from melisma.rpc.hub import Hub
from melisma.rpc.limits import Limits
from melisma.rpc.listener import Listener, Routes
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Group, Peer
from melisma.rpc.service import Service
from melisma.rpc.threads import background_loop, block_or_await, run
from melisma.rpc.tokens import EVERYTHING, Tokens
from melisma.rpc.transport import Transport, memory_transports

#: Default folder of the certificate and the tokens.
HOME = Path.home() / ".melisma"


def say(text: str) -> None:
    """Print to stderr, apart from the program's output."""
    print(text, file=sys.stderr, flush=True)


class Server:
    """Answers calls, and calls the peers that connected. Made by ``serve``."""

    def __init__(
        self,
        listener: Listener,
        hub: Hub,
        tokens: Tokens | None,
        fingerprint: str | None,
    ) -> None:
        self._listener, self._hub = listener, hub
        self._tokens = tokens
        self.fingerprint = fingerprint  #: of the certificate that clients pin, if any
        #: Certificate of the authority of one's own that signed the server's, if any.
        self.authority: Path | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        """Return HOST:PORT."""
        return str(self._listener.address)

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return self._listener.address.port

    @property
    def url(self) -> str:
        """Return the URL for browsers."""
        address = self._listener.address
        return replace(address, host=reachable(address.host)).url

    @property
    def metrics(self) -> Metrics:
        """Return counts of calls, answers and bytes so far."""
        return self._hub.metrics

    @property
    def silences_s(self) -> dict[str, float | None]:
        """Return seconds since each peer's last message; None if not connected."""
        return self._hub.silences_s

    @property
    def peers(self) -> Group:
        """Return the peers that are connected or within the grace period."""
        return self._hub.peers

    def wait_for(self, *names: str, timeout_s: float | None = None) -> Any:
        """Wait until peers of these names are connected, and return them."""
        what = f"{', '.join(names)} to connect"
        return self._run(_with_timeout(self._hub.wait_for(set(names)), timeout_s, what))

    def wait_until(self, count: int, timeout_s: float | None = None) -> Any:
        """Wait until ``count`` peers are connected, and return all peers."""
        what = f"{count} peers to connect"
        return self._run(_with_timeout(self._hub.wait_until(count), timeout_s, what))

    def invite(
        self,
        name: str | None = None,
        may_call: tuple[str, ...] = EVERYTHING,
        lifetime_s: float | None = None,
    ) -> str:
        """Create a token and return the join string, the only place that shows it.

        With a ``name``, the token is bound to it: no peer has that name without it. It
        expires after ``lifetime_s``.
        """
        if self._tokens is None:
            return self.address
        return self._join_string(self._tokens.add(name, may_call, lifetime_s))

    def join_string(self, proxy: str = "") -> str:
        """Return the join string that any peer may use, the same at every start.

        It has another token only after its token was revoked. By the https:// URL of a
        ``proxy`` that ends TLS, its certificate is checked against authorities.
        """
        if self._tokens is None:
            return self.address
        if proxy:
            return Address.behind(proxy, self._tokens.shared()).join_string()
        return self._join_string(self._tokens.shared())

    @property
    def loose_token(self) -> str | None:
        """Return the token that the join string lacks since there is no TLS, if any."""
        if self._tokens is None or self._listener.address.tls:
            return None
        return self._tokens.shared()

    def shared_token(
        self, file: str, may_call: tuple[str, ...], lifetime_s: float
    ) -> str | None:
        """Return a token for any peer, kept in ``file`` beside the others.

        None without tokens. It is the same at every start until it is revoked or has
        expired, and may do this for ``lifetime_s`` from now on.
        """
        if self._tokens is None:
            return None
        return self._tokens.shared(file, may_call, lifetime_s)

    def _join_string(self, token: str) -> str:
        return replace(
            self._listener.address,
            host=reachable(self._listener.address.host),
            token=token,
            fingerprint=self.fingerprint,
        ).join_string()

    def expel(self, name: str, reason: str) -> None:
        """End the session with a peer, and refuse it that name on this server.

        Another token may still use the name, so that nobody is expelled by proxy; an
        expelled peer may still use other names, unless its token is bound to one.
        Revoke its token to refuse it under other names and on later servers too.
        """
        self._loop.call_soon_threadsafe(self._hub.expel, name, reason)

    def wait(self) -> Any:
        """Serve until closed, or until Ctrl-C."""
        try:
            return self._run(self._closed.wait())
        except KeyboardInterrupt:
            return self.close()

    def close(self) -> Any:
        """End all sessions and free the port."""
        return self._run(self._close())

    async def _close(self) -> None:
        await self._listener.close()
        self._closed.set()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return block_or_await(work, self._loop)

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
    plain: bool = False,
    local_ca: bool = False,
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
    """Serve on the running event loop; see ``serve``."""
    secure = (plain or local_ca or not is_loopback(host)) if secure is None else secure
    hub = Hub(
        Service(targets),
        limits=limits or Limits(),
        threads=threads,
        joined=joined,
        left=left,
    )
    if (plain or local_ca) and (certificate or client_ca or plain == local_ca):
        raise ConfigError(
            "plain, local_ca or a certificate of one's own: choose one of them"
        )
    if not secure:
        server = Server(Listener(hub, None, None, routes), hub, None, None)
    elif plain:
        tokens = Tokens(Path(folder) / "tokens.json")
        listener = Listener(hub, tokens, None, routes, plain=True)
        server = Server(listener, hub, tokens, None)
    else:
        if local_ca:
            local = certificates.ensure_signed(Path(folder), reachable(host))
            certificate, key = local
        server = _secured(hub, Path(folder), certificate, key, client_ca, routes)
        if local_ca:
            server.fingerprint = certificates.fingerprint_of(local[0])
            server.authority = certificates.authority(Path(folder))
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
    given = certificate is not None
    if given and key is None:
        raise ConfigError("a certificate needs its key: serve(certificate=…, key=…)")
    certificate_file, key_file = (
        (Path(str(certificate)), Path(str(key)))
        if given
        else certificates.ensure(folder)
    )
    tls = certificates.server_context(
        certificate_file, key_file, Path(client_ca) if client_ca else None
    )
    tokens = Tokens(folder / "tokens.json")
    # Clients check a certificate given here against its authority, and pin ours.
    pin = None if given else certificates.fingerprint_of(certificate_file)
    return Server(Listener(hub, tokens, tls, routes), hub, tokens, pin)


def _announce(server: Server, say: Callable[[str], None]) -> None:
    tokens = server._tokens
    if tokens is None:
        say(
            f"listening on {server.address}, for this machine only; host='0.0.0.0'"
            " opens it to others, with TLS and a token"
        )
    elif server._listener.address.tls is False:
        say(
            f"listening on {server.address} WITHOUT TLS: anybody on the way can read it"
        )
    elif tokens.list():
        say(f"listening on {server.address} with TLS; earlier join strings are valid")
    else:
        say(
            f"listening on {server.address} with TLS; join string, shown only now:\n"
            f"  {server.join_string()}"
        )


def serve(*targets: object, **options: Any) -> Server:
    """Serve functions of this process to peers, and return at once.

    Args:
        *targets: functions, or objects with methods, marked by ``expose``; without
            any, every function marked in this process.
        **options: as follows.
            host: the address to listen on; all but loopback require TLS and a token.
            port: 0 for any free one; None for no socket: ``connect(server)``.
            secure: True for TLS and a token on loopback too.
            plain: a token, but no TLS: what travels can be read on its way.
            local_ca: TLS by a certificate that an authority in ``folder`` signs, which
                phones can install; for private addresses.
            folder: of the certificate and the tokens, created on the first start.
            certificate, key: PEM files to use in place of a self-signed certificate.
            client_ca: the authority of the peers' certificates, for mutual TLS.
            limits: on memory, calls and silence of a peer.
            threads: at most, for plain functions.
            joined, left: called with each Peer whose session begins or ends.
            routes: called with the port's aiohttp application, to add routes, and a
                function that authenticates requests.
            say: prints the address and, the first time, the join string.
    """
    return run(aserve(*targets, **options), background_loop(), "await aserve(…)")


async def _with_timeout(
    work: Coroutine[Any, Any, Any], timeout_s: float | None, what: str
) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError:
        raise TransportError(f"waited {timeout_s:g} s for {what}") from None
