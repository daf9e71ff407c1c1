"""melisma.rpc: in the clear, with TLS and a token, blocking, and called by a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import mkdtemp
from typing import Any

from melisma import rpc
from peers.rpc_measure import Array

DEVICE = "device"


@rpc.expose
async def echo(value: Any) -> Any:
    """Return the value."""
    return value


@rpc.expose
def plain_echo(value: Any) -> Any:
    """Return the value, from a thread."""
    return value


@rpc.expose
async def dial(address: str) -> None:
    """Be a device that dials out, until the caller gives up."""
    async with await rpc.aconnect(address, echo, name=DEVICE) as connection:
        await connection.wait()


def _silence(text: str) -> None:
    """Say nothing."""


def serve(tell: Callable[[str], None]) -> None:
    """Serve in the clear."""
    with rpc.serve(echo, plain_echo, dial, port=0, say=_silence) as server:
        tell(server.address)
        server.wait()


def serve_secure(tell: Callable[[str], None]) -> None:
    """Serve with TLS and a token, both new."""

    def say(text: str) -> None:
        tell(text.split()[-1])  # the join string

    options = {"port": 0, "secure": True, "folder": mkdtemp(), "say": say}
    with rpc.serve(echo, **options) as server:
        server.wait()


class AsyncPeer:
    """A peer, awaited."""

    def __init__(self, peer: rpc.Peer) -> None:
        self._peer = peer

    async def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = await self._peer.echo(text)
        return received

    async def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        received: Array = await self._peer.echo(values)
        return received


class BlockingPeer:
    """A peer whose plain functions are called from plain code."""

    def __init__(self, peer: rpc.Peer) -> None:
        self._peer = peer

    def small(self, text: bytes) -> bytes:
        """Return ``text`` as it came back."""
        received: bytes = self._peer.plain_echo(text)
        return received

    def array(self, values: Array) -> Array:
        """Return the array as it came back."""
        received: Array = self._peer.plain_echo(values)
        return received


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[AsyncPeer]:
    """Connect on the event loop of the caller."""
    async with await rpc.aconnect(address) as peer:
        yield AsyncPeer(peer)


@contextmanager
def connect_blocking(address: str) -> Iterator[BlockingPeer]:
    """Connect; many threads may use the peer."""
    with rpc.connect(address) as peer:
        yield BlockingPeer(peer)


@asynccontextmanager
async def connect_back(address: str) -> AsyncIterator[AsyncPeer]:
    """Listen, have the process at ``address`` dial, and call it over its own line."""
    async with (
        await rpc.aconnect(address) as other,
        await rpc.aserve(port=0, say=_silence) as server,
    ):
        dialling = other.dial.submit(server.address)
        peers = await server.wait_for(DEVICE, timeout_s=10.0)
        yield AsyncPeer(peers[DEVICE])
        dialling.cancel()
        while peers[DEVICE].connected:
            await asyncio.sleep(0.01)
