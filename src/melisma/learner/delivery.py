"""How devices of a fog hand samples to one another: directly, or by the orchestrator.

A device that listens lets in whom the orchestrator has sent, each by a token of its
own name, to deliver samples and nothing else. One that does not listen, or cannot be
reached, gets them over the line on which it dialled the orchestrator.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from melisma import rpc
from melisma.errors import DataError, RpcError
from melisma.learning.shards import Shard

log = logging.getLogger("melisma.learner")

#: What may lie here, of all senders together.
MOST_BYTES = 1 << 28
#: Longest that a connection to another device may take.
CONNECT_S = 3.0


class Inbox:
    """Samples that others have sent, until their slot comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[tuple[str, int, str], Shard] = {}
        #: Raises DataError for samples that do not fit a task.
        self.checks: dict[str, Callable[[Shard], None]] = {}

    @rpc.expose(idempotent=True)
    def deliver(self, task: str, slot: int, shard: Shard) -> None:
        """Take in samples of the caller."""
        self.put(task, slot, rpc.current().caller, shard)

    def put(self, task: str, slot: int, sender: str, shard: Shard) -> None:
        """Take in samples; DataError if they do not fit, or there is no room."""
        if task not in self.checks:
            raise DataError(f"there is no task {task!r} here")
        self.checks[task](shard)
        with self._lock:
            self._shards[task, slot, sender] = shard
            held = sum(part.nbytes for one in self._shards.values() for part in one)
            if held > MOST_BYTES:
                del self._shards[task, slot, sender]
                raise DataError(
                    f"no room: more than {MOST_BYTES} bytes would wait here"
                )

    def take(self, task: str, slot: int, expected: Mapping[str, int]) -> list[Shard]:
        """Return what was sent in a slot by those who were to, in their order.

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
        """Need nothing more of what was sent before a slot."""
        with self._lock:
            for key in list(self._shards):
                if key[0] == task and key[1] < slot:
                    del self._shards[key]


class Listener:
    """Where others can deliver directly; there is none unless a host is given."""

    def __init__(self, inbox: Inbox, host: str | None) -> None:
        self._inbox, self._host = inbox, host
        self._lock, self._open = threading.Lock(), ExitStack()
        self._server: rpc.Server | None = None
        self._invited: dict[str, str] = {}

    def admit(self, sender: str) -> str | None:
        """Return the join string with which ``sender`` may deliver, if anybody may."""
        if self._host is None:
            return None
        with self._lock:
            if self._server is None:
                secrets = self._open.enter_context(TemporaryDirectory())
                self._server = self._open.enter_context(
                    rpc.serve(
                        self._inbox,
                        host=self._host,
                        port=0,
                        secure=True,
                        folder=secrets,
                        threads=4,
                        say=lambda text: None,
                    )
                )
            if sender not in self._invited:
                self._invited[sender] = self._server.invite(sender, ("deliver",))
            return self._invited[sender]

    def close(self) -> None:
        """Let nobody in any more."""
        self._open.close()


class Routes:
    """To other devices, by whatever way there is."""

    def __init__(self, name: str) -> None:
        self._name, self._lines = name, dict[str, rpc.Connection | None]()

    def send(
        self,
        home: rpc.Peer,
        task: str,
        slot: int,
        to: str,
        shard: Shard,
        within_s: float,
    ) -> bool | None:
        """Deliver samples: True: directly, False: by the orchestrator, None: not."""
        try:
            if line := self._line(home, task, to):
                line.deliver.within(within_s)(task, slot, shard)
                return True
        except RpcError as error:
            log.info("%s cannot be reached directly: %s", to, error)
            self._forget(to)
        try:
            home.relay.within(within_s)(task, slot, to, shard)
        except RpcError as error:
            log.warning("%s cannot be reached: %s", to, error)
            return None
        return False

    def _line(self, home: rpc.Peer, task: str, to: str) -> rpc.Connection | None:
        """The line to a device; None if there is none, and none is sought again."""
        if to not in self._lines:
            self._lines[to] = None
            address = home.way.within(CONNECT_S)(task, to)
            if address is not None:
                self._lines[to] = rpc.connect(
                    address, name=self._name, may_call=lambda function: False
                )
        return self._lines[to]

    def _forget(self, to: str) -> None:
        if line := self._lines.get(to):
            line.close()
        self._lines[to] = None

    def seek_again(self) -> None:
        """Try devices again that could not be reached before."""
        self._lines = {to: line for to, line in self._lines.items() if line}

    def close(self) -> None:
        """Hang up everywhere."""
        for to in list(self._lines):
            self._forget(to)
