"""The side that is dialled: who is there, and under which name.

A name belongs to whoever proved it with a token bound to it. Under a token that many
share, a name is taken while its bearer is connected, and whoever was cut off shows the
session's key to go on.
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
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Group, Peer
from melisma.rpc.service import Service
from melisma.rpc.session import Exchange
from melisma.rpc.threads import Threads
from melisma.rpc.tokens import ANYBODY, Identity, check_name
from melisma.rpc.transport import Carrier, Closed
from melisma.rpc.values import Malformed

log = logging.getLogger("melisma.rpc")

#: How long a new connection may take to say who it is.
HELLO_S = 10.0


class Hub:
    """The peers that dialled in. Lives on one event loop."""

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
        self.executor = Threads(threads)
        #: Whether a name is kept for the bearer of a token of its own.
        self.reserved: Callable[[str], bool] = lambda name: False
        self._joined, self._left = joined, left
        self._exchanges: dict[str, Exchange] = {}
        self._version = 0  # of the exchanges: grows with each that comes or goes
        self._group = (0, Group({}))  # at some version, for all who ask meanwhile
        self._owners: dict[str, Identity] = {}
        self._expelled: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._conversations: set[asyncio.Task[None]] = set()

    @property
    def peers(self) -> Group:
        """Return the peers that are there now, connected or within their grace."""
        version, group = self._version, self._group  # first: other threads ask too
        if group[0] != version:
            exchanges = list(self._exchanges.items())
            group = (version, Group({name: one.peer for name, one in exchanges}))
            self._group = group
        return group[1]

    @property
    def silences_s(self) -> dict[str, float | None]:
        """Return how long ago each peer was heard; None if it is cut off for now."""
        return {
            name: exchange.silence_s if exchange.carrier else None
            for name, exchange in list(self._exchanges.items())
        }

    @property
    def connections(self) -> int:
        """Return how many peers are connected."""
        return len(self._conversations)

    async def wait_for(self, names: set[str]) -> Group:
        """Wait until peers of those names are connected."""
        while not all(self._is_connected(name) for name in names):
            self._changed.clear()
            await self._changed.wait()
        return self.peers.only(sorted(names))

    async def wait_until(self, count: int) -> Group:
        """Wait until at least that many peers are connected."""
        while sum(map(self._is_connected, self._exchanges)) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.peers

    def _is_connected(self, name: str) -> bool:
        exchange = self._exchanges.get(name)
        return exchange is not None and exchange.carrier is not None

    async def accept(self, carrier: Carrier, identity: Identity = ANYBODY) -> None:
        """Converse with whoever is at the other end, until the carrier closes."""
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            exchange = await self._greet(carrier, identity)
            if exchange and exchange.carrier is carrier:
                await exchange.converse(carrier)
        except Closed:
            pass
        finally:
            self._conversations.discard(task)
            self._changed.set()
            await carrier.close()

    async def _greet(self, carrier: Carrier, identity: Identity) -> Exchange | None:
        try:
            async with asyncio.timeout(HELLO_S):
                hello = frames.decode(await carrier.receive())
            exchange, resumes = self._enter(hello, identity)
        except (Malformed, ConfigError, AccessError, TimeoutError) as error:
            reason = str(error) or f"no Hello within {HELLO_S:g} s"
            log.warning("a connection was refused: %s", reason)
            for_good = isinstance(error, AccessError)
            await carrier.send(frames.encode(frames.Refused(reason, for_good)))
            return None
        previous, exchange.carrier = exchange.carrier, carrier
        try:
            if previous:
                await previous.close()
            if exchange.carrier is not carrier:
                return None  # ended, or called back by a newer connection
            answer = exchange.hello(exchange.name, resumes=True)
            if not resumes:  # what arrived there was of another session
                hello = msgspec.structs.replace(hello, received=0)
            exchange.resume(hello)
            await carrier.send(answer)
        except Malformed as error:
            exchange.end(ProtocolError(f"{exchange.name} broke the protocol: {error}"))
            await exchange.farewell()
            return None
        except BaseException:
            exchange.lose(carrier)
            raise
        log.info("%s %s", exchange.name, "is back" if resumes else "joined")
        if not resumes and self._joined:
            self._joined(exchange.peer)
        asyncio.get_running_loop().call_soon(self._changed.set)
        return exchange

    def _enter(self, hello: frames.Hello, identity: Identity) -> tuple[Exchange, bool]:
        """Return the exchange with who says hello, and whether its session goes on."""
        if type(hello) is not frames.Hello:
            raise Malformed("a conversation starts with Hello")
        check_protocol(hello)
        name = check_name(hello.name or identity.name or "")
        if identity.name and name != identity.name:
            raise ConfigError(
                f"this token is for '{identity.name}': '{name}' cannot use it"
            )
        if name in self._expelled:
            raise AccessError(f"'{name}' was expelled: {self._expelled[name]}")
        if identity.name is None and self.reserved(name):
            raise ConfigError(f"'{name}' has a token of its own: choose another name")
        exchange = self._exchanges.get(name)
        if exchange is None:
            exchange = self._add(name, identity)
        elif self._owners[name].id != identity.id:
            raise ConfigError(f"'{name}' is taken: choose another name")
        exchange.answerer.permit(identity.may_call)
        if hmac.compare_digest(exchange.link.key, hello.session):
            self.metrics.reconnections += 1
            return exchange, True
        if exchange.carrier is not None and identity.name is None:
            raise ConfigError(f"'{name}' is connected already: choose another name")
        exchange.begin(secrets.token_bytes(16))
        return exchange, False

    def _add(self, name: str, identity: Identity) -> Exchange:
        if len(self._exchanges) >= self.limits.connections:
            raise ConfigError(
                f"{self.limits.connections} peers are here, and more are not let in"
            )
        exchange = Exchange(
            name,
            self.service,
            limits=self.limits,
            metrics=self.metrics,
            may_call=identity.may_call,
            executor=self.executor,
            lost=lambda: self._remove(exchange),
        )
        self._exchanges[name] = exchange
        self._owners[name] = identity
        self._version += 1
        return exchange

    def _remove(self, exchange: Exchange) -> None:
        if self._exchanges.get(exchange.name) is exchange:
            del self._exchanges[exchange.name], self._owners[exchange.name]
            self._version += 1
            self._changed.set()
            log.info("%s left: %s", exchange.name, exchange.over)
            if self._left:
                self._left(exchange.peer)

    def expel(self, name: str, reason: str) -> None:
        """End the session with a peer, and let nobody of that name in again."""
        self._expelled[name] = reason
        exchange = self._exchanges.get(name)
        if exchange:
            exchange.end(f"{name} was expelled: {reason}")

    async def close(self, reason: str = "the server stops") -> None:
        """End all sessions."""
        exchanges = list(self._exchanges.values())
        for exchange in exchanges:
            exchange.end(reason)
        await asyncio.gather(*(exchange.farewell() for exchange in exchanges))
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        self.executor.shutdown()


def check_protocol(hello: frames.Hello) -> None:
    """Raise ConfigError if the far side speaks another major version."""
    ours, theirs = frames.PROTOCOL, hello.protocol
    if theirs[0] != ours[0]:
        raise ConfigError(
            f"one side speaks protocol {theirs[0]} (melisma"
            f" {frames.readable(hello.library)[:20]}), the other {ours[0]}: install the"
            " same major version of melisma on both"
        )
