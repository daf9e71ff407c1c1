"""One budget for what all peers of a server have half sent, per server and per token.

A value that arrives in chunks reserves its size before it is allocated. Where there is
no room, nothing is read from that connection until there is, so the peer waits as well:
a crowd that sends at once is served in turn, in the order of asking, answers before
calls that nobody asked for. One token may have half of the budget. Room that stays
short is made: transfers that would take more than a minute yet are cut off with their
sessions, those of a token that has its half for that token alone.
"""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from melisma.cgroups import memory_limits

#: How long a transfer waits before another one is cut off for it.
PATIENCE_S = 10.0
#: A transfer that takes no longer than this from now on is left alone.
SOON_S = 60.0
#: The share of this process's memory that peers may fill by default.
SHARE = 0.25


class Arriving(Protocol):
    """A value that comes in chunks."""

    bytes: int
    left_bytes: int


class Reservation:
    """Room for one value; ``granted`` is done once there is some."""

    def __init__(self, budget: "Budget", owner: str, size: int) -> None:
        self.owner, self.size = owner, size
        self.granted: asyncio.Future[None] = budget.loop.create_future()
        self.since_s = budget.loop.time()  #: asked, then granted
        self.arriving: Arriving | None = None
        self.asked = False  #: it answers a call of ours
        self.cut_off: Callable[[], None] = lambda: None  #: ends the session
        self._budget = budget

    def release(self) -> None:
        """Give the room back, or leave the line."""
        self._budget.release(self)


class Budget:
    """The room for the values of all sessions of a server, on one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.most_bytes, self.held_bytes = most_bytes, 0
        self._by_owner: Counter[str] = Counter()
        self._holding: set[Reservation] = set()
        self._line: list[Reservation] = []
        self._timer: asyncio.TimerHandle | None = None

    def reserve(
        self,
        owner: str,
        size: int,
        arriving: Arriving | None = None,
        cut_off: Callable[[], None] = lambda: None,
        *,
        asked: bool = False,
    ) -> Reservation:
        """Ask for room; ``cut_off`` ends the session of a value that is too slow.

        A value that was ``asked`` for comes before those that were not.
        """
        reservation = Reservation(self, owner, size)
        reservation.arriving, reservation.cut_off = arriving, cut_off
        reservation.asked = asked
        ahead = sum(other.asked for other in self._line) if asked else len(self._line)
        self._line.insert(ahead, reservation)
        self._serve()
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Give room back, and grant it to who waits."""
        if reservation in self._holding:
            self._holding.remove(reservation)
            self.held_bytes -= reservation.size
            self._by_owner[reservation.owner] -= reservation.size
            if not self._by_owner[reservation.owner]:
                del self._by_owner[reservation.owner]
        elif reservation in self._line:
            self._line.remove(reservation)
            reservation.granted.cancel()
        self._serve()

    def _serve(self) -> None:
        """Grant what fits, in order; a token above its share lets others pass."""
        for reservation in list(self._line):
            if not self._fits(self.held_bytes, reservation.size, self.most_bytes):
                break
            if self._has_share(reservation):
                self._grant(reservation)
        if self._line and self._timer is None:
            self._timer = self.loop.call_later(PATIENCE_S, self._make_room)

    def _has_share(self, reservation: Reservation) -> bool:
        """Whether a value fits into the half that its token may have."""
        own = self._by_owner[reservation.owner]
        return self._fits(own, reservation.size, self.most_bytes // 2)

    @staticmethod
    def _fits(held: int, size: int, most: int) -> bool:
        """Whether a value fits; one that is larger than all room fits alone."""
        return not held or held + size <= most

    def _grant(self, reservation: Reservation) -> None:
        self._line.remove(reservation)
        self._holding.add(reservation)
        self.held_bytes += reservation.size
        self._by_owner[reservation.owner] += reservation.size
        reservation.since_s = self.loop.time()
        if not reservation.granted.done():
            reservation.granted.set_result(None)

    def _make_room(self) -> None:
        """Cut off slow transfers in the way of those that have waited for long."""
        self._timer = None
        since_s = self.loop.time() - PATIENCE_S
        waiting = [one for one in self._line if one.since_s <= since_s]
        # One that its own token keeps waiting has nobody else cut off for it.
        whose = {one.owner for one in waiting if not self._has_share(one)}
        anybody = any(self._has_share(one) for one in waiting)
        for held in list(self._holding):
            in_the_way = anybody or held.owner in whose
            if in_the_way and held.since_s <= since_s and self._yet_s(held) > SOON_S:
                held.cut_off()
        self._serve()

    def _yet_s(self, reservation: Reservation) -> float:
        """Return how long a transfer takes yet, at its speed so far."""
        arriving = reservation.arriving
        if arriving is None or not arriving.left_bytes:
            return 0.0
        took_s = self.loop.time() - reservation.since_s
        came = arriving.bytes - arriving.left_bytes
        return arriving.left_bytes * took_s / max(1, came)


def default_bytes() -> int:
    """Return the part of this process's memory that peers may fill together."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [memory, *([limit] if limit != resource.RLIM_INFINITY else [])]
    return max(1, int(SHARE * min([*bounds, *memory_limits()])))
