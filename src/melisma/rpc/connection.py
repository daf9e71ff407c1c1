"""``connect``: a connection to a server, to call its functions and be called back.

``connect`` blocks, and its I/O runs on a background thread; ``aconnect`` runs on the
caller's own event loop. Methods of a Connection block too; where an event loop runs,
they return an awaitable.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from melisma.errors import ConfigError
from melisma.rpc import certificates
from melisma.rpc.address import Address, is_loopback
from melisma.rpc.dialer import Dialer, WebSocketDial, default_name
from melisma.rpc.limits import Limits
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Peer
from melisma.rpc.server import Server
from melisma.rpc.service import Service
from melisma.rpc.session import Session
from melisma.rpc.threads import ThreadPool, background_loop, block_or_await, run
from melisma.rpc.tokens import check_name


class Connection(Peer):
    """A server as a peer, reconnected until closed. Made by ``connect``."""

    def __init__(
        self,
        session: Session,
        dialer: Dialer,
        close: Callable[[], Any],
        threads: ThreadPool,
    ) -> None:
        super().__init__(session.caller)
        self._session, self._threads = session, threads
        self._dialer, self._close_network = dialer, close
        session.peer = self

    @property
    def metrics(self) -> Metrics:
        """Return counts of calls, answers and bytes so far."""
        return self._session.metrics

    def wait(self) -> Any:
        """Answer calls until closed or Ctrl-C; AccessError if the server refuses."""
        try:
            return block_or_await(self._dialer.wait(), self._session.loop)
        except KeyboardInterrupt:
            return self.close()

    def close(self) -> Any:
        """End the session and stop reconnecting."""
        return block_or_await(self._close(), self._session.loop)

    async def _close(self) -> None:
        await self._dialer.close()
        await self._close_network()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._close(), self._session.loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def aconnect(
    address: str | Server,
    *targets: object,
    name: str | None = None,
    token: str | None = None,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    may_call: Callable[[str], bool] = lambda _: True,
    patience_s: float = 0.0,
    limits: Limits | None = None,
    threads: int = 32,
) -> Connection:
    """Connect on the running event loop; see ``connect``."""
    limits, metrics = limits or Limits(), Metrics()
    name, pool = check_name(name or default_name()), ThreadPool(threads)
    session = Session(
        "server" if isinstance(address, Server) else str(Address.of(address)),
        Service(targets),
        limits=limits,
        metrics=metrics,
        may_call=may_call,
        executor=pool,
    )
    if isinstance(address, Server):
        dialer = Dialer(session, name, address._dial)
        connection = Connection(session, dialer, _nothing, pool)
    else:
        target = Address.of(address)
        target = replace(target, token=token or target.token)
        _check_private(target)
        tls = certificates.client_context(
            ca=Path(ca) if ca else None,
            pinned=target.fingerprint is not None or not target.tls,
            certificate=Path(certificate) if certificate else None,
            key=Path(key) if key else None,
        )
        dial = WebSocketDial(target, tls, metrics, limits.silence_s)
        dialer = Dialer(session, name, dial)
        connection = Connection(session, dialer, dial.close, pool)
    try:
        await dialer.start(patience_s)
    except BaseException:
        await connection._close()
        raise
    return connection


def connect(address: str | Server, *targets: object, **options: Any) -> Connection:
    """Connect to a server, and return it as a peer whose functions can be called.

    A lost connection is dialled again until ``close``, and pending calls continue. The
    server can call the functions that this process exposes.

    Args:
        address: HOST:PORT, or the join string that the server printed.
        *targets: what the server may call here; as for ``serve``.
        **options: as follows.
            name: the name of this peer on the server; random if not given.
            token: overrides the one in the join string.
            ca: the authority that signed the server's certificate, as a PEM file.
            certificate, key: this client's own, for mutual TLS.
            may_call: returns whether the server may call a function of that name.
            patience_s: for how long to retry the first connection.
            limits: on memory, calls and silence of the server.
            threads: at most, for plain functions.
    """
    loop = address._loop if isinstance(address, Server) else background_loop()
    return run(aconnect(address, *targets, **options), loop, "await aconnect(…)")


def _check_private(address: Address) -> None:
    if not address.tls and not is_loopback(address.host):
        raise ConfigError(
            f"{address} is not on this machine, and a connection without TLS could be"
            " read and changed on the way: use the join string that the server printed,"
            " which starts with melisma://"
        )


async def _nothing() -> None:
    """Do nothing: a transport in memory has no network to close."""
