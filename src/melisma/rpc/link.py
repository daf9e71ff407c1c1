"""Frames between two peers, each exactly once and in order, whatever breaks below.

A link outlives its carriers. Both ends count the frames of the session; what the far
side has not confirmed is kept (memory is kept by reference, not copied) and sent again
over the next carrier. So a transfer cut in the middle goes on where it was cut, and
nothing above this file knows that a connection was lost.

Small frames go before memory, and transfers take turns chunk by chunk, so that a large
one holds up nobody. What is sent and unconfirmed is bounded, and so is the memory
announced to the far side, which says how much it takes.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence

from melisma.rpc import frames
from melisma.rpc.transport import Carrier
from melisma.rpc.values import Malformed, Memory

#: Sent and unconfirmed bytes above which no more memory is sent.
WINDOW_BYTES = 64 << 20
#: Sent and unconfirmed, or waiting to be sent, where patience ends: a peer that keeps
#: its own limits has a fraction of it.
OVERDUE_BYTES = 4 * WINDOW_BYTES
OVERDUE_FRAMES = 1 << 15
#: After this much of silence a small frame goes out at once.
LULL_S = 5e-5
#: Of small frames that travel as one message.
BATCH_BYTES = 1 << 16
#: Received since the last confirmation, above which one is due.
ACK_BYTES = 16 << 20
ACK_FRAMES = 256

Kept = bytes | tuple[bytes, memoryview]


class Bulk:
    """A frame and the memory, perhaps none, that follows it."""

    __slots__ = ("_chunks", "_memories", "bytes", "gone", "head", "left_bytes",
                 "transfer")  # fmt: skip

    def __init__(
        self, head: bytes, transfer: int = 0, memories: Sequence[Memory] = ()
    ) -> None:
        self.head, self.transfer, self._memories = head, transfer, memories
        self.bytes = self.left_bytes = _total(memories) if memories else 0
        self.gone: asyncio.Future[None] | None = None  #: done when all was sent
        self._chunks: Iterator[Kept] | None = None

    def chunk(self) -> Kept:
        """Return the next chunk; memory is let go once it is out."""
        if self._chunks is None:
            self._chunks = _cut(self.transfer, self._memories)
            self._memories = ()
        chunk = next(self._chunks)
        self.left_bytes -= _size(chunk)
        if not self.left_bytes:
            self._chunks = None
        return chunk


class Link:
    """One session's frames."""

    def __init__(self, key: bytes | None = None) -> None:
        #: Whoever shows this key goes on with the session.
        self.key = key or secrets.token_bytes(16)
        self.received = 0  #: frames of the session that arrived here
        self.room_bytes = 0  #: memory that the far side lets be under way
        self._confirmed = 0  # frames that the far side has
        self._kept: deque[Kept] = deque()  # sent, not confirmed
        self._kept_bytes = 0
        self._again: deque[Kept] = deque()  # kept, to be sent over this carrier too
        self._outbox: deque[bytes] = deque()  # to be sent first
        self._outbox_bytes = 0
        self._waiting: deque[Bulk] = deque()  # not announced yet
        self._sending: deque[Bulk] = deque()  # announced, taking turns
        self._announced_bytes = 0
        self._ack_due = False
        self._unacked_bytes = self._unacked_frames = 0
        self._carrier: Carrier | None = None
        self._rest: Awaitable[None] | None = None  # of a frame begun by ``send``
        self._idle: asyncio.Future[None] | None = None
        self._gathering = False  # whether frames go out in the loop's next turn
        self._sent_at = 0.0

    def send(self, frame: bytes) -> None:
        """Send a small frame: at once, or with others if it is one of many.

        To send and to receive costs far more than what is in a frame, so those that
        follow each other closely go out together in the event loop's next turn.
        """
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        now, last = time.perf_counter(), self._sent_at
        self._sent_at = now
        if now - last > LULL_S:
            self._flush()
        elif not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_soon(self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        if self._outbox:
            self._flush()

    def _flush(self) -> None:
        """Send what waits, unless the pump is at it."""
        if self._carrier and self._idle and not self._idle.done():
            self._rest = self._carrier.begin(self._batch())
            if self._rest or self._outbox:
                self._wake()

    def _batch(self) -> bytes:
        """Return the frames that wait, or the first of many, as one message."""
        if len(self._outbox) == 1:
            frame = self._outbox.popleft()
            self._outbox_bytes = 0
            self._keep(frame)
            return frame
        taken, size = [], 0
        while self._outbox and size < BATCH_BYTES:
            frame = self._outbox.popleft()
            self._outbox_bytes -= len(frame)
            self._keep(frame)
            taken.append(frame)
            size += len(frame) + frames.LENGTH_BYTES
        return frames.batch(taken)

    def send_bulk(self, bulk: Bulk) -> None:
        """Queue a frame with memory; it must fit in ``room_bytes``."""
        self._waiting.append(bulk)
        self._wake()

    def withdraw(self, bulk: Bulk) -> bool:
        """Send no more of a frame; return whether the far side may know of it."""
        if bulk in self._waiting:
            self._waiting.remove(bulk)
            self._finish(bulk)
            return False
        if bulk.head in self._outbox:
            self._outbox.remove(bulk.head)
            self._outbox_bytes -= len(bulk.head)
            return False
        if bulk in self._sending:
            self._sending.remove(bulk)
            self._announced_bytes -= bulk.bytes
            self.send(frames.encode(frames.Abort(bulk.transfer)))
        self._finish(bulk)
        return True

    def unsent(self) -> set[int]:
        """Return the identities of frames of which the far side cannot know."""
        waiting = {id(bulk.head) for bulk in self._waiting}
        return waiting | {id(frame) for frame in self._outbox}

    def resume(self, received: int) -> None:
        """Get ready for a new carrier, over which the far side said what it has."""
        if not self._confirmed <= received <= self._confirmed + len(self._kept):
            raise Malformed(f"{received} frames confirmed that were never sent")
        self.confirm(received)
        self._again = deque(self._kept)
        self._carrier = None  # whoever still pumps into the last one stops

    def confirm(self, received: int) -> None:
        """Forget the frames that the far side has."""
        if received > self._confirmed + len(self._kept):
            raise Malformed(f"{received} frames confirmed that were never sent")
        while self._confirmed < received:
            self._kept_bytes -= _size(self._kept.popleft())
            self._confirmed += 1
        self._wake()

    def count(self, size: int) -> None:
        """Note that a frame of the session arrived."""
        self.received += 1
        self._unacked_frames += 1
        self._unacked_bytes += size
        if self._unacked_bytes >= ACK_BYTES or self._unacked_frames >= ACK_FRAMES:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Tell the far side what arrived, and that this side lives."""
        self._unacked_bytes = self._unacked_frames = 0
        self._ack_due = True
        self._wake()

    def overdue(self) -> bool:
        """Return whether the far side takes in far less than it asks for."""
        return (
            len(self._kept) + len(self._outbox) > OVERDUE_FRAMES
            or self._kept_bytes + self._outbox_bytes > OVERDUE_BYTES
        )

    async def pump(self, carrier: Carrier) -> None:
        """Send what is queued, for as long as the carrier carries."""
        self._carrier, self._rest = carrier, None
        while self._carrier is carrier:
            if self._rest:
                rest, self._rest = self._rest, None
                await rest
            elif self._ack_due:
                self._ack_due = False
                await carrier.send(frames.encode(frames.Ack(self.received)))
            elif self._again:
                again = self._again.popleft()
                await carrier.send(_joined(again))
            elif self._outbox:
                await carrier.send(self._batch())
            elif (chunk := self._next_chunk()) is not None:
                self._keep(chunk)
                await carrier.send(_joined(chunk))
                await asyncio.sleep(0)  # let a small call in between
            else:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle

    def _next_chunk(self) -> Kept | None:
        if self._kept_bytes >= WINDOW_BYTES:
            return None
        room_bytes = self.room_bytes - self._announced_bytes
        if self._waiting and self._waiting[0].bytes <= room_bytes:
            bulk = self._waiting.popleft()
            self._sending.append(bulk)
            self._announced_bytes += bulk.bytes
            return bulk.head
        if not self._sending:
            return None
        bulk = self._sending.popleft()
        chunk = bulk.chunk()
        if bulk.left_bytes:
            self._sending.append(bulk)
        else:
            self._announced_bytes -= bulk.bytes
            self._finish(bulk)
        return chunk

    def _finish(self, bulk: Bulk) -> None:
        if bulk.gone and not bulk.gone.done():
            bulk.gone.set_result(None)

    def _keep(self, frame: Kept) -> None:
        self._kept.append(frame)
        self._kept_bytes += _size(frame)

    def _wake(self) -> None:
        if self._idle and not self._idle.done():
            self._idle.set_result(None)


def _cut(transfer: int, memories: Sequence[Memory]) -> Iterator[Kept]:
    prefix, step = frames.chunk_prefix(transfer), frames.CHUNK_BYTES
    for memory in memories:
        view = memory.data
        for start in range(0, len(view), step):
            yield prefix, view[start : start + step]


def _total(memories: Sequence[Memory]) -> int:
    return sum([memory.size for memory in memories])


def _size(frame: Kept) -> int:
    return len(frame) if isinstance(frame, bytes) else len(frame[1])


def _joined(frame: Kept) -> bytes:
    return frame if isinstance(frame, bytes) else b"".join(frame)
