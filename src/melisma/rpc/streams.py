"""A stream's items between producer and consumer, with credit as backpressure.

The producer may send items worth STREAM_CREDIT ahead of the consumer, and waits for
more credit before it sends others, so neither side's memory grows.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from melisma.rpc.values import Malformed

#: Items of a stream that may wait for their consumer; a large one counts as many.
STREAM_CREDIT = 16


def cost_of(sizes: Iterable[int]) -> int:
    """Return how much of a stream's credit an item with memory of ``sizes`` takes."""
    # No more than is there for sure once all before it is consumed: less than half of
    # the credit waits to be granted.
    return min(STREAM_CREDIT // 2 + 1, 1 + (sum(sizes) >> 20))


class StreamBuffer:
    """A stream's items as they arrive, for one consumer on the session's loop."""

    def __init__(
        self, grant: Callable[[int], None], cancel: Callable[[], None]
    ) -> None:
        self.cancel = cancel
        self._grant = grant
        self._items: deque[tuple[Any, int]] = deque()
        self._end: BaseException | None = None
        self._more = asyncio.Event()
        self._owed, self._credit = 0, STREAM_CREDIT

    def put(self, value: Any, cost: int) -> None:
        """Add an item; Malformed if its producer did not wait for room."""
        self._credit -= cost
        if self._credit < 0:
            raise Malformed("a stream brings more than was asked for")
        self._items.append((value, cost))
        self._more.set()

    def end(self, error: BaseException) -> None:
        """Let the consumer meet ``error`` after the last item."""
        self._end = self._end or error
        self._more.set()

    async def next(self) -> Any:
        """Return the next item, or raise what ended the stream."""
        while not self._items:
            if self._end:
                raise self._end
            self._more.clear()
            await self._more.wait()
        value, cost = self._items.popleft()
        self._owed += cost
        if self._owed >= STREAM_CREDIT // 2 and not self._end:
            self._credit += self._owed
            self._grant(self._owed)
            self._owed = 0
        return value
