"""Several tasks that take turns, on a virtual clock or on the real one.

On the virtual clock each task has a time of its own, which jumps. For what they share
to change in the order in which it would really happen, a task waits before each of its
cycles until no other is behind it. At the same time phases go in their order, then who
entered first, so runs repeat exactly.
"""

import asyncio
import time
from typing import Protocol

#: What happens at the same time, in this order: tasks end, tasks come, cycles begin,
#: who found no learner looks again.
END, COME, BEGIN, LOOK_AGAIN = range(4)

#: Between two looks of a task that waits for learners, in real seconds.
LOOK_S = 0.2


class TaskClock(Protocol):
    """Says when a task may go on."""

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on."""

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until it is ``time_s``, and nobody goes first."""

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait until something may have changed; return when that is."""

    def leave(self, name: str) -> None:
        """Be waited for no more."""


class RealClock:
    """The real clock: nobody waits for anybody."""

    def __init__(self, began_s: float = 0.0) -> None:
        self._began = time.monotonic() - began_s

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on."""

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until it is ``time_s``."""
        await asyncio.sleep(max(0.0, self._began + time_s - time.monotonic()))

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait a little."""
        await asyncio.sleep(LOOK_S)
        return time_s + LOOK_S

    def leave(self, name: str) -> None:
        """Be waited for no more."""


class VirtualClock:
    """Tasks that wait for each other's clocks."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, int]] = {}  # in the order of entering
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on; others wait there until this one moves."""
        self._at[name] = time_s, 0

    async def pass_on(self, name: str, time_s: float) -> float:
        """Wait until the first of those in earlier phases has gone on."""
        next_s = min(at_s for at_s, phase in self._at.values() if phase < LOOK_AGAIN)
        time_s = max(time_s, next_s)
        await self.take(name, time_s, LOOK_AGAIN)
        return time_s

    def leave(self, name: str) -> None:
        """Be waited for no more."""
        del self._at[name]
        self._go_on()

    async def take(self, name: str, time_s: float, phase: int = 0) -> None:
        """Wait until nobody is behind ``time_s``, or there and in an earlier phase."""
        self._at[name] = time_s, phase
        turn = self._waiting[name] = asyncio.get_running_loop().create_future()
        self._go_on()
        await turn
        del self._waiting[name]

    def _go_on(self) -> None:
        """Let the first go on, once everybody waits."""
        if self._at and all(name in self._waiting for name in self._at):
            first = min(self._at, key=self._at.__getitem__)
            if not self._waiting[first].done():
                self._waiting[first].set_result(None)
