"""Several tasks on one virtual clock: who is furthest behind goes on.

Each task has a clock of its own, which jumps. For what they share to change in the
order in which it would really happen, a task waits before each of its cycles until no
other is behind it. At the same time phases go in their order, then who entered first,
so runs repeat exactly.
"""

import asyncio


class Turns:
    """Tasks that wait for each other's clocks."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[float, int]] = {}  # in the order of entering
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def enter(self, name: str, time_s: float) -> None:
        """Take part from ``time_s`` on; others wait there until this one moves."""
        self._at[name] = time_s, 0

    def next_s(self, phase: int) -> float:
        """When the first of those in earlier phases wants to go on."""
        return min(time_s for time_s, at in self._at.values() if at < phase)

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
