"""Frames between two peers, each exactly once and in order, whatever breaks below.

A link outlives its transports. Both ends count the frames of the session; what the far
side has not confirmed is kept (memory is kept by reference, not copied) and sent again
over the next transport. So a transfer cut in the middle goes on where it was cut, and
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
from melisma.rpc.transport import Transport
from melisma.rpc.values import Buffer, Malformed

#: Sent and unconfirmed bytes above which no more memory is sent.
WINDOW_BYTES = 64 << 20
#: Sent and unconfirmed, or waiting to be sent, where patience ends: a peer that keeps
#: its own limits has a fraction of it.
BACKLOG_BYTES = 4 * WINDOW_BYTES
BACKLOG_FRAMES = 1 << 15
#: After this much of silence a small frame goes out at once.
BATCH_GAP_S = 5e-5
#: Of small frames that travel as one message.
BATCH_BYTES = 1 << 16
#: Received since the last confirmation, above which one is due.
ACK_BYTES = 16 << 20
ACK_FRAMES = 256

WireFrame = bytes | tuple[bytes, memoryview]


class Transfer:
    """A frame and the memory, perhaps none, that follows it."""

    __slots__ = (
        "_buffers",
        "_chunks",
        "bytes",
        "head",
        "id",
        "left_bytes",
        "sent",
    )  # fmt: skip

    def __init__(
        self, head: bytes, id: int = 0, buffers: Sequence[Buffer] = ()
    ) -> None:
        self.head, self.id, self._buffers = head, id, buffers
        self.bytes = self.left_bytes = _total(buffers) if buffers else 0
        self.sent: asyncio.Future[None] | None = None  #: done when all was sent
        self._chunks: Iterator[WireFrame] | None = None

    def chunk(self) -> WireFrame:
        """Return the next chunk; memory is let go once it is out."""
        if self._chunks is None:
            self._chunks = _cut(self.id, self._buffers)
            self._buffers = ()
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
        self._unconfirmed: deque[WireFrame] = deque()  # sent, not confirmed
        self._unconfirmed_bytes = 0
        self._resend: deque[WireFrame] = (
            deque()
        )  # kept, to be sent over this transport too
        self._outbox: deque[bytes] = deque()  # to be sent first
        self._outbox_bytes = 0
        self._queued: deque[Transfer] = deque()  # not announced yet
        self._sending: deque[Transfer] = deque()  # announced, taking turns
        self._announced_bytes = 0
        self._ack_due = False
        self._unacked_bytes = self._unacked_frames = 0
        self._transport: Transport | None = None
        self._unfinished: Awaitable[None] | None = None  # of a frame begun by ``send``
        self._idle: asyncio.Future[None] | None = None
        self._flush_scheduled = False  # whether frames go out in the loop's next turn
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
        if now - last > BATCH_GAP_S:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_scheduled_frames)

    def _flush_scheduled_frames(self) -> None:
        self._flush_scheduled = False
        if self._outbox:
            self._flush()

    def _flush(self) -> None:
        """Send what waits, unless the pump is at it."""
        if self._transport and self._idle and not self._idle.done():
            self._unfinished = self._transport.start_send(self._batch())
            if self._unfinished or self._outbox:
                self._wake()

    def _batch(self) -> bytes:
        """Return the frames that wait, or the first of many, as one message."""
        if len(self._outbox) == 1:
            frame = self._outbox.popleft()
            self._outbox_bytes = 0
            self._track(frame)
            return frame
        taken, size = [], 0
        while self._outbox and size < BATCH_BYTES:
            frame = self._outbox.popleft()
            self._outbox_bytes -= len(frame)
            self._track(frame)
            taken.append(frame)
            size += len(frame) + frames.LENGTH_BYTES
        return frames.batch(taken)

    def send_transfer(self, transfer: Transfer) -> None:
        """Queue a frame with memory; it must fit in ``room_bytes``."""
        self._queued.append(transfer)
        self._wake()

    def cancel(self, transfer: Transfer) -> bool:
        """Send no more of a frame; return whether the far side may know of it."""
        if transfer in self._queued:
            self._queued.remove(transfer)
            self._mark_sent(transfer)
            return False
        if transfer.head in self._outbox:
            self._outbox.remove(transfer.head)
            self._outbox_bytes -= len(transfer.head)
            return False
        if transfer in self._sending:
            self._sending.remove(transfer)
            self._announced_bytes -= transfer.bytes
            self.send(frames.encode(frames.Abort(transfer.id)))
        self._mark_sent(transfer)
        return True

    def unsent(self) -> set[int]:
        """Return the identities of frames of which the far side cannot know."""
        waiting = {id(transfer.head) for transfer in self._queued}
        return waiting | {id(frame) for frame in self._outbox}

    def resume(self, received: int) -> None:
        """Get ready for a new transport, over which the far side said what it has."""
        if not self._confirmed <= received <= self._confirmed + len(self._unconfirmed):
            raise Malformed(f"{received} frames confirmed that were never sent")
        self.confirm(received)
        self._resend = deque(self._unconfirmed)
        self._transport = None  # whoever still pumps into the last one stops

    def confirm(self, received: int) -> None:
        """Forget the frames that the far side has."""
        if received > self._confirmed + len(self._unconfirmed):
            raise Malformed(f"{received} frames confirmed that were never sent")
        while self._confirmed < received:
            self._unconfirmed_bytes -= _size(self._unconfirmed.popleft())
            self._confirmed += 1
        self._wake()

    def count_received(self, size: int) -> None:
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

    def overloaded(self) -> bool:
        """Return whether the far side takes in far less than it asks for."""
        return (
            len(self._unconfirmed) + len(self._outbox) > BACKLOG_FRAMES
            or self._unconfirmed_bytes + self._outbox_bytes > BACKLOG_BYTES
        )

    async def pump(self, transport: Transport) -> None:
        """Send what is queued, for as long as the transport carries."""
        self._transport, self._unfinished = transport, None
        while self._transport is transport:
            if self._unfinished:
                unfinished, self._unfinished = self._unfinished, None
                await unfinished
            elif self._ack_due:
                self._ack_due = False
                await transport.send(frames.encode(frames.Ack(self.received)))
            elif self._resend:
                resent = self._resend.popleft()
                await transport.send(_joined(resent))
            elif self._outbox:
                await transport.send(self._batch())
            elif (chunk := self._next_chunk()) is not None:
                self._track(chunk)
                await transport.send(_joined(chunk))
                await asyncio.sleep(0)  # let a small call in between
            else:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle

    def _next_chunk(self) -> WireFrame | None:
        if self._unconfirmed_bytes >= WINDOW_BYTES:
            return None
        room_bytes = self.room_bytes - self._announced_bytes
        if self._queued and self._queued[0].bytes <= room_bytes:
            transfer = self._queued.popleft()
            self._sending.append(transfer)
            self._announced_bytes += transfer.bytes
            return transfer.head
        if not self._sending:
            return None
        transfer = self._sending.popleft()
        chunk = transfer.chunk()
        if transfer.left_bytes:
            self._sending.append(transfer)
        else:
            self._announced_bytes -= transfer.bytes
            self._mark_sent(transfer)
        return chunk

    def _mark_sent(self, transfer: Transfer) -> None:
        if transfer.sent and not transfer.sent.done():
            transfer.sent.set_result(None)

    def _track(self, frame: WireFrame) -> None:
        self._unconfirmed.append(frame)
        self._unconfirmed_bytes += _size(frame)

    def _wake(self) -> None:
        if self._idle and not self._idle.done():
            self._idle.set_result(None)


def _cut(transfer: int, buffers: Sequence[Buffer]) -> Iterator[WireFrame]:
    prefix, step = frames.chunk_prefix(transfer), frames.CHUNK_BYTES
    for buffer in buffers:
        view = buffer.data
        for start in range(0, len(view), step):
            yield prefix, view[start : start + step]


def _total(buffers: Sequence[Buffer]) -> int:
    return sum([buffer.size for buffer in buffers])


def _size(frame: WireFrame) -> int:
    return len(frame) if isinstance(frame, bytes) else len(frame[1])


def _joined(frame: WireFrame) -> bytes:
    return frame if isinstance(frame, bytes) else b"".join(frame)
