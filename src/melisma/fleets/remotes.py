"""The seam to learners that are called, whatever carries the calls; no torch."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from melisma import rpc

#: What every learner exposes, and no other peer.
LEARNS = "train"


class Remotes(Protocol):
    """Learners that can be called: peers of a server, or the nodes of a cluster."""

    @property
    def silences_s(self) -> Mapping[str, float | None]:
        """Seconds since each was heard; None if it is cut off for now."""

    @property
    def metrics(self) -> rpc.Metrics:
        """Calls, answers and bytes so far."""

    async def wait_until(self, count: int) -> Collection[str]:
        """Wait until that many are connected; return the names of all learners."""

    async def call(
        self, name: str, function: str, *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a learner's function; an RpcError says why there is no answer.

        Cancelling the call, or its timeout, stops the learner too.
        """

    def expel(self, name: str, reason: str) -> None:
        """Disconnect a learner, and accept none of that name again."""


class RpcRemotes:
    """The learners that dialled a server."""

    def __init__(self, server: rpc.Server) -> None:
        self._server = server

    @property
    def silences_s(self) -> Mapping[str, float | None]:
        """Seconds since each was heard; None if it is cut off for now."""
        return self._server.silences_s

    @property
    def metrics(self) -> rpc.Metrics:
        """Calls, answers and bytes so far."""
        return self._server.metrics

    async def wait_until(self, count: int) -> Collection[str]:
        """Wait until that many peers are connected; return the learners' names."""
        peers: rpc.Group = await self._server.wait_until(count)
        return [name for name, peer in peers.items() if LEARNS in peer.functions]

    async def call(
        self, name: str, function: str, *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a peer's function; RpcError without an answer, or without the peer."""
        remote = self._server.peers[name][function]
        if within_s is not None:
            remote = remote.within(within_s)
        return await remote(*args)

    def expel(self, name: str, reason: str) -> None:
        """End the session with a peer, and accept none of that name again."""
        self._server.expel(name, reason)
