"""The functions of a learner that others call: a thin adapter, and the only one.

Each exposed function makes a `Caller` of the request that it answers, and passes it on
to the learner. ``fleets.messages`` has the table of functions.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from melisma import rpc
from melisma.errors import ConfigError
from melisma.fleets.messages import (
    Gradient,
    GradientRequest,
    Ready,
    SlotDone,
    SlotRequest,
    Speeds,
    TaskSpec,
    TrainRequest,
    Update,
)
from melisma.learner import orders
from melisma.learner.delivery import SENDER_BYTES, Inbox
from melisma.learner.fog import FogLearner
from melisma.learner.learner import Learner
from melisma.learner.source import Bundles, Caller, Relay, RpcSource
from melisma.learning.shards import Shard


def rpc_caller() -> Caller:
    """Return who calls over rpc; ConfigError if it cannot be called back."""
    request = rpc.current()
    orchestrator = _orchestrator()
    return Caller(
        orchestrator,
        lambda: request.cancelled,
        orchestrator,
        orchestrator,
        orchestrator.measuring,
    )


def rpc_relay() -> Relay:
    """Return who calls over rpc, as what reaches other devices."""
    return _orchestrator()


def rpc_bundles() -> Bundles:
    """Return who calls over rpc, as what has the code of tasks."""
    return _orchestrator()


def _orchestrator() -> RpcSource:
    peer = rpc.current().peer
    if peer is None:
        raise ConfigError("learners fetch from who calls them: call over a connection")
    return RpcSource(peer)


class Service:
    """A learner's functions; ``caller_of`` returns who calls the one that runs."""

    def __init__(
        self, learner: Learner, caller_of: Callable[[], Caller] = rpc_caller
    ) -> None:
        self._learner, self._caller_of = learner, caller_of

    @rpc.expose(idempotent=True)
    def prepare(self, spec: TaskSpec) -> Ready:
        """Build a task's model, unless it is warm."""
        return self._learner.prepare(spec)

    @rpc.expose
    def measure(self, task: str, keys: list[str]) -> None:
        """Benchmark transfers and training on these shards."""
        self._learner.measure(task, keys, self._caller_of())

    @rpc.expose(idempotent=True)
    def speeds(self, task: str, drifted: bool) -> Speeds:
        """Return the delay law."""
        return self._learner.speeds(task, drifted)

    @rpc.expose(idempotent=True)
    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        """Return how many shards are finished before the deadline."""
        return self._learner.bid(task, deadline_s, steps)

    @rpc.expose
    def probe(self, request: TrainRequest) -> Speeds:
        """Begin to train, and return how fast that goes."""
        return self._learner.probe(request, self._caller_of())

    @rpc.expose
    def train(self, request: TrainRequest) -> Update:
        """Fetch, train, halt in time, return the update."""
        return self._learner.train(request, self._caller_of())

    @rpc.expose
    def gradient(self, request: GradientRequest) -> Gradient:
        """Return a coded sum of gradients."""
        return self._learner.gradient(request, self._caller_of())


class FogService(Service):
    """The functions of a device of a fog; it listens on host ``listens``, if any."""

    def __init__(
        self,
        learner: FogLearner,
        caller_of: Callable[[], Caller] = rpc_caller,
        relay_of: Callable[[], Relay] = rpc_relay,
        bundles_of: Callable[[], Bundles] = rpc_bundles,
        *,
        listens: str | None = None,
    ) -> None:
        super().__init__(learner, caller_of)
        self._device, self._relay_of = learner, relay_of
        self._bundles_of = bundles_of
        self._listener = Listener(learner.inbox, listens) if listens else None

    @rpc.expose(idempotent=True)
    def prepare(self, spec: TaskSpec) -> Ready:
        """Build a task's model, unless it is warm; its code is fetched if need be."""
        orders.check_spec(spec)
        if spec.bundle:
            self._device.bundles.fetch(spec.bundle, self._bundles_of)
        return self._device.prepare(spec)

    @rpc.expose
    def start(self, task: str, cycle: int, slot: int) -> None:
        """Fetch the model: a cycle of slots begins with this one."""
        self._device.start(task, cycle, slot, self._caller_of())

    @rpc.expose
    def slot(self, request: SlotRequest) -> SlotDone:
        """Collect, send and train until the slot ends."""
        return self._device.slot(request, self._caller_of(), self._relay_of())

    @rpc.expose
    def finish(self, task: str, cycle: int) -> Update:
        """Return the model of all the cycle's slots."""
        return self._device.finish(task, cycle, self._caller_of())

    @rpc.expose(idempotent=True)
    def admit(self, task: str, sender: str) -> str | None:
        """Return where another device can deliver directly, if this one listens."""
        self._device.inbox.check_known(task)
        orders.check_device(sender)
        return self._listener.admit(sender) if self._listener else None

    @rpc.expose(idempotent=True)
    def deliver(self, task: str, slot: int, sender: str, shard: Shard) -> None:
        """Take samples of another device, sent by the orchestrator."""
        self._device.deliver(task, slot, sender, shard)

    def close(self) -> None:
        """Admit no more devices, and close the connections to others."""
        if self._listener:
            self._listener.close()
        self._device.close()


class Deliveries:
    """An inbox, as other devices call it."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    @rpc.expose(idempotent=True)
    def deliver(self, task: str, slot: int, shard: Shard) -> None:
        """Take samples of the caller."""
        self._inbox.put(task, slot, rpc.current().caller, shard)


#: Of a device that delivers here: its quota in transfer, and a few calls at a time.
_LIMITS = rpc.Limits(
    message_bytes=SENDER_BYTES, calls=8, connections=orders.MOST_NEIGHBOURS
)


class Listener:
    """Where other devices deliver directly; listens once the first is admitted."""

    def __init__(self, inbox: Inbox, host: str) -> None:
        self._inbox, self._host = inbox, host
        self._lock, self._open = threading.Lock(), ExitStack()
        self._server: rpc.Server | None = None
        self._invited: dict[str, str] = {}

    def admit(self, sender: str) -> str:
        """Return the join string with which ``sender`` may deliver."""
        with self._lock:
            if self._server is None:
                secrets = self._open.enter_context(TemporaryDirectory())
                self._server = self._open.enter_context(
                    rpc.serve(
                        Deliveries(self._inbox),
                        host=self._host,
                        port=0,
                        secure=True,
                        folder=secrets,
                        threads=4,
                        limits=_LIMITS,
                        say=lambda text: None,
                    )
                )
            if sender not in self._invited:
                if len(self._invited) >= orders.MOST_NEIGHBOURS:
                    raise ConfigError(
                        f"{orders.MOST_NEIGHBOURS} devices may deliver here already"
                    )
                self._invited[sender] = self._server.invite(sender, ("deliver",))
            return self._invited[sender]

    def close(self) -> None:
        """Disconnect all, and free the port."""
        self._open.close()
