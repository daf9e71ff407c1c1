"""Who an orchestrator calls, wherever they are; no torch."""

from collections.abc import Mapping
from typing import Any, Protocol

from melisma import rpc


class Peers(Protocol):
    """Learners that can be called: who dialled a server, or the nodes of a cluster."""

    @property
    def peers(self) -> Mapping[str, rpc.Peer]:
        """Who is there now, by name; RpcError for a name that is not."""

    @property
    def silences_s(self) -> Mapping[str, float | None]:
        """How long ago each was heard; None if it is cut off for now."""

    @property
    def metrics(self) -> rpc.Metrics:
        """What has been called, answered, sent and received so far."""

    def wait_until(self, count: int) -> Any:
        """Wait until that many are there, and return all that are; to be awaited."""

    def expel(self, name: str, reason: str) -> None:
        """Call a learner no more, nor another one of that name."""
