"""``connect``: call functions of a server, and be called back by it.

``connect`` does its work in a thread of this process; ``aconnect`` lives on the
caller's own event loop. Methods of what they return block too; inside a coroutine they
are awaited.
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
from melisma.rpc.threads import ThreadPool, background_loop, run, settle
from melisma.rpc.tokens import check_name


class Connection(Peer):
    """The peer that was dialled, and the line to it. Made by ``connect``."""

    def __init__(
        self, session: Session, dialer: Dialer, hang_up: Callable[[], Any]
    ) -> None:
        super().__init__(session.caller)
        self._session = session
        self._dialer, self._hang_up = dialer, hang_up
        session.peer = self

    @property
    def metrics(self) -> Metrics:
        """Return what has been called, answered, sent and received so far."""
        return self._session.metrics

    def wait(self) -> Any:
        """Answer calls until closed or Ctrl-C; AccessError if refused for good."""
        try:
            return settle(self._dialer.wait(), self._session.loop)
        except KeyboardInterrupt:
            return self.close()

    def close(self) -> Any:
        """Hang up, and dial no more."""
        return settle(self._close(), self._session.loop)

    async def _close(self) -> None:
        await self._dialer.close()
        await self._hang_up()

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
    """Connect on this coroutine's event loop; see ``connect``."""
    limits, metrics = limits or Limits(), Metrics()
    name = check_name(name or default_name())
    session = Session(
        "server" if isinstance(address, Server) else str(Address.of(address)),
        Service(targets),
        limits=limits,
        metrics=metrics,
        may_call=may_call,
        executor=ThreadPool(threads),
    )
    if isinstance(address, Server):
        dialer = Dialer(session, name, address._dial)
        connection = Connection(session, dialer, _nothing)
    else:
        there = Address.of(address)
        there = replace(there, token=token or there.token)
        _check_private(there)
        tls = certificates.client_context(
            ca=Path(ca) if ca else None,
            pinned=there.fingerprint is not None or not there.tls,
            certificate=Path(certificate) if certificate else None,
            key=Path(key) if key else None,
        )
        dial = WebSocketDial(there, tls, metrics, limits.silence_s)
        dialer = Dialer(session, name, dial)
        connection = Connection(session, dialer, dial.close)
    try:
        await dialer.start(patience_s)
    except BaseException:
        await connection._close()
        raise
    return connection


def connect(address: str | Server, *targets: object, **options: Any) -> Connection:
    """Dial a server, and return it as a peer whose functions are called like any.

    The line stays up until ``close``: after a break it is dialled again, and calls
    under way go on. What this process exposes can be called back over it.

    Args:
        address: HOST:PORT, or the join string that the server printed.
        *targets: what the server may call here; as for ``serve``.
        **options: as follows.
            name: what the server will call this peer; needed to be found by it.
            token: in place of the one in the join string.
            ca: the authority to check the server's certificate against.
            certificate, key: to show to a server that asks for them.
            may_call: says which exposed functions the server may call.
            patience_s: how long to go on trying the first time.
            limits: how much is borne from the server. threads: for plain functions.
    """
    loop = address._loop if isinstance(address, Server) else background_loop()
    return run(aconnect(address, *targets, **options), loop, "await aconnect(…)")


def _check_private(address: Address) -> None:
    if not address.tls and not is_loopback(address.host):
        raise ConfigError(
            f"all that is said to {address} could be read and changed on the way: use"
            " the join string that the server printed, which starts with melisma://"
        )


async def _nothing() -> None:
    """Do nothing: there is no network to leave."""
