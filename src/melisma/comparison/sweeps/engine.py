"""The seam: what every engine does, and what one is made of.

An engine is a crew of workers, to which `swept_by` hands trials. A worker that dies
costs its trial one of its tries; the others do not notice.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from melisma.errors import LostError

Todo = TypeVar("Todo")
Result = TypeVar("Result")

#: Called by a trial as it gets on, for whoever watches.
Tick = Callable[[], None]

#: Times that a trial is begun before it is given up as lost.
TRIES = 3


class Engine(Protocol):
    """Does a trial for each of some things, in whatever processes."""

    def __call__(
        self,
        trial: Callable[[Todo, Tick], Result],
        todo: Sequence[Todo],
        tick: Tick = lambda: None,
    ) -> Iterator[tuple[int, Result | LostError]]:
        """Yield places in ``todo`` and what each came to, as they end.

        A trial whose process or node was lost is begun again, at most TRIES times in
        all; then its result is a LostError. What a trial raises is raised here, and
        ends the others. ``tick`` is called for every tick of a trial, but not again for
        those of a trial that is begun again.
        """


def in_turn(
    trial: Callable[[Todo, Tick], Result],
    todo: Sequence[Todo],
    tick: Tick = lambda: None,
) -> Iterator[tuple[int, Result | LostError]]:
    """Do one after another in this process: the engine of one that needs no other."""
    for index, item in enumerate(todo):
        yield index, trial(item, tick)


@dataclass(frozen=True, slots=True)
class Ticked:
    """A trial got on."""

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
    """Whatever a trial ran in is no more."""

    reason: str


News = Ticked | Returned | Raised | Died


class Crew(Protocol):
    """Workers of an engine, who do one trial at a time each."""

    def has_room(self) -> bool:
        """Whether one more trial may be begun."""

    def begin(self, number: int, trial: Callable[..., Any], item: object) -> None:
        """Begin a trial; what is heard of it later carries its number."""

    def hear(self) -> Iterable[tuple[int, News]]:
        """Wait until something is heard of trials that were begun."""

    def abandon(self) -> None:
        """End the trials under way, whose results nobody wants any more."""


def swept_by(crew: Crew) -> Engine:
    """The engine that a crew is; one sweep at a time."""

    def engine(
        trial: Callable[[Todo, Tick], Result],
        todo: Sequence[Todo],
        tick: Tick = lambda: None,
    ) -> Iterator[tuple[int, Result | LostError]]:
        waiting, left = deque(range(len(todo))), len(todo)
        tries, ticks, reported = Counter[int](), Counter[int](), Counter[int]()
        try:
            while left:
                while waiting and crew.has_room():
                    number = waiting.popleft()
                    tries[number] += 1
                    ticks[number] = 0
                    crew.begin(number, trial, todo[number])
                for number, news in crew.hear():
                    match news:
                        case Ticked(times):
                            ticks[number] += times
                            while reported[number] < ticks[number]:
                                reported[number] += 1
                                tick()
                        case Returned(result):
                            left -= 1
                            yield number, result
                        case Raised(error):
                            raise error
                        case Died(reason) if tries[number] == TRIES:
                            left -= 1
                            yield number, LostError(f"lost {TRIES} times: {reason}")
                        case Died():
                            waiting.appendleft(number)
        finally:
            crew.abandon()

    return engine
