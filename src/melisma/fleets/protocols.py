"""The seam between the orchestrator and its learners, wherever they are.

A crew is the learners of one task in one run. An algorithm treats a simulated crew and
real devices alike: it reads the crew's clock, asks for the learners' delay law or their
bids, gives orders and waits. `Crew` is what every algorithm needs; `Trains`, `Sums`
(`fleets.sums`) and `Moves` (`fleets.moves`) add what one family of algorithms needs.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from melisma.learning.parameters import Parameters
from melisma.learning.submodels.part import Part
from melisma.learning.training import Trained
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw

#: How the reason ends why numbers do not count that are NaN or infinite.
NOT_FINITE = "not finite"
#: Why a learner's work is lost at the deadline.
NOT_THERE = "not there by the deadline"
#: Why an update does not count that came too late for a cycle that others had ended.
NOT_NEEDED = "not needed: enough others were there before"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order:
    """One learner's work in a cycle."""

    learner: int  #: its place in the crew
    samples: int
    steps: int  #: epochs over them
    rows: Ints | None = None  #: of the training set; None: of the learner's own data
    begun: int = 0  #: samples of it that were dispatched by a probe already
    waits_s: float = 0.0  #: idle after a probe, until this order comes (simulated)
    correction: Parameters | None = None  #: added to every gradient (SCAFFOLD)
    option: int = 0  #: by which it takes part, of those that the job lists


class Report(Trained, frozen=True, kw_only=True):
    """What one learner did, in seconds since its order was given."""

    learner: int
    downloaded_s: float
    trained_s: float
    uploaded_s: float
    distance: float | None = None  #: from its work redone, where that was checked
    age: int = 0  #: cycles since its order, where it was carried on (Late.CARRY)
    waited_s: float = 0.0  #: before it began, for an earlier order to be done
    spent_j: float | None = None  #: until it was trained, by a sensor of the learner


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Updates that arrived together, one row each."""

    reports: list[Report]
    parameters: Parameters  #: a stack, in the order of ``reports``
    part: Part | None = None  #: of the model, which these are of; None: all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A learner whose work in this cycle does not count, or not yet."""

    learner: int
    reason: str
    after_s: float  #: since its order was given
    offence: bool = False  #: it answered with what no correct learner sends
    distance: float | None = None  #: from its work redone, where that was checked
    goes_on: bool = False  #: its update counts when it comes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probed:
    """Speeds that learners measured on the first batches of a cycle."""

    there: Ints  #: places of the learners that began
    law: DelayLaw  #: of these learners, as measured
    began_s: float  #: on the crew's clock
    waits_s: Floats | None = None  #: idle, until the rest is ordered (simulated)


class Crew(Protocol):
    """Learners as every algorithm sees them: names, clock and delay law."""

    @property
    def learners(self) -> Sequence[str]:
        """Names of the learners that take part in this cycle."""

    @property
    def own_samples(self) -> Sequence[int] | None:
        """Samples on each learner (federated); None where samples are sent."""

    async def ready(self) -> None:
        """Find out which learners are ready, at the start of a cycle."""

    def now_s(self) -> float:
        """Seconds on the crew's clock since the run began."""

    async def law(self) -> DelayLaw:
        """Return the learners' delay law per sample, as the orchestrator knows it."""

    def expel(self, name: str, reason: str) -> None:
        """Exclude a learner from all cycles to come."""


class Complaint(NamedTuple):
    """Why a learner gave no answer that counts, apart from any work."""

    learner: str
    reason: str
    offence: bool = True


@runtime_checkable
class Judges(Protocol):
    """A crew whose learners may answer wrongly before they have any work."""

    def take_complaints(self) -> list[Complaint]:
        """Return what is to be recorded of learners since the last call."""


@runtime_checkable
class Spreads(Protocol):
    """A crew that knows how far its learners' benchmarks spread."""

    def spread(self) -> Floats:
        """Return σ of the logarithm of their times: compute and link × learners."""


@runtime_checkable
class Carries(Protocol):
    """A crew whose learners go on with their orders after the deadline."""

    def rest_s(self) -> Floats:
        """Return how long each learner will be at work on earlier orders."""

    @property
    def staleness_at_most(self) -> int:
        """Cycles that an update is waited for."""


@runtime_checkable
class Jumps(Crew, Protocol):
    """A crew on a virtual clock, whose learners may be away for a while."""

    def returns_s(self) -> float:
        """Return when the first is back that is away; inf: nobody is, or for good."""

    def wait_until(self, time_s: float) -> None:
        """Advance the clock to a time, if that is later."""


@runtime_checkable
class EndsEarly(Protocol):
    """A crew whose cycles may end before the deadline, at so many updates."""

    enough: int | None  #: so many; None: all that come by the deadline


class Trains(Crew, Protocol):
    """A crew that trains and answers with updates."""

    async def bids(self, *, deadline_s: float, steps: int, shard: int) -> Ints:
        """Ask each learner how many shards it will take, by its own estimate (DAB)."""

    def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        """Have orders carried out; yield updates as they arrive.

        May be called for some learners while others are still at work.
        """


class Flows(Crew, Protocol):
    """A crew whose learners work each in its own time."""

    def idle(self) -> list[int]:
        """Return the places of learners that have no order."""

    def order(self, order: Order, parameters: Parameters) -> None:
        """Give a learner its next order: to train this model."""

    async def arrival(self, until_s: float) -> Updates | Lost | None:
        """Wait for what arrives next; None if nothing does by then, or at all."""


class SharedCrew(Trains, Protocol):
    """Learners that several tasks share."""

    members: Ints  #: places of the learners in this cycle, among all learners
    gather: Callable[[], Awaitable[Ints]] | None  #: returns them before each cycle

    def wait_until(self, time_s: float) -> None:
        """Advance a virtual clock; a real one needs nothing."""

    async def probe(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> Probed:
        """Have the members begin with these orders, and report how fast it goes."""
