"""Samples between devices of a fog: directly, or by way of the orchestrator.

A device that listens admits senders whom the orchestrator named, each with a token of
its own name, to deliver samples and nothing else. One that does not listen, or cannot
be reached, gets them over the connection on which it dialled the orchestrator. What a
device sends of its own data is logged before it leaves.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from melisma import rpc
from melisma.errors import ConfigError, DataError, RpcError
from melisma.learner import orders
from melisma.learner.source import Relay
from melisma.learning.samples import length
from melisma.learning.shards import Shard

log = logging.getLogger("melisma.learner")

#: Most that is held here, of all senders together, and of one.
MOST_BYTES, SENDER_BYTES = 1 << 28, 1 << 25
#: Longest that the search for a device's address may take.
ADDRESS_S = 3.0


@dataclass(slots=True)
class _Window:
    """The slots of a task in which samples are taken: the current one and around it."""

    check: Callable[[Shard], None]  #: raises DataError for samples that do not fit
    first: int = 1  #: slot of the cycle
    now: int = 0  #: slot; the one before the first until that begins

    def needs(self, slot: int) -> bool:
        """Return whether samples are still used: now, or if the cycle begins again."""
        return slot >= self.now - 1 or slot == self.first - 1


class Inbox:
    """Samples from other devices, until their slot comes.

    Bounded: a sender has a quota, and samples are taken for slots that are near.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[tuple[str, int, str], Shard] = {}
        self._windows: dict[str, _Window] = {}

    def open(self, task: str, check: Callable[[Shard], None]) -> None:
        """Take samples of a task that pass a check, which raises DataError."""
        self._windows[task] = _Window(check)

    def close(self, task: str) -> None:
        """Take no more samples of a task, and drop what is here."""
        with self._lock:
            self._windows.pop(task, None)
            self._shards = {k: v for k, v in self._shards.items() if k[0] != task}

    def check_known(self, task: str) -> None:
        """Raise DataError for a task whose samples are not sent here."""
        self._window(task)

    def _window(self, task: str) -> _Window:
        orders.check_task(task)
        if task not in self._windows:
            raise DataError(f"there is no task {task!r} here")
        return self._windows[task]

    def start(self, task: str, slot: int) -> None:
        """Begin a cycle whose first slot this is; what came for others is dropped."""
        window = self._window(task)
        window.first, window.now = slot, slot - 1
        self._drop(task, lambda held: not slot - 1 <= held <= slot)

    def advance(self, task: str, slot: int) -> None:
        """Begin a slot; what came for earlier ones is dropped."""
        window = self._window(task)
        window.now = slot
        self._drop(task, lambda held: not window.needs(held))

    def _drop(self, task: str, is_over: Callable[[int], bool]) -> None:
        with self._lock:
            for key in list(self._shards):
                if key[0] == task and is_over(key[1]):
                    del self._shards[key]

    def put(self, task: str, slot: int, sender: str, shard: Shard) -> None:
        """Keep samples; DataError if they do not fit the task, its slot, or in here."""
        orders.check_delivery(slot, sender, shard)
        window = self._window(task)
        if abs(slot - window.now) > 1:
            raise DataError(f"samples for slot {slot}: this is slot {window.now}")
        window.check(shard)
        with self._lock:
            kept = {**self._shards, (task, slot, sender): shard}
            sizes = {
                key: sum(part.nbytes for part in shard.values())
                for key, shard in kept.items()
            }
            if len({name for _, _, name in kept}) > orders.MOST_NEIGHBOURS:
                raise DataError(f"no room: {orders.MOST_NEIGHBOURS} devices send here")
            for most, held in (
                (MOST_BYTES, sum(sizes.values())),
                (SENDER_BYTES, sum(n for key, n in sizes.items() if key[2] == sender)),
            ):
                if held > most:
                    raise DataError(f"no room: more than {most} bytes would be held")
            self._shards = kept

    def keep(self, task: str, slot: int, owner: str, shard: Shard) -> None:
        """Keep the device's own samples that nobody took, whatever their size."""
        with self._lock:
            self._shards[task, slot, owner] = shard

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
        return [{n: v[:most] for n, v in shard.items()} for shard, most in here]


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
        what = f"{task}, slot {slot}: {length(shard)} samples of this device go to {to}"
        try:
            if connection := self._connection(relay, task, to):
                log.info("%s, directly", what)
                connection.deliver.within(within_s)(task, slot, shard)
                return True
        except (RpcError, ConfigError) as error:
            log.info("%s cannot be reached directly: %s", to, error)
            self._forget(to)
        log.info("%s, by way of the orchestrator", what)
        try:
            relay.relay(task, slot, to, shard, within_s)
        except RpcError as error:
            log.warning("%s cannot be reached: %s", to, error)
            return None
        return False

    def _connection(self, relay: Relay, task: str, to: str) -> rpc.Connection | None:
        """Return the connection to a device; None if it failed once, until `retry`."""
        if to not in self._connections:
            if len(self._connections) >= orders.MOST_NEIGHBOURS:
                return None
            self._connections[to] = None
            address = relay.address(task, to, ADDRESS_S)
            if address is not None:
                orders.check_address(address)
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
