"""A session with one peer: calls both ways, over one transport after another.

The session assembles values from frames and chunks, passes calls to its dispatcher and
answers to its caller, and sends pings. When a transport breaks, the peer has a grace
period to reconnect, which caller and dispatcher do not notice. After it, or if the peer
restarted, the session ends: pending calls fail and running functions are cancelled.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

from melisma import __version__
from melisma.errors import ProtocolError, RpcError, TransportError
from melisma.rpc import frames
from melisma.rpc.caller import Caller
from melisma.rpc.channel import Channel
from melisma.rpc.dispatch import Dispatcher
from melisma.rpc.incoming import IncomingTransfer
from melisma.rpc.limits import Limits
from melisma.rpc.link import Link
from melisma.rpc.memory import Budget, Reservation
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Peer
from melisma.rpc.service import Service
from melisma.rpc.transport import Closed, Transport
from melisma.rpc.values import INLINE_BYTES, Buffer, Malformed

#: A peer's longer ping interval does not extend the timeout for its silence.
LONGEST_PING_S = 60.0
#: How long sending a Bye may take.
BYE_S = 1.0
#: Between two looks whether a connection that waits for memory is still in use.
LOOK_S = 1.0
#: Decoded, a body takes up to so many times its bytes: an empty list is one byte long,
#: and takes 56 and a pointer.
DECODED = 64


class Session(Channel):
    """Sends and receives the calls of one peer, on one event loop."""

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        limits: Limits,
        metrics: Metrics,
        may_call: Callable[[str], bool],
        executor: concurrent.futures.Executor | None = None,
        on_end: Callable[[], None] = lambda: None,
        budget: Budget | None = None,
        owner: str = "",
    ) -> None:
        super().__init__(name, limits, metrics)
        self._budget, self._owner = budget, owner  # of memory, by token
        self._unreserved: list[Reservation] = []  # asked for, not granted yet
        self.caller = Caller(self)
        self.peer = Peer(self.caller)
        self.dispatcher = Dispatcher(
            self, service, may_call, executor, peer=lambda: self.peer
        )
        self._on_end = on_end
        self._silence_s = limits.silence_s
        self._received_at = self.loop.time()
        self._incoming: dict[int, IncomingTransfer] = {}
        self._incoming_bytes = 0
        self._grace: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        caller, dispatcher = self.caller, self.dispatcher
        self._handlers: dict[type, Callable[[Any], None]] = {
            frames.Ack: lambda frame: self.link.confirm(frame.received),
            frames.Bye: self._on_bye,
            frames.Call: self._on_value,
            frames.Result: self._on_value,
            frames.Item: self._on_value,
            frames.Abort: self._on_abort,
            frames.Cancel: dispatcher.on_cancel,
            frames.Credit: dispatcher.on_credit,
            frames.Stream: caller.on_stream,
            frames.Fault: caller.on_fault,
        }

    @property
    def silence_s(self) -> float:
        """Return seconds since the last message of the peer."""
        return max(0.0, self.loop.time() - self._received_at)

    # Connection

    def hello(self, name: str, resumes: bool) -> bytes:
        """Return the first frame to send over a transport, for the handshake."""
        return frames.encode(
            frames.Hello(
                protocol=frames.PROTOCOL,
                library=__version__,
                name=name,
                session=self.link.key if resumes else b"",
                received=self.link.received if resumes else 0,
                message_bytes=self.limits.message_bytes,
                functions=self.dispatcher.offered(),
                ping_s=self.limits.ping_s,
            )
        )

    def restart(self, key: bytes | None = None) -> None:
        """Begin a new session with ``key``, or a random one, and drop the old state."""
        self.caller.restart(self.link.unsent())
        self._clear(Link(key))
        self.ended = None

    def _clear(self, link: Link) -> None:
        self.dispatcher.drop_all()
        for incoming in self._incoming.values():
            incoming.discard()
        self._incoming.clear()
        self._unreserved.clear()
        self._incoming_bytes = 0
        self.link = link

    def resume(self, hello: frames.Hello) -> None:
        """Continue the session from the state in the peer's Hello."""
        self.functions = hello.functions
        if 0 < hello.ping_s < LONGEST_PING_S:
            self._silence_s = max(self.limits.silence_s, 3 * hello.ping_s)
        self.link.room_bytes = hello.message_bytes
        self.link.resume(hello.received)
        self.caller.resend()

    async def run(self, transport: Transport) -> None:
        """Send and receive over ``transport`` until it closes."""
        self._stop_grace()
        self._received_at = self.loop.time()
        self.transport = transport
        tasks = [
            self.loop.create_task(self._pump(transport)),
            self.loop.create_task(self._watch(transport)),
        ]
        try:
            while True:
                if self._unreserved:
                    await self._wait_for_memory(transport)
                data = await transport.receive()
                if self.transport is not transport:  # ended or replaced meanwhile
                    break
                self._receive(data)
        except Malformed as error:
            self.end(ProtocolError(f"{self.name} broke the protocol: {error}"))
        except Closed:
            pass
        finally:
            for task in tasks:
                task.cancel()
            self.detach(transport)
            await self.wait_closed()
            await transport.close()

    async def _wait_for_memory(self, transport: Transport) -> None:
        """Read nothing more before there is room for what was announced."""
        while self._unreserved and self.transport is transport:
            await asyncio.wait([self._unreserved[0].granted], timeout=LOOK_S)
            self._received_at = self.loop.time()  # silent because nobody listens
            self.link.excuse()
            self._unreserved = [r for r in self._unreserved if not r.granted.done()]

    def detach(self, transport: Transport) -> None:
        """Stop using ``transport`` and start the grace period for another one."""
        if self.transport is transport:
            self.transport = None
            self._stop_grace()
            self._start_grace()

    def end(self, reason: str | RpcError) -> None:
        """Fail pending calls, cancel running ones, and send the peer a Bye."""
        self._stop_grace()
        self.ended = TransportError(reason) if isinstance(reason, str) else reason
        self.caller.fail_all(self.ended)
        self._clear(Link())
        transport, self.transport = self.transport, None
        if transport:
            closing = self.loop.create_task(_send_bye(transport, str(reason)))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._on_end()

    async def wait_closed(self) -> None:
        """Wait until Byes have been sent, or could not be.

        Several may wait; one of them that is cancelled cancels no Bye.
        """
        if self._closing:
            await asyncio.wait(self._closing)

    def _start_grace(self) -> None:
        if self.ended is None:
            self._grace = self.loop.call_later(
                self.limits.grace_s,
                self.end,
                f"{self.name} was lost and did not reconnect within"
                f" {self.limits.grace_s:g} s",
            )

    def _stop_grace(self) -> None:
        if self._grace:
            self._grace.cancel()
            self._grace = None

    async def _pump(self, transport: Transport) -> None:
        try:
            await self.link.pump(transport)
        except Closed:
            await transport.close()

    async def _watch(self, transport: Transport) -> None:
        """Send pings, and close a transport that receives nothing for too long."""
        while True:
            due = self.loop.time() + self.limits.ping_s
            await asyncio.sleep(self.limits.ping_s)
            now = self.loop.time()
            # Waking late means that this process was suspended, not the peer.
            on_time = now - due < self.limits.ping_s
            if on_time and now - self._received_at > self._silence_s:
                await transport.close()
                return
            stalled = self.link.stalled_s > self.limits.stall_s
            if on_time and stalled and not self._unreserved:
                self.end(f"{self.name} took nothing in for {self.limits.stall_s:g} s")
                return
            self._discard_unwanted()
            self.link.acknowledge()

    def _discard_unwanted(self) -> None:
        """Give back the memory of what belongs to calls that were cancelled."""
        for incoming in self._incoming.values():
            if incoming.wanted and not self._owner_of(incoming.frame).wants(
                incoming.frame
            ):
                incoming.discard()

    def _owner_of(self, frame: Any) -> Dispatcher | Caller:
        """Return who handles a frame: calls of the peer, or answers to ours."""
        return self.dispatcher if type(frame) is frames.Call else self.caller

    # Receiving

    def _receive(self, data: bytes) -> None:
        self._received_at = self.loop.time()
        self.metrics.received_bytes += len(data)
        first = data[0] if data else None
        if first == frames.CHUNK:
            self.link.count_received(len(data))
            self._on_chunk(*frames.split_chunk(data))
        elif first == frames.BATCH:
            for frame in frames.split_batch(data):
                if self.ended:  # by the previous frame, a Bye
                    break
                self._on_frame(frame)
        else:
            self._on_frame(data)

    def _on_frame(self, data: bytes) -> None:
        frame = frames.decode(data)
        handler = self._handlers.get(type(frame))
        if handler is None:
            raise Malformed(f"{type(frame).__name__} after the handshake")
        if type(frame) not in frames.UNCOUNTED:
            self.link.count_received(len(data))
            if self.link.overloaded():
                raise Malformed("it requests more than it receives")
        handler(frame)

    def _on_value(self, frame: Any) -> None:
        owner = self._owner_of(frame)
        wanted = owner.admit(frame)
        if not frame.sizes:
            if wanted:
                body, buffers = _value(frame, [])
                if len(body) > INLINE_BYTES and owner is self.dispatcher:
                    self.dispatcher.hold(frame, self._reserve(DECODED * len(body)))
                owner.deliver(frame, body, buffers)
            return
        total = _cost(frame.sizes)
        room = self.limits.message_bytes - self._incoming_bytes
        if min(frame.sizes) < 1 or total > room:
            raise Malformed(f"{total} bytes announced, but at most {room} accepted")
        if frame.transfer in self._incoming:
            raise Malformed(f"transfer {frame.transfer} announced twice")
        body_bytes = frame.sizes[0] if frames.unwrap(frame.body) is None else 0
        if wanted and body_bytes > self.limits.body_bytes:
            owner.refuse(frame, f"{body_bytes} bytes besides arrays are too many")
            wanted = False
        incoming = self._incoming[frame.transfer] = IncomingTransfer(frame, wanted)
        self._incoming_bytes += total
        if wanted:
            reserved = self._reserve(total + DECODED * body_bytes, incoming)
            incoming.reserved = reserved

    def _reserve(
        self, size: int, incoming: IncomingTransfer | None = None
    ) -> Reservation | None:
        """Ask for memory; what comes next is not read before it is granted."""
        if self._budget is None:
            return None
        reserved = self._budget.reserve(
            self._owner,
            size,
            incoming,
            self._cut_off,
            asked=incoming is not None and type(incoming.frame) is not frames.Call,
        )
        if not reserved.granted.done():
            self._unreserved.append(reserved)
        return reserved

    def _cut_off(self) -> None:
        self.end(f"{self.name} sent too slowly while others waited for memory")

    def _on_chunk(self, transfer: int, chunk: memoryview) -> None:
        incoming = self._incoming.get(transfer)
        if incoming is None:
            raise Malformed(f"a chunk of transfer {transfer}, which was not announced")
        incoming.fill(chunk)
        if incoming.left_bytes:
            return
        frame, reserved = self._forget(transfer), incoming.reserved
        owner = self._owner_of(frame)
        if incoming.wanted and owner.wants(frame):
            if reserved and owner is self.dispatcher:
                self.dispatcher.hold(frame, reserved)
                reserved = None
            owner.deliver(frame, *_value(frame, incoming.buffers))
        if reserved:
            reserved.release()

    def _on_abort(self, frame: frames.Abort) -> None:
        incoming = self._incoming.get(frame.transfer)
        if incoming:
            self._forget(frame.transfer)
            incoming.discard()

    def _forget(self, transfer: int) -> Any:
        frame = self._incoming.pop(transfer).frame
        self._incoming_bytes -= _cost(frame.sizes)
        return frame

    def _on_bye(self, frame: frames.Bye) -> None:
        self.end(f"{self.name} ended the session: {frames.printable(frame.reason)}")


def _cost(sizes: tuple[int, ...]) -> int:
    """Return the bytes to reserve; buffers that should be inline cost more."""
    return sum([max(size, INLINE_BYTES) for size in sizes])


def _value(
    frame: Any, buffers: list[Buffer]
) -> tuple[bytes | memoryview, list[Buffer]]:
    body = frames.unwrap(frame.body)
    if body is not None:
        return body, buffers
    if not buffers:
        raise Malformed("a value without a body")
    return buffers[0].data, buffers[1:]


async def _send_bye(transport: Transport, reason: str) -> None:
    try:
        async with asyncio.timeout(BYE_S):
            await transport.send(frames.encode(frames.Bye(reason)))
    except (Closed, TimeoutError):
        pass
    await transport.close()
