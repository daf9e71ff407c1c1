"""The server side of sessions: handshakes, and the peers by name.

A token may be bound to a name, which then no other token can use. Under a shared token
the first peer to connect gets a name for as long as its session lasts, and proves by
the session's key that it may resume.

Whoever is expelled is refused by token and name together: another's token may still use
the name, so that nobody can have it taken from its owner, and a shared token still lets
in all other names. Only with a token of its own, bound to a name, is a peer out for
good.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable

import msgspec

from melisma.errors import AccessError, ConfigError, ProtocolError
from melisma.rpc import frames
from melisma.rpc.limits import Limits
from melisma.rpc.memory import Budget, default_bytes
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Group, Peer
from melisma.rpc.service import Service
from melisma.rpc.session import Session
from melisma.rpc.threads import ThreadPool
from melisma.rpc.tokens import ANONYMOUS, Identity, check_name
from melisma.rpc.transport import Closed, Transport
from melisma.rpc.values import Malformed

log = logging.getLogger("melisma.rpc")

#: How long a new connection may take to send its Hello.
HANDSHAKE_S = 10.0
#: In place of the token of an expelled peer that was not here since the server started.
ANY_TOKEN = "*"


class Hub:
    """The sessions with the peers that connected, on one event loop."""

    def __init__(
        self,
        service: Service,
        *,
        limits: Limits,
        threads: int = 32,
        joined: Callable[[Peer], None] | None = None,
        left: Callable[[Peer], None] | None = None,
    ) -> None:
        self.service, self.limits, self.metrics = service, limits, Metrics()
        self.budget = Budget(limits.total_bytes or default_bytes())
        self.executor = ThreadPool(threads)
        #: Returns whether a token is bound to a name.
        self.reserved: Callable[[str], bool] = lambda name: False
        self._joined, self._left = joined, left
        self._sessions: dict[str, Session] = {}
        self._version = 0  # increases whenever a session is added or removed
        self._group = (0, Group({}))  # cached for one version
        self._owners: dict[str, Identity] = {}
        self._former: dict[str, str] = {}  # ids of the tokens of those who left
        self._expelled: dict[str, dict[str, str]] = {}  # reasons by name and token
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def peers(self) -> Group:
        """Return the peers that are connected or within the grace period."""
        # Read before the sessions, which may change: other threads call this.
        version, group = self._version, self._group
        if group[0] != version:
            sessions = list(self._sessions.items())
            group = (version, Group({name: session.peer for name, session in sessions}))
            self._group = group
        return group[1]

    @property
    def silences_s(self) -> dict[str, float | None]:
        """Return seconds since each peer's last message; None if not connected."""
        return {
            name: session.silence_s if session.transport else None
            for name, session in list(self._sessions.items())
        }

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    async def wait_for(self, names: set[str]) -> Group:
        """Wait until peers of these names are connected, and return them."""
        while not all(self._is_connected(name) for name in names):
            self._changed.clear()
            await self._changed.wait()
        return self.peers.only(sorted(names))

    async def wait_until(self, count: int) -> Group:
        """Wait until at least ``count`` peers are connected, and return all peers."""
        while sum(map(self._is_connected, self._sessions)) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.peers

    def _is_connected(self, name: str) -> bool:
        session = self._sessions.get(name)
        return session is not None and session.transport is not None

    async def accept(
        self, transport: Transport, identity: Identity = ANONYMOUS
    ) -> None:
        """Handshake with a new connection and serve it until it closes."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            session = await self._handshake(transport, identity)
            if session and session.transport is transport:
                await session.run(transport)
        except Closed:
            pass
        finally:
            self._connections.discard(task)
            self._changed.set()
            await transport.close()

    async def _handshake(
        self, transport: Transport, identity: Identity
    ) -> Session | None:
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                hello = frames.decode(await transport.receive())
            session, resumes = self._admit(hello, identity)
        except (Malformed, ConfigError, AccessError, TimeoutError) as error:
            reason = str(error) or f"no Hello within {HANDSHAKE_S:g} s"
            log.warning("refused a connection: %s", reason)
            permanent = isinstance(error, AccessError)
            await transport.send(frames.encode(frames.Refused(reason, permanent)))
            return None
        previous, session.transport = session.transport, transport
        try:
            if previous:
                await previous.close()
            if session.transport is not transport:
                return None  # ended, or replaced by a newer connection
            reply = session.hello(session.name, resumes=True)
            if not resumes:  # the peer counted frames of another session
                hello = msgspec.structs.replace(hello, received=0)
            session.resume(hello)
            await transport.send(reply)
        except Malformed as error:
            session.end(ProtocolError(f"{session.name} broke the protocol: {error}"))
            await session.wait_closed()
            return None
        except BaseException:
            session.detach(transport)
            raise
        log.info("%s %s", session.name, "resumed" if resumes else "joined")
        if not resumes and self._joined:
            self._joined(session.peer)
        asyncio.get_running_loop().call_soon(self._changed.set)
        return session

    def _admit(self, hello: frames.Hello, identity: Identity) -> tuple[Session, bool]:
        """Return the session for a Hello, and whether it resumes; raise to refuse."""
        if type(hello) is not frames.Hello:
            raise Malformed("the first frame is not Hello")
        check_protocol(hello)
        name = check_name(hello.name or identity.name or "")
        if identity.name and name != identity.name:
            raise ConfigError(
                f"this token is for '{identity.name}': '{name}' cannot use it"
            )
        if (reason := self.expulsion(name, identity)) is not None:
            raise AccessError(f"'{name}' was expelled: {reason}")
        if identity.name is None and self.reserved(name):
            raise ConfigError(f"'{name}' has a token of its own: choose another name")
        session = self._sessions.get(name)
        if session is None:
            session = self._add(name, identity)
        elif self._owners[name].id != identity.id:
            raise ConfigError(f"'{name}' is taken: choose another name")
        session.dispatcher.permit(identity.may_call)
        if hmac.compare_digest(session.link.key, hello.session):
            self.metrics.reconnections += 1
            return session, True
        if session.transport is not None and identity.name is None:
            raise ConfigError(f"'{name}' is connected already: choose another name")
        session.restart(secrets.token_bytes(16))
        return session, False

    def _add(self, name: str, identity: Identity) -> Session:
        if len(self._sessions) >= self.limits.connections:
            raise ConfigError(
                f"{self.limits.connections} peers are connected, the most that"
                " limits.connections allows"
            )
        session = Session(
            name,
            self.service,
            limits=self.limits,
            metrics=self.metrics,
            may_call=identity.may_call,
            executor=self.executor,
            on_end=lambda: self._remove(session),
            budget=self.budget,
            owner=identity.id,
        )
        self._sessions[name] = session
        self._owners[name] = identity
        self._version += 1
        return session

    def _remove(self, session: Session) -> None:
        if self._sessions.get(session.name) is session:
            del self._sessions[session.name]
            self._forget(session.name)
            self._version += 1
            self._changed.set()
            log.info("%s left: %s", session.name, session.ended)
            if self._left:
                self._left(session.peer)

    def _forget(self, name: str) -> None:
        """Keep the token of a peer that left, for as many as may be connected."""
        self._former.pop(name, None)
        self._former[name] = self._owners.pop(name).id
        if len(self._former) > self.limits.connections:
            del self._former[next(iter(self._former))]

    def expulsion(self, name: str, identity: Identity) -> str | None:
        """Return why a token may not use a name any more; None if it may."""
        reasons = self._expelled.get(name, {})
        return reasons.get(identity.id, reasons.get(ANY_TOKEN))

    def expel(self, name: str, reason: str) -> None:
        """End the session with a peer; refuse its token that name from now on."""
        owner = self._owners.get(name)
        token = owner.id if owner else self._former.get(name, ANY_TOKEN)
        self._expelled.setdefault(name, {})[token] = reason
        session = self._sessions.get(name)
        if session:
            session.end(f"{name} was expelled: {reason}")

    async def close(self, reason: str = "the server stopped") -> None:
        """End all sessions."""
        sessions = list(self._sessions.values())
        for session in sessions:
            session.end(reason)
        await asyncio.gather(*(session.wait_closed() for session in sessions))
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self.executor.shutdown()


def check_protocol(hello: frames.Hello) -> None:
    """Raise ConfigError if the peer has another major version of the protocol."""
    ours, theirs = frames.PROTOCOL, hello.protocol
    if theirs[0] != ours[0]:
        raise ConfigError(
            f"one side speaks protocol {theirs[0]} (melisma"
            f" {frames.printable(hello.library)[:20]}), the other {ours[0]}: install"
            " the same major version of melisma on both"
        )
