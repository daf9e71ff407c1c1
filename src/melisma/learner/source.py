"""Where a learner fetches from, and who waits for its answer: both are handed in.

The core of a learner knows neither connections nor clusters. Whatever carries the
calls makes a `Caller` for each one: over ``melisma.rpc`` (`learner.service`), on a Ray
node (`melisma.ray.learner`), from a Flower message (`melisma.flower.node`).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from melisma import rpc
from melisma.errors import RpcError
from melisma.learning.parameters import Parameters
from melisma.learning.shards import Shard
from melisma.maths.arrays import Bytes

#: Longest that a bundle may take: an orchestrator waits a minute for `prepare`.
BUNDLE_S = 30.0
#: Longest that telling how far a benchmark is may take.
TELL_S = 5.0
#: Longest that the answer to a question for leave may take.
LEAVE_S = 10.0


class Source(Protocol):
    """Models and data of tasks; CallTimeout if a fetch takes longer than it may."""

    def parameters(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch the model of a cycle."""

    def frozen(self, task: str, within_s: float | None = None) -> Parameters:
        """Fetch the parameters that no cycle changes."""

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        """Fetch shards by key."""

    def filler(self, task: str, size: int) -> Bytes:
        """Fetch that many bytes, for benchmarks and background downloads."""


class Relay(Protocol):
    """Finds other devices of a fog, and reaches those that do not listen."""

    def address(self, task: str, to: str, within_s: float) -> str | None:
        """Return where a device takes samples directly; None if it does not."""

    def relay(
        self, task: str, slot: int, to: str, shard: Shard, within_s: float
    ) -> None:
        """Deliver samples to a device by way of the orchestrator."""


class Corrections(Protocol):
    """What is added to a learner's gradients."""

    def correction(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch the caller's correction of a cycle."""


class Air(Protocol):
    """Channels that workers share."""

    def leave(self, task: str, cycle: int, battery_j: float) -> float:
        """Return for how long to send; 0: ask again."""


class Bundles(Protocol):
    """Source files of the modules that tasks need."""

    def bundle(self, hash: str) -> object:
        """Fetch a bundle, which is to be checked."""


def ignore(left_s: float) -> None:
    """Tell nobody."""


def never() -> bool:
    """Return False: nobody cancels."""
    return False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who called a learner."""

    source: Source
    gave_up: Callable[[], bool] = never  #: whether nobody waits for the answer any more
    air: Air | None = None  #: where answers share channels
    corrections: Corrections | None = None  #: where gradients are corrected
    tell: Callable[[float], None] = ignore  #: seconds that a benchmark takes yet


class RpcSource:
    """The orchestrator that a learner dialled: its source, its relay, its bundles."""

    def __init__(self, orchestrator: rpc.Peer) -> None:
        self._orchestrator = orchestrator

    def parameters(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch the model of a cycle."""
        model: Parameters = self._function("parameters", within_s)(task, cycle)
        return model

    def correction(
        self, task: str, cycle: int, within_s: float | None = None
    ) -> Parameters:
        """Fetch what is added to gradients in a cycle."""
        correction: Parameters = self._function("correction", within_s)(task, cycle)
        return correction

    def frozen(self, task: str, within_s: float | None = None) -> Parameters:
        """Fetch the parameters that no cycle changes."""
        frozen: Parameters = self._function("frozen", within_s)(task)
        return frozen

    def shards(
        self, task: str, keys: list[str], within_s: float | None = None
    ) -> list[Shard]:
        """Fetch shards by key."""
        shards: list[Shard] = self._function("shards", within_s)(task, keys)
        return shards

    def filler(self, task: str, size: int) -> Bytes:
        """Fetch that many bytes."""
        filler: Bytes = self._function("filler")(task, size)
        return filler

    def address(self, task: str, to: str, within_s: float) -> str | None:
        """Return where a device takes samples directly; None if it does not."""
        address: str | None = self._function("address", within_s)(task, to)
        return address

    def relay(
        self, task: str, slot: int, to: str, shard: Shard, within_s: float
    ) -> None:
        """Deliver samples to a device by way of the orchestrator."""
        self._function("relay", within_s)(task, slot, to, shard)

    def leave(self, task: str, cycle: int, battery_j: float) -> float:
        """Return for how long to send; 0: ask again."""
        airtime_s: float = self._function("leave", LEAVE_S)(task, cycle, battery_j)
        return airtime_s

    def measuring(self, left_s: float) -> None:
        """Tell how long a benchmark takes yet; older orchestrators do not listen."""
        with suppress(RpcError):
            self._function("measuring", TELL_S)(left_s)

    def bundle(self, hash: str) -> object:
        """Fetch a bundle, which is to be checked."""
        return self._function("bundle", BUNDLE_S)(hash)

    def _function(self, name: str, within_s: float | None = None) -> Any:
        function = self._orchestrator[name]
        return function if within_s is None else function.within(within_s)
