"""The seam between the orchestrator and its learners, wherever they are.

An algorithm cannot tell a simulated crew from real devices: it reads the crew's clock,
asks what is known of its learners or for their own bids, gives orders and waits. The
protocols are narrow: `Crew` is what every algorithm needs, and `Trains`, `Sums`
(`fleets.sums`) and `Moves` (`fleets.moves`) add what one family does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from melisma.learning.parameters import Parameters
from melisma.learning.training import Trained
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw

#: Why a learner's work is lost at the deadline.
NOT_THERE = "not there by the deadline"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """One learner's work in a cycle."""

    learner: int  #: its place in the fleet
    samples: int
    steps: int  #: passes over them
    rows: Ints | None = None  #: of the training set; None: of the learner's own data
    begun: int = 0  #: samples of it that a probe has begun with
    waits_s: float = 0.0  #: idle, until it is told the rest (simulated probes)


class Report(Trained, frozen=True, kw_only=True):
    """What one learner did, in seconds since its order was given."""

    learner: int
    downloaded_s: float
    trained_s: float
    uploaded_s: float
    distance: float | None = None  #: from its work redone, where that was checked


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Updates that arrived together, one row each."""

    reports: list[Report]
    parameters: Parameters  #: a stack, in the order of ``reports``


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A learner whose work of this cycle does not count."""

    learner: int
    reason: str
    after_s: float  #: since its order was given
    offence: bool = False  #: it sent what nobody asked for
    distance: float | None = None  #: from its work redone, where that was checked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probed:
    """What learners tell of themselves once they have begun a cycle."""

    there: Ints  #: places of those who began
    law: DelayLaw  #: of those, as they are now
    began_s: float  #: on the fleet's clock
    waits_s: Floats | None = None  #: idle, until they are told the rest (simulated)


class Crew(Protocol):
    """Learners as every algorithm sees them: who is there, and how fast."""

    @property
    def learners(self) -> Sequence[str]:
        """Names of those who take part in this cycle."""

    @property
    def own_samples(self) -> Sequence[int] | None:
        """Samples that lie on each learner (federated); None where they are sent."""

    async def ready(self) -> None:
        """See who is ready, at the start of a cycle."""

    def now_s(self) -> float:
        """Seconds on the crew's clock since the run began."""

    async def law(self) -> DelayLaw:
        """Return what the orchestrator knows of the learners' speed, per sample."""

    def expel(self, name: str, reason: str) -> None:
        """Let a learner take no part any more."""


class Trains(Crew, Protocol):
    """A crew that trains and answers with updates."""

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Ask each learner how many shards it will take, by its own measure (DAB)."""

    def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Have orders carried out; yield updates as they arrive.

        May be called for some learners while others are still at work.
        """


class SharedCrew(Trains, Protocol):
    """Learners that several tasks share."""

    members: Ints  #: places of those who take part in this cycle, among all
    gather: Callable[[], Awaitable[Ints]] | None  #: names them before each cycle

    def wait_until(self, time_s: float) -> None:
        """Let time pass, where it does not by itself."""

    async def probe(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> Probed:
        """Have the members begin with these orders, and report how fast it goes."""
