"""The interface of sweep engines, and the loop that they share.

`engine_of` makes an engine of a pool of workers, to which it hands trials. If a worker
dies, its trial is begun again, at most TRIES times; other trials are not affected.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from melisma.errors import LostError

Todo = TypeVar("Todo")
Result = TypeVar("Result")

#: Called by a trial to report progress.
Tick = Callable[[], None]

#: Times that a trial is begun before it counts as lost.
TRIES = 3


class Engine(Protocol):
    """Does a trial for each item of a list, in processes of its choice."""

    def __call__(
        self,
        trial: Callable[[Todo, Tick], Result],
        todo: Sequence[Todo],
        tick: Tick = lambda: None,
    ) -> Iterator[tuple[int, Result | LostError]]:
        """Yield (index in ``todo``, result) as trials end.

        A trial whose process or node was lost is begun again, at most TRIES times in
        all; then its result is a LostError. An exception of a trial is raised here and
        ends the others. ``tick`` is called for every tick of a trial; the repeated
        ticks of a trial that is begun again are not counted twice.
        """


def in_turn(
    trial: Callable[[Todo, Tick], Result],
    todo: Sequence[Todo],
    tick: Tick = lambda: None,
) -> Iterator[tuple[int, Result | LostError]]:
    """Do trials one after another in this process."""
    for index, item in enumerate(todo):
        yield index, trial(item, tick)


@dataclass(frozen=True, slots=True)
class Ticked:
    """A trial made progress."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class Returned:
    """A trial ended."""

    result: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A trial ended by raising."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Died:
    """The process or node of a trial was lost."""

    reason: str


TrialEvent = Ticked | Returned | Raised | Died


class WorkerPool(Protocol):
    """An engine's workers, which do one trial at a time each."""

    def has_room(self) -> bool:
        """Return whether one more trial may be begun."""

    def begin(self, number: int, trial: Callable[..., Any], item: object) -> None:
        """Begin a trial; later events of it carry its number."""

    def events(self) -> Iterable[tuple[int, TrialEvent]]:
        """Wait for events of trials under way; return them with the trials' numbers."""

    def abandon(self) -> None:
        """End the trials under way; their results are no longer wanted."""


def engine_of(pool: WorkerPool) -> Engine:
    """Return an engine that uses a pool's workers, for one sweep at a time."""

    def engine(
        trial: Callable[[Todo, Tick], Result],
        todo: Sequence[Todo],
        tick: Tick = lambda: None,
    ) -> Iterator[tuple[int, Result | LostError]]:
        waiting, remaining = deque(range(len(todo))), len(todo)
        tries, ticks, reported = Counter[int](), Counter[int](), Counter[int]()
        try:
            while remaining:
                while waiting and pool.has_room():
                    number = waiting.popleft()
                    tries[number] += 1
                    ticks[number] = 0
                    pool.begin(number, trial, todo[number])
                for number, event in pool.events():
                    match event:
                        case Ticked(times):
                            ticks[number] += times
                            while reported[number] < ticks[number]:
                                reported[number] += 1
                                tick()
                        case Returned(result):
                            remaining -= 1
                            yield number, result
                        case Raised(error):
                            raise error
                        case Died(reason) if tries[number] == TRIES:
                            remaining -= 1
                            yield number, LostError(f"lost {TRIES} times: {reason}")
                        case Died():
                            waiting.appendleft(number)
        finally:
            pool.abandon()

    return engine
