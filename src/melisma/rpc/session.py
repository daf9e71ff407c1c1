"""A conversation with one peer: calls both ways, over one carrier after another.

The exchange puts values together from frames and memory, keeps the connection alive,
and hands calls to its answerer and answers to its caller. A carrier that breaks is
replaced by the next within the grace period, and neither of them notices; without one,
or when the far side starts anew, both are told that the session is over.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from melisma import __version__
from melisma.errors import ProtocolError, RpcError, TransportError
from melisma.rpc import frames
from melisma.rpc.caller import Caller
from melisma.rpc.channel import Channel
from melisma.rpc.dispatch import Answerer
from melisma.rpc.limits import Limits
from melisma.rpc.link import Link
from melisma.rpc.metrics import Metrics
from melisma.rpc.peer import Peer
from melisma.rpc.service import Service
from melisma.rpc.transport import Carrier, Closed
from melisma.rpc.values import INLINE_BYTES, Malformed, Memory

#: Signs of life that are rarer than this do not make this side wait longer.
PING_MOST_S = 60.0
#: How long a farewell may take.
BYE_S = 1.0


class Arriving:
    """A frame whose memory is on its way; ``wanted`` says whether anybody needs it."""

    def __init__(self, frame: Any, wanted: bool) -> None:
        self.frame, self.wanted = frame, wanted
        self.left_bytes = sum(frame.sizes)
        self.memories = [
            np.empty(size if wanted else 0, np.uint8) for size in frame.sizes
        ]
        self._views = deque(memory.data for memory in self.memories)
        self._at = 0

    def fill(self, chunk: memoryview) -> None:
        """Put the next memory where it belongs; Malformed if it is too much."""
        self.left_bytes -= len(chunk)
        if self.left_bytes < 0:
            raise Malformed("a transfer is longer than announced")
        while chunk and self._views:
            view = self._views[0]
            part = min(len(chunk), len(view) - self._at)
            view[self._at : self._at + part] = chunk[:part]
            self._at += part
            chunk = chunk[part:]
            if self._at == len(view):
                self._views.popleft()
                self._at = 0


class Exchange(Channel):
    """Calls both ways with one peer, on one event loop."""

    def __init__(
        self,
        name: str,
        service: Service,
        *,
        limits: Limits,
        metrics: Metrics,
        may_call: Callable[[str], bool],
        executor: concurrent.futures.Executor | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name, limits, metrics)
        self.caller = Caller(self)
        self.peer = Peer(self.caller)
        self.answerer = Answerer(
            self, service, may_call, executor, peer=lambda: self.peer
        )
        self._lost = lost
        self._silence_s = limits.silence_s
        self._heard = self.loop.time()
        self._arriving: dict[int, Arriving] = {}
        self._arriving_bytes = 0
        self._grace: asyncio.TimerHandle | None = None
        self._farewells: set[asyncio.Task[None]] = set()
        caller, answerer = self.caller, self.answerer
        self._takers: dict[type, Callable[[Any], None]] = {
            frames.Ack: lambda frame: self.link.confirm(frame.received),
            frames.Bye: self._take_bye,
            frames.Call: self._take_value,
            frames.Result: self._take_value,
            frames.Item: self._take_value,
            frames.Abort: self._take_abort,
            frames.Cancel: answerer.take_cancel,
            frames.Credit: answerer.take_credit,
            frames.Stream: caller.take_stream,
            frames.Fault: caller.take_fault,
        }

    @property
    def silence_s(self) -> float:
        """Return how long ago the far side was heard."""
        return max(0.0, self.loop.time() - self._heard)

    # The connection

    def hello(self, name: str, resumes: bool) -> bytes:
        """Return this side's first frame over a carrier."""
        return frames.encode(
            frames.Hello(
                protocol=frames.PROTOCOL,
                library=__version__,
                name=name,
                session=self.link.key if resumes else b"",
                received=self.link.received if resumes else 0,
                message_bytes=self.limits.message_bytes,
                functions=self.answerer.offered(),
                ping_s=self.limits.ping_s,
            )
        )

    def begin(self, key: bytes | None = None) -> None:
        """Start a session, about which the far side knows nothing yet."""
        self.caller.begin(self.link.unsent())
        self._clear(Link(key))
        self.over = None

    def _clear(self, link: Link) -> None:
        self.answerer.drop_all()
        self._arriving.clear()
        self._arriving_bytes = 0
        self.link = link

    def resume(self, far: frames.Hello) -> None:
        """Go on with the session from where the far side's Hello says it stands."""
        self.functions = far.functions
        if 0 < far.ping_s < PING_MOST_S:  # it may be in less of a hurry than this side
            self._silence_s = max(self.limits.silence_s, 3 * far.ping_s)
        self.link.room_bytes = far.message_bytes
        self.link.resume(far.received)
        self.caller.carry_over()

    async def converse(self, carrier: Carrier) -> None:
        """Exchange frames over ``carrier`` until it closes."""
        self._stop_grace()
        self._heard = self.loop.time()
        self.carrier = carrier
        helpers = [
            self.loop.create_task(self._pump(carrier)),
            self.loop.create_task(self._watch(carrier)),
        ]
        try:
            while True:
                data = await carrier.receive()
                if self.carrier is not carrier:  # ended or replaced meanwhile
                    break
                self._take(data)
        except Malformed as error:
            self.end(ProtocolError(f"{self.name} broke the protocol: {error}"))
        except Closed:
            pass
        finally:
            for helper in helpers:
                helper.cancel()
            self.lose(carrier)
            await self.farewell()
            await carrier.close()

    def lose(self, carrier: Carrier) -> None:
        """Wait for another carrier in place of this one, as long as the grace lasts."""
        if self.carrier is carrier:
            self.carrier = None
            self._stop_grace()
            self._start_grace()

    def end(self, reason: str | RpcError) -> None:
        """End the session: fail what waits, cancel what runs, tell the far side."""
        self._stop_grace()
        self.over = TransportError(reason) if isinstance(reason, str) else reason
        self.caller.fail_all(self.over)
        self._clear(Link())
        carrier, self.carrier = self.carrier, None
        if carrier:
            farewell = self.loop.create_task(_say_bye(carrier, str(reason)))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)
        self._lost()

    async def farewell(self) -> None:
        """Wait until the far side was told, or could not be."""
        await asyncio.gather(*self._farewells)

    def _start_grace(self) -> None:
        if self.over is None:
            self._grace = self.loop.call_later(
                self.limits.grace_s,
                self.end,
                f"{self.name} was lost and did not come back within"
                f" {self.limits.grace_s:g} s",
            )

    def _stop_grace(self) -> None:
        if self._grace:
            self._grace.cancel()
            self._grace = None

    async def _pump(self, carrier: Carrier) -> None:
        try:
            await self.link.pump(carrier)
        except Closed:
            await carrier.close()

    async def _watch(self, carrier: Carrier) -> None:
        """Give signs of life, and close a carrier that brings none."""
        while True:
            due = self.loop.time() + self.limits.ping_s
            await asyncio.sleep(self.limits.ping_s)
            now = self.loop.time()
            # Waking late means that this process stood still, not the far side.
            punctual = now - due < self.limits.ping_s
            if punctual and now - self._heard > self._silence_s:
                await carrier.close()
                return
            self.link.acknowledge()

    # Receiving

    def _take(self, data: bytes) -> None:
        self._heard = self.loop.time()
        self.metrics.received_bytes += len(data)
        first = data[0] if data else None
        if first == frames.CHUNK:
            self.link.count(len(data))
            self._take_chunk(*frames.split_chunk(data))
        elif first == frames.BATCH:
            for frame in frames.split_batch(data):
                if self.over:  # the one before was a goodbye
                    break
                self._take_frame(frame)
        else:
            self._take_frame(data)

    def _take_frame(self, data: bytes) -> None:
        frame = frames.decode(data)
        taker = self._takers.get(type(frame))
        if taker is None:
            raise Malformed(f"{type(frame).__name__} in the middle of a conversation")
        if type(frame) not in frames.UNCOUNTED:
            self.link.count(len(data))
            if self.link.overdue():
                raise Malformed("it asks for more than it takes in")
        taker(frame)

    def _take_value(self, frame: Any) -> None:
        owner = self.answerer if type(frame) is frames.Call else self.caller
        wanted = owner.expects(frame)
        if not frame.sizes:
            if wanted:
                owner.take(frame, *_value(frame, []))
            return
        total = _cost(frame.sizes)
        room = self.limits.message_bytes - self._arriving_bytes
        if min(frame.sizes) < 1 or total > room:
            raise Malformed(f"{total} bytes announced where at most {room} may come")
        if frame.transfer in self._arriving:
            raise Malformed(f"transfer {frame.transfer} announced twice")
        try:
            self._arriving[frame.transfer] = Arriving(frame, wanted)
        except MemoryError:
            raise Malformed(
                f"{total} bytes announced, and no memory for them"
            ) from None
        self._arriving_bytes += total

    def _take_chunk(self, transfer: int, memory: memoryview) -> None:
        arriving = self._arriving.get(transfer)
        if arriving is None:
            raise Malformed(f"memory of transfer {transfer}, which was not announced")
        arriving.fill(memory)
        if not arriving.left_bytes:
            frame = self._forget(transfer)
            owner = self.answerer if type(frame) is frames.Call else self.caller
            if arriving.wanted and owner.waits_for(frame):
                owner.take(frame, *_value(frame, arriving.memories))

    def _take_abort(self, frame: frames.Abort) -> None:
        if frame.transfer in self._arriving:
            self._forget(frame.transfer)

    def _forget(self, transfer: int) -> Any:
        frame = self._arriving.pop(transfer).frame
        self._arriving_bytes -= _cost(frame.sizes)
        return frame

    def _take_bye(self, frame: frames.Bye) -> None:
        self.end(f"{self.name} ended the session: {frames.readable(frame.reason)}")


def _cost(sizes: tuple[int, ...]) -> int:
    """Return what memory of ``sizes`` takes; honest pieces are never small."""
    return sum([max(size, INLINE_BYTES) for size in sizes])


def _value(
    frame: Any, memories: list[Memory]
) -> tuple[bytes | memoryview, list[Memory]]:
    body = frames.unwrap(frame.body)
    if body is not None:
        return body, memories
    if not memories:
        raise Malformed("a value without a body")
    return memories[0].data, memories[1:]


async def _say_bye(carrier: Carrier, reason: str) -> None:
    try:
        async with asyncio.timeout(BYE_S):
            await carrier.send(frames.encode(frames.Bye(reason)))
    except (Closed, TimeoutError):
        pass
    await carrier.close()
