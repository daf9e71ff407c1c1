"""A stream's items between producer and consumer, with credit as backpressure.

The producer may send items worth STREAM_CREDIT ahead of the consumer, and waits for
more credit before it sends others, so neither side's memory grows.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from melisma.rpc.values import Malformed

#: Items that may wait for their consumer; large ones count as several.
STREAM_CREDIT = 16


def cost_of(sizes: Iterable[int]) -> int:
    """Return the credit that an item with buffers of ``sizes`` takes."""
    # At most what the producer has once all earlier items are consumed: the consumer
    # withholds less than half of the credit, since it grants credit by halves.
    return min(STREAM_CREDIT // 2 + 1, 1 + (sum(sizes) >> 20))


class StreamBuffer:
    """Received items of a stream, for one consumer on the session's event loop."""

    def __init__(
        self, grant: Callable[[int], None], cancel: Callable[[], None]
    ) -> None:
        self.cancel = cancel
        self._grant = grant
        self._items: deque[tuple[Any, int]] = deque()
        self._end: BaseException | None = None
        self._changed = asyncio.Event()
        self._consumed, self._credit = 0, STREAM_CREDIT

    def put(self, value: Any, cost: int) -> None:
        """Add an item; Malformed if the producer had no credit for it."""
        self._credit -= cost
        if self._credit < 0:
            raise Malformed("a stream sends more than its credit")
        self._items.append((value, cost))
        self._changed.set()

    def end(self, error: BaseException) -> None:
        """Raise ``error`` in the consumer after the last item."""
        self._end = self._end or error
        self._changed.set()

    async def next(self) -> Any:
        """Return the next item, or raise the error that ended the stream."""
        while not self._items:
            if self._end:
                raise self._end
            self._changed.clear()
            await self._changed.wait()
        value, cost = self._items.popleft()
        self._consumed += cost
        if self._consumed >= STREAM_CREDIT // 2 and not self._end:
            self._credit += self._consumed
            self._grant(self._consumed)
            self._consumed = 0
        return value
