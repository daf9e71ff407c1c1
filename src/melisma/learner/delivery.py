"""Samples between devices of a fog: directly, or by way of the orchestrator.

A device that listens admits senders whom the orchestrator named, each with a token of
its own name, to deliver samples and nothing else. One that does not listen, or cannot
be reached, gets them over the connection on which it dialled the orchestrator.
"""

import logging
import threading
from collections.abc import Callable, Mapping

from melisma import rpc
from melisma.errors import DataError, RpcError
from melisma.learner.source import Relay
from melisma.learning.shards import Shard

log = logging.getLogger("melisma.learner")

#: Most that is held here, of all senders together.
MOST_BYTES = 1 << 28
#: Longest that the search for a device's address may take.
ADDRESS_S = 3.0


class Inbox:
    """Samples from other devices, until their slot comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[tuple[str, int, str], Shard] = {}
        #: By task: raises DataError for samples that do not fit it.
        self.checks: dict[str, Callable[[Shard], None]] = {}

    def check_known(self, task: str) -> None:
        """Raise DataError for a task whose samples are not sent here."""
        if task not in self.checks:
            raise DataError(f"there is no task {task!r} here")

    def put(self, task: str, slot: int, sender: str, shard: Shard) -> None:
        """Keep samples; DataError if they do not fit the task, or into memory."""
        self.check_known(task)
        self.checks[task](shard)
        with self._lock:
            self._shards[task, slot, sender] = shard
            held = sum(x.nbytes + y.nbytes for x, y in self._shards.values())
            if held > MOST_BYTES:
                del self._shards[task, slot, sender]
                raise DataError(f"no room: more than {MOST_BYTES} bytes would be held")

    def take(self, task: str, slot: int, expected: Mapping[str, int]) -> list[Shard]:
        """Return what expected senders sent in a slot, in their order, up to as much.

        It stays here: a cycle that is cut short is begun again.
        """
        with self._lock:
            here = [
                (self._shards[task, slot, sender], most)
                for sender, most in expected.items()
                if (task, slot, sender) in self._shards
            ]
        return [(x[:most], y[:most]) for (x, y), most in here]

    def forget(self, task: str, slot: int) -> None:
        """Drop what was sent before a slot."""
        with self._lock:
            for key in list(self._shards):
                if key[0] == task and key[1] < slot:
                    del self._shards[key]


class Routes:
    """Connections to other devices, and the orchestrator where there is none."""

    def __init__(self, name: str) -> None:
        self._name, self._connections = name, dict[str, rpc.Connection | None]()

    def send(
        self,
        relay: Relay,
        task: str,
        slot: int,
        to: str,
        shard: Shard,
        within_s: float,
    ) -> bool | None:
        """Deliver samples: True: directly, False: by the orchestrator, None: not."""
        try:
            if connection := self._connection(relay, task, to):
                connection.deliver.within(within_s)(task, slot, shard)
                return True
        except RpcError as error:
            log.info("%s cannot be reached directly: %s", to, error)
            self._forget(to)
        try:
            relay.relay(task, slot, to, shard, within_s)
        except RpcError as error:
            log.warning("%s cannot be reached: %s", to, error)
            return None
        return False

    def _connection(self, relay: Relay, task: str, to: str) -> rpc.Connection | None:
        """Return the connection to a device; None if it failed once, until `retry`."""
        if to not in self._connections:
            self._connections[to] = None
            address = relay.address(task, to, ADDRESS_S)
            if address is not None:
                self._connections[to] = rpc.connect(
                    address, name=self._name, may_call=lambda function: False
                )
        return self._connections[to]

    def _forget(self, to: str) -> None:
        if connection := self._connections.get(to):
            connection.close()
        self._connections[to] = None

    def retry(self) -> None:
        """Try devices again that could not be reached before."""
        self._connections = {to: c for to, c in self._connections.items() if c}

    def close(self) -> None:
        """Close all connections."""
        for to in list(self._connections):
            self._forget(to)
