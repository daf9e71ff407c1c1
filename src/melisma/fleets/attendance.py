"""Learners that say when they go, and when they are back: phones that are locked.

Who is away is asked for nothing and blamed for nothing. Its work of the cycle is waited
for as long as anybody else's, and counts if it comes back in time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

from melisma import rpc
from melisma.errors import ConfigError, readable
from melisma.fleets.gathering import Gathering
from melisma.fleets.protocols import Lost, Updates

#: Longest that a cycle waits for learners that are away, when all others are done.
AWAY_S = 3.0
#: Pause between two looks at who is away.
LOOK_S = 0.5
#: Names that are kept, and characters of a reason.
MOST_NAMES, MOST_CHARACTERS = 4096, 200


class Attendance:
    """Who is away, and why; learners tell it themselves."""

    def __init__(self, gathering: Gathering | None = None) -> None:
        self._reasons: dict[str, str] = {}
        self.gathering = gathering or Gathering()

    @rpc.expose(idempotent=True)
    async def away(self, reason: str) -> None:
        """Note that the caller goes, until it is back."""
        if not isinstance(reason, str):
            raise ConfigError("give a reason as text")
        self.note(rpc.current().caller, reason)

    @rpc.expose(idempotent=True)
    async def back(self) -> None:
        """Note that the caller is here again."""
        self.here(rpc.current().caller)

    @rpc.expose(idempotent=True)
    async def measuring(self, left_s: float) -> None:
        """Note that the caller's benchmark takes so long yet."""
        if not isinstance(left_s, float):
            raise ConfigError("give seconds")
        self.gathering.takes(rpc.current().caller, left_s)

    def here(self, name: str) -> None:
        """Note that a learner is here: it said so, or somebody joined by its name."""
        self._reasons.pop(name, None)

    def note(self, name: str, reason: str) -> None:
        """Note that a learner is away; the earliest note goes where there are many."""
        self._reasons.pop(name, None)
        self._reasons[name] = readable(reason[:MOST_CHARACTERS])
        while len(self._reasons) > MOST_NAMES:
            del self._reasons[next(iter(self._reasons))]

    def reason(self, name: str) -> str | None:
        """Return why a learner is away, as records have it; None if it is here."""
        reason = self._reasons.get(name)
        return None if reason is None else f"away: {reason or 'no reason given'}"

    @property
    def absent(self) -> set[str]:
        """Names of those who are away."""
        return set(self._reasons)


async def while_anybody_works(
    work: Sequence[tuple[int, Coroutine[Any, Any, Updates | Lost]]],
    reason: Callable[[int], str | None],
    after_s: Callable[[], float],
) -> AsyncGenerator[Updates | Lost]:
    """Yield results of the work of learners, by place, in the order of arrival.

    Once all that are left have been away for AWAY_S, they are given up, each for its
    ``reason``. The rest is cancelled when nobody listens.
    """
    loop = asyncio.get_running_loop()
    left = {asyncio.create_task(asking): k for k, asking in work}
    alone_s: float | None = None  # since when all that are left are away
    try:
        while left:
            done, _ = await asyncio.wait(
                left, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [task for task in left if task in done]:
                del left[task]
                yield task.result()
            reasons = {k: reason(k) for k in left.values()}
            if not all(reasons.values()):
                alone_s = None
            elif alone_s is None:
                alone_s = loop.time()
            elif loop.time() - alone_s > AWAY_S:
                for task, k in list(left.items()):
                    task.cancel()
                    del left[task]
                    why = str(reasons[k])
                    yield Lost(learner=k, reason=why, after_s=after_s())
    finally:
        for task in left:
            task.cancel()
