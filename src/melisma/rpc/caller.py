"""The calls that this side makes.

A call that was sent is sent again in one case only: the far side started anew, and had
declared the function idempotent. All others then fail, and say that they may have run.
"""

import asyncio
import concurrent.futures
import time
from contextlib import suppress
from functools import partial
from typing import Any

from melisma.errors import (
    AccessError,
    CallTimeout,
    RemoteError,
    RpcError,
    TransportError,
)
from melisma.rpc import frames
from melisma.rpc.channel import Channel
from melisma.rpc.link import Bulk
from melisma.rpc.metrics import Latencies
from melisma.rpc.streams import Incoming, cost_of
from melisma.rpc.values import Malformed, Memory, unpack

Future = asyncio.Future[Any] | concurrent.futures.Future[Any]


class Outgoing:
    """A call that somebody waits for."""

    __slots__ = ("begun", "body", "bulk", "function", "future", "id",
                 "memories", "stream", "timer", "within_s")  # fmt: skip

    def __init__(
        self,
        function: str,
        body: bytes,
        memories: list[Memory],
        within_s: float | None,
        future: Future,
    ) -> None:
        self.function, self.within_s, self.future = function, within_s, future
        self.body, self.memories = body, memories
        self.id = 0
        self.begun = time.perf_counter()
        self.bulk: Bulk | None = None
        self.stream: Incoming | None = None
        self.timer: asyncio.TimerHandle | None = None


class Caller:
    """The calls of one exchange that wait for their answers."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: dict[int, Outgoing] = {}
        self._ids = 0
        self._carried: list[Outgoing] = []

    def start(self, call: Outgoing) -> None:
        """Make a call; its future gets the answer, an Incoming stream, or an error."""
        channel, limit = self.channel, self.channel.limits.calls
        if call.future.cancelled():
            return
        if channel.over:
            _fail(call.future, channel.over)
            return
        if len(self._waiting) >= limit:
            _fail(call.future, TransportError(
                f"{limit} calls to {channel.name} are under way: wait for some"
            ))  # fmt: skip
            return
        self._ids += 1
        call.id = self._ids
        self._waiting[call.id] = call
        call.future.add_done_callback(partial(self._caller_done, call.id))
        if call.within_s is not None:
            call.timer = channel.loop.call_later(call.within_s, self._time_out, call)
        self._send(call)

    def cancel(self, call: Outgoing) -> None:
        """Tell the far side that nobody waits any more."""
        if self._waiting.get(call.id) is not call:
            return
        self._retire(call)
        if call.bulk and self.channel.link.withdraw(call.bulk):
            self.channel.post(frames.Cancel(call.id))
        if call.stream:
            call.stream.end(asyncio.CancelledError())

    def fail_all(self, error: RpcError) -> None:
        """Let every call end in ``error``."""
        for call in list(self._waiting.values()):
            self._settle(call, error)

    def begin(self, unsent: set[int]) -> None:
        """Fail the calls that the far side, which starts anew, may have run."""
        for call in list(self._waiting.values()):
            fresh = call.bulk is not None and id(call.bulk.head) in unsent
            if not fresh:
                call.bulk = None
            repeatable = self.channel.functions.get(call.function, False)
            if call.stream or not (fresh or repeatable):
                self._settle(call, TransportError(
                    f"{self.channel.name} started anew while it ran {call.function}:"
                    " the call may or may not have been carried out"
                ))  # fmt: skip
        self._carried = list(self._waiting.values())

    def carry_over(self) -> None:
        """Send what ``begin`` left, in the new session."""
        carried, self._carried = self._carried, []
        for call in carried:
            if self._waiting.get(call.id) is not call:
                continue
            if call.bulk and call.bulk.bytes <= self.channel.link.room_bytes:
                self.channel.post_bulk(call.bulk)
            elif call.bulk:
                self._settle(call, TransportError(
                    f"{self.channel.name} takes less than the {call.bulk.bytes} bytes"
                    f" of this call of {call.function}"
                ))  # fmt: skip
            else:
                self._send(call)

    def _send(self, call: Outgoing) -> None:
        fields = (call.id, call.function, call.within_s)
        try:
            call.bulk = self.channel.envelope(
                frames.Call, fields, call.body, call.memories
            )
        except TransportError as error:
            self._settle(call, error)
            return
        except UnicodeEncodeError as error:
            self._settle(call, TransportError(f"no name of a function: {error}"))
            return
        self.channel.post_bulk(call.bulk)
        if not self.channel.functions.get(call.function):
            call.body, call.memories = b"", []  # never needed again

    def _caller_done(self, id: int, future: Any) -> None:
        call = self._waiting.get(id)  # by its number: a future keeps its callbacks
        if call and future.cancelled():
            with suppress(RuntimeError):  # the loop is gone, and the call with it
                self.channel.loop.call_soon_threadsafe(self.cancel, call)

    def _time_out(self, call: Outgoing) -> None:
        error = CallTimeout(
            f"{call.function}: no answer from {self.channel.name} within"
            f" {call.within_s:g} s"
        )
        self._end(call, error)
        self.cancel(call)

    def _settle(self, call: Outgoing, error: RpcError) -> None:
        self._retire(call)
        self._end(call, error)

    def _end(self, call: Outgoing, error: RpcError) -> None:
        self.channel.metrics.fail(call.function)
        if call.stream:
            call.stream.end(error)
        _fail(call.future, error)

    def _retire(self, call: Outgoing) -> None:
        self._waiting.pop(call.id, None)
        if call.timer:
            call.timer.cancel()

    # What arrives

    def expects(self, frame: Any) -> bool:
        """Return whether anybody waits for the call that a frame answers."""
        return frame.id in self._waiting

    waits_for = expects

    def take(
        self, frame: Any, body: bytes | memoryview, memories: list[Memory]
    ) -> None:
        """Give a result or an item to whom it belongs."""
        call = self._waiting[frame.id]
        try:
            value = unpack(body, memories)
        except Malformed as error:
            self.cancel(call)
            self._end(call, TransportError(
                f"the answer of {call.function} cannot be read: {error}"
            ))  # fmt: skip
            return
        if type(frame) is frames.Item:
            if call.stream:
                call.stream.put(value, cost_of(frame.sizes))
            return
        self._retire(call)
        latencies = self.channel.metrics.called.get(call.function)
        if latencies is None:
            latencies = self.channel.metrics.called[call.function] = Latencies()
        latencies.add(time.perf_counter() - call.begun)
        if call.stream:
            call.stream.end(StopAsyncIteration())
        else:
            _fulfil(call.future, value)

    def take_stream(self, frame: frames.Stream) -> None:
        """Note that a call is answered by a stream."""
        call = self._waiting.get(frame.id)
        if call is None or call.stream:
            return
        call.stream = Incoming(
            grant=lambda amount: self.channel.post(frames.Credit(frame.id, amount)),
            cancel=lambda: self.cancel(call),
        )
        _fulfil(call.future, call.stream)

    def take_fault(self, fault: frames.Fault) -> None:
        """Let a call end as the far side says."""
        call = self._waiting.get(fault.id)
        if call:
            self._settle(call, _error(fault))


def _error(fault: frames.Fault) -> RpcError:
    if fault.refused:
        return AccessError(fault.message)
    return RemoteError(fault.error, fault.message, fault.traceback)


def _fulfil(future: Future, value: Any) -> None:
    if isinstance(future, asyncio.Future):
        if not future.done():
            future.set_result(value)
    else:  # another thread may cancel it at any moment
        with suppress(concurrent.futures.InvalidStateError):
            future.set_result(value)


def _fail(future: Future, error: BaseException) -> None:
    with suppress(asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
        future.set_exception(error)
