"""Control of a run from outside: pause, resume, stop, expel, another deadline.

Requests may come from any thread; the run's loops check for them between cycles, which
costs next to nothing. A cycle under way is not interrupted, except that an expelled
learner drops out of it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from melisma.fleets.gathering import Gathering

T = TypeVar("T")

#: Between two checks of a paused run whether it may go on.
POLL_S = 0.1


class Intent(StrEnum):
    """What a run is to do after the cycle that is under way."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleUnderWay:
    """A cycle that has begun."""

    cycle: int
    began_s: float  #: on the run's clock
    deadline_s: float


class Control:
    """Shared between the loops of one run and whoever controls it."""

    def __init__(self) -> None:
        self.intent = Intent.RUNNING
        self.under_way: dict[str, CycleUnderWay] = {}  #: by task
        self.now_s: Callable[[], float] = lambda: 0.0  #: the run's clock
        self.gathering: Gathering | None = None  #: who has come, of a live run
        self._lock = threading.Lock()
        self._deadline_s: float | None = None
        self._expelled: list[tuple[str, str]] = []
        self._waiting: set[asyncio.Future[Any]] = set()

    # For whoever controls the run

    def pause(self) -> None:
        """Begin no more cycles for now."""
        with self._lock:
            if self.intent == Intent.RUNNING:
                self.intent = Intent.PAUSED

    def resume(self) -> None:
        """Go on after a pause."""
        with self._lock:
            if self.intent == Intent.PAUSED:
                self.intent = Intent.RUNNING

    def stop(self) -> None:
        """Begin no more cycles, and stop waiting for learners."""
        with self._lock:
            self.intent = Intent.STOPPING
            waiting = list(self._waiting)
        for work in waiting:
            work.get_loop().call_soon_threadsafe(work.cancel)

    def set_deadline(self, deadline_s: float) -> None:
        """Give the task another deadline from its next cycle on."""
        with self._lock:
            self._deadline_s = deadline_s

    def expelled(self, name: str, reason: str) -> None:
        """Have it recorded that a learner was expelled."""
        with self._lock:
            self._expelled.append((name, reason))

    # For the run's loops

    async def goes_on(self) -> bool:
        """Wait while the run is paused; return whether it is to go on."""
        while self.intent == Intent.PAUSED:
            await asyncio.sleep(POLL_S)
        return self.intent != Intent.STOPPING

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what ``work`` returns, or None if the run is to stop instead."""
        waiting = asyncio.ensure_future(work)
        with self._lock:
            self._waiting.add(waiting)
            if self.intent == Intent.STOPPING:
                waiting.cancel()
        try:
            return await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.intent != Intent.STOPPING or (task and task.cancelling()):
                raise
            return None
        finally:
            with self._lock:
                self._waiting.discard(waiting)

    def take_deadline(self) -> float | None:
        """Return the deadline that was set since the last call, if any was."""
        with self._lock:
            asked_s, self._deadline_s = self._deadline_s, None
        return asked_s

    def take_expelled(self) -> list[tuple[str, str]]:
        """Return learners expelled since the last call, and why."""
        with self._lock:
            expelled, self._expelled = self._expelled, []
        return expelled
