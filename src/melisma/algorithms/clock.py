"""Several tasks that take turns, on a virtual clock or on the real one.

On the virtual clock each task has its own time, which jumps from event to event. Before
each of its cycles a task waits until no other task is behind it, so that learners and
budget, which they share, change in the order in which they would on a real clock. Ties
are broken by phase, then by the order of entering, so runs repeat exactly.
"""

import asyncio
import time
from typing import Protocol

#: Phases of what happens at the same time, in this order: tasks end, tasks arrive,
#: cycles begin, tasks that found no free learner retry.
END, ARRIVE, BEGIN, RETRY = range(4)

#: Between two tries of a task that waits for learners, in real seconds.
POLL_S = 0.2


class TaskClock(Protocol):
    """Decides when a task may go on."""

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on."""

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until it is ``time_s``, and no other task goes first."""

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait until something may have changed; return when that is."""

    def leave(self, name: str) -> None:
        """Drop out: the others no longer wait for this task."""


class RealClock:
    """The real clock: tasks do not wait for each other."""

    def __init__(self, began_s: float = 0.0) -> None:
        self._began = time.monotonic() - began_s

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on."""

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until it is ``time_s``."""
        await asyncio.sleep(max(0.0, self._began + time_s - time.monotonic()))

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait for `POLL_S`."""
        await asyncio.sleep(POLL_S)
        return time_s + POLL_S

    def leave(self, name: str) -> None:
        """Drop out: the others no longer wait for this task."""


class VirtualClock:
    """Tasks that wait for each other's clocks."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, int]] = {}  # in the order of entering
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on; others wait there until this one moves."""
        self._at[name] = time_s, 0

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait until the earliest task that does not itself retry has gone on."""
        next_s = min(at_s for at_s, phase in self._at.values() if phase < RETRY)
        time_s = max(time_s, next_s)
        await self.take(name, time_s, RETRY)
        return time_s

    def leave(self, name: str) -> None:
        """Drop out: the others no longer wait for this task."""
        del self._at[name]
        self._go_on()

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until no task is before (``time_s``, ``phase``)."""
        self._at[name] = time_s, phase
        turn = self._waiting[name] = asyncio.get_running_loop().create_future()
        self._go_on()
        await turn
        del self._waiting[name]

    def _go_on(self) -> None:
        """Wake the first task, once all of them wait."""
        if self._at and all(name in self._waiting for name in self._at):
            first = min(self._at, key=self._at.__getitem__)
            if not self._waiting[first].done():
                self._waiting[first].set_result(None)
