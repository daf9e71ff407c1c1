"""Delivery of frames exactly once and in order, over transports that may break.

A link outlives its transports. Both ends count the frames of the session. Frames that
the peer has not confirmed are kept (buffers by reference, not copied) and sent again
over the next transport, so a transfer resumes where it was cut and no module above this
one sees a lost connection.

Small frames are sent before chunks, and transfers take turns chunk by chunk: a large
one delays no other. Backpressure is twofold: unconfirmed bytes are bounded here, and
announced buffers by the limit that the peer states in its Hello.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence

from melisma.rpc import frames
from melisma.rpc.transport import Transport
from melisma.rpc.values import Buffer, Malformed

#: No chunks are sent while more bytes than this are unconfirmed.
WINDOW_BYTES = 64 << 20
#: A peer with more than this unconfirmed or queued is overloaded: one that keeps to its
#: own limits has a fraction of it.
BACKLOG_BYTES = 4 * WINDOW_BYTES
BACKLOG_FRAMES = 1 << 15
#: A small frame is sent at once if the last one was longer ago than this.
BATCH_GAP_S = 5e-5
#: Largest batch of small frames.
BATCH_BYTES = 1 << 16
#: Received since the last Ack, above which the next one is due.
ACK_BYTES = 16 << 20
ACK_FRAMES = 256

#: An encoded frame, or the prefix and data of a chunk.
WireFrame = bytes | tuple[bytes, memoryview]


class Transfer:
    """A frame to send, and the buffers that follow it in chunks, if any."""

    __slots__ = ("_buffers", "_chunks", "bytes", "head", "id", "left_bytes", "sent")

    def __init__(
        self, head: bytes, id: int = 0, buffers: Sequence[Buffer] = ()
    ) -> None:
        self.head, self.id, self._buffers = head, id, buffers
        self.bytes = self.left_bytes = _total(buffers) if buffers else 0
        self.sent: asyncio.Future[None] | None = (
            None  #: done when all is sent or cancelled
        )
        self._chunks: Iterator[WireFrame] | None = None

    def chunk(self) -> WireFrame:
        """Return the next chunk, and drop the buffers after the last."""
        if self._chunks is None:
            self._chunks = _cut(self.id, self._buffers)
            self._buffers = ()
        chunk = next(self._chunks)
        self.left_bytes -= _size(chunk)
        if not self.left_bytes:
            self._chunks = None
        return chunk


class Link:
    """The frames of one session: queues to send, and those not confirmed yet."""

    def __init__(self, key: bytes | None = None) -> None:
        #: Secret that a peer shows to resume the session.
        self.key = key or secrets.token_bytes(16)
        self.received = 0  #: frames of the session received
        self.room_bytes = 0  #: limit of the peer on buffers in transfer
        self._confirmed = 0  # frames that the peer has received
        self._confirmed_at = time.monotonic()  # or nothing was to be confirmed
        self._unconfirmed: deque[WireFrame] = deque()  # sent, not confirmed by the peer
        self._unconfirmed_bytes = 0
        self._resend: deque[WireFrame] = deque()  # of these, over this transport
        self._outbox: deque[bytes] = deque()  # small frames, sent first
        self._outbox_bytes = 0
        self._queued: deque[Transfer] = deque()  # not announced yet
        self._sending: deque[Transfer] = deque()  # announced, taking turns
        self._announced_bytes = 0
        self._ack_due = False
        self._unacked_bytes = self._unacked_frames = 0
        self._transport: Transport | None = None
        self._unfinished: Awaitable[None] | None = (
            None  # rest of a send begun by ``_flush``
        )
        self._idle: asyncio.Future[None] | None = None
        self._flush_scheduled = False  # for the event loop's next turn
        self._sent_at = 0.0

    def send(self, frame: bytes) -> None:
        """Send a small frame, at once or batched.

        A message costs far more than the bytes of a small frame, so frames in close
        succession are sent as one batch in the event loop's next turn.
        """
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        now, last = time.perf_counter(), self._sent_at
        self._sent_at = now
        if now - last > BATCH_GAP_S:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_batch)

    def _flush_batch(self) -> None:
        self._flush_scheduled = False
        if self._outbox:
            self._flush()

    def _flush(self) -> None:
        """Send the queued small frames, unless the pump is sending already."""
        if self._transport and self._idle and not self._idle.done():
            self._unfinished = self._transport.start_send(self._batch())
            if self._unfinished or self._outbox:
                self._wake()

    def _batch(self) -> bytes:
        """Take queued small frames, up to BATCH_BYTES, as one message."""
        if len(self._outbox) == 1:
            frame = self._outbox.popleft()
            self._outbox_bytes = 0
            self._track(frame)
            return frame
        batch, size = [], 0
        while self._outbox and size < BATCH_BYTES:
            frame = self._outbox.popleft()
            self._outbox_bytes -= len(frame)
            self._track(frame)
            batch.append(frame)
            size += len(frame) + frames.LENGTH_BYTES
        return frames.batch(batch)

    def send_transfer(self, transfer: Transfer) -> None:
        """Queue a transfer, whose buffers must fit in ``room_bytes``."""
        self._queued.append(transfer)
        self._wake()

    def cancel(self, transfer: Transfer) -> bool:
        """Send no more of a transfer; return whether the peer may have part of it."""
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
        """Return ``id(frame)`` of the queued frames, which the peer cannot have."""
        queued = {id(transfer.head) for transfer in self._queued}
        return queued | {id(frame) for frame in self._outbox}

    def resume(self, received: int) -> None:
        """Prepare for a new transport to a peer that has ``received`` frames."""
        if not self._confirmed <= received <= self._confirmed + len(self._unconfirmed):
            raise Malformed(f"{received} frames confirmed that were never sent")
        self.confirm(received)
        self._resend = deque(self._unconfirmed)
        self._transport = None  # stops the pump of the previous one

    def confirm(self, received: int) -> None:
        """Drop the frames that the peer has received."""
        if received > self._confirmed + len(self._unconfirmed):
            raise Malformed(f"{received} frames confirmed that were never sent")
        if self._confirmed < received:
            self._confirmed_at = time.monotonic()
        while self._confirmed < received:
            self._unconfirmed_bytes -= _size(self._unconfirmed.popleft())
            self._confirmed += 1
        self._wake()

    def count_received(self, size: int) -> None:
        """Count a frame of the session, and send an Ack if one is due."""
        self.received += 1
        self._unacked_frames += 1
        self._unacked_bytes += size
        if self._unacked_bytes >= ACK_BYTES or self._unacked_frames >= ACK_FRAMES:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Send an Ack, which is also a ping."""
        self._unacked_bytes = self._unacked_frames = 0
        self._ack_due = True
        self._wake()

    def overloaded(self) -> bool:
        """Return whether the peer requests far more than it receives."""
        return (
            len(self._unconfirmed) + len(self._outbox) > BACKLOG_FRAMES
            or self._unconfirmed_bytes + self._outbox_bytes > BACKLOG_BYTES
        )

    @property
    def stalled_s(self) -> float:
        """Return for how long the peer has not confirmed what it was sent."""
        return time.monotonic() - self._confirmed_at if self._unconfirmed else 0.0

    def excuse(self) -> None:
        """Begin to count anew how long the peer confirms nothing: nobody listened."""
        self._confirmed_at = time.monotonic()

    async def pump(self, transport: Transport) -> None:
        """Send what is queued, small frames first, while the transport is in use."""
        self._transport, self._unfinished = transport, None
        self._confirmed_at = time.monotonic()
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
                await asyncio.sleep(0)  # lets small frames in between
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
        if not self._unconfirmed:
            self._confirmed_at = time.monotonic()
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
