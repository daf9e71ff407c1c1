"""Outgoing calls of a session.

Reconnecting never repeats a call: the link below delivers each frame once. Only when
the peer's process restarted are its idempotent calls made again; the others that may
have reached it fail, and the error says that they may have run.
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
    ProtocolError,
    RemoteError,
    RpcError,
    TransportError,
)
from melisma.rpc import frames
from melisma.rpc.channel import Channel
from melisma.rpc.link import Transfer
from melisma.rpc.metrics import Latencies
from melisma.rpc.streams import StreamBuffer, cost_of
from melisma.rpc.values import Buffer, Malformed, unpack

Future = asyncio.Future[Any] | concurrent.futures.Future[Any]


class PendingCall:
    """A call without an answer yet, and the future that gets the answer."""

    __slots__ = ("begun", "body", "buffers", "function", "future",
                 "id", "stream", "timer", "transfer", "within_s")  # fmt: skip

    def __init__(
        self,
        function: str,
        body: bytes,
        buffers: list[Buffer],
        within_s: float | None,
        future: Future,
    ) -> None:
        self.function, self.within_s, self.future = function, within_s, future
        self.body, self.buffers = body, buffers
        self.id = 0
        self.begun = time.perf_counter()
        self.transfer: Transfer | None = None
        self.stream: StreamBuffer | None = None
        self.timer: asyncio.TimerHandle | None = None


class Caller:
    """Makes calls over a channel and matches answers to them by id."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._pending: dict[int, PendingCall] = {}
        self._ids = 0
        self._to_resend: list[PendingCall] = []  # in the next session

    def start(self, call: PendingCall) -> None:
        """Send a call; its future gets the value, a StreamBuffer, or an error."""
        channel, limit = self.channel, self.channel.limits.calls
        if call.future.cancelled():
            return
        if channel.ended:
            _set_exception(call.future, channel.ended)
            return
        if len(self._pending) >= limit:
            _set_exception(call.future, TransportError(
                f"{limit} calls to {channel.name} are pending: wait for some,"
                " or raise limits.calls"
            ))  # fmt: skip
            return
        self._ids += 1
        call.id = self._ids
        self._pending[call.id] = call
        call.future.add_done_callback(partial(self._on_future_done, call.id))
        if call.within_s is not None:
            call.timer = channel.loop.call_later(call.within_s, self._time_out, call)
        self._send(call)

    def cancel(self, call: PendingCall) -> None:
        """Stop waiting for a call and send the peer a Cancel."""
        if self._pending.get(call.id) is not call:
            return
        self._remove(call)
        if call.transfer and self.channel.link.cancel(call.transfer):
            self.channel.send(frames.Cancel(call.id))
        if call.stream:
            call.stream.end(asyncio.CancelledError())

    def fail_all(self, error: RpcError) -> None:
        """Fail every pending call with ``error``."""
        for call in list(self._pending.values()):
            self._fail(call, error)

    def restart(self, unsent_heads: set[int]) -> None:
        """Fail the calls that may have run on a peer that restarted; keep the others.

        Kept are calls whose frame was never sent, and calls of idempotent functions.
        """
        for call in list(self._pending.values()):
            unsent = (
                call.transfer is not None and id(call.transfer.head) in unsent_heads
            )
            if not unsent:
                call.transfer = None
            idempotent = self.channel.functions.get(call.function, False)
            if call.stream or not (unsent or idempotent):
                self._fail(call, TransportError(
                    f"{self.channel.name} restarted during a call of {call.function}:"
                    " it may or may not have run"
                ))  # fmt: skip
        self._to_resend = list(self._pending.values())

    def resend(self) -> None:
        """Send the calls that ``restart`` kept, in the new session."""
        calls, self._to_resend = self._to_resend, []
        for call in calls:
            if self._pending.get(call.id) is not call:
                continue
            if call.transfer and call.transfer.bytes <= self.channel.link.room_bytes:
                self.channel.send_transfer(call.transfer)
            elif call.transfer:
                self._fail(call, TransportError(
                    f"{self.channel.name} restarted with message_bytes below the"
                    f" {call.transfer.bytes} bytes of this call of {call.function}"
                ))  # fmt: skip
            else:
                self._send(call)

    def _send(self, call: PendingCall) -> None:
        fields = (call.id, call.function, call.within_s)
        try:
            call.transfer = self.channel.encode(
                frames.Call, fields, call.body, call.buffers
            )
        except TransportError as error:
            self._fail(call, error)
            return
        except UnicodeEncodeError as error:
            self._fail(call, TransportError(f"not a function name: {error}"))
            return
        self.channel.send_transfer(call.transfer)
        if not self.channel.functions.get(call.function):
            call.body, call.buffers = b"", []  # only an idempotent call is packed again

    def _on_future_done(self, id: int, future: Any) -> None:
        call = self._pending.get(id)  # by id: a future keeps its callbacks alive
        if call and future.cancelled():
            with suppress(RuntimeError):  # the loop is closed, and the call with it
                self.channel.loop.call_soon_threadsafe(self.cancel, call)

    def _time_out(self, call: PendingCall) -> None:
        error = CallTimeout(
            f"{call.function}: no answer from {self.channel.name} within"
            f" {call.within_s:g} s"
        )
        self._abandon(call, error)

    def _abandon(self, call: PendingCall, error: RpcError) -> None:
        """Fail a call on this side first: a stream ends with what came first."""
        self._fail_future(call, error)
        self.cancel(call)

    def _fail(self, call: PendingCall, error: RpcError) -> None:
        self._remove(call)
        self._fail_future(call, error)

    def _fail_future(self, call: PendingCall, error: RpcError) -> None:
        self.channel.metrics.fail(call.function)
        if call.stream:
            call.stream.end(error)
        _set_exception(call.future, error)

    def _remove(self, call: PendingCall) -> None:
        self._pending.pop(call.id, None)
        if call.timer:
            call.timer.cancel()

    # Answers

    def admit(self, frame: Any) -> bool:
        """Return whether the call that a frame answers is still pending."""
        return frame.id in self._pending

    wants = admit

    def refuse(self, frame: Any, message: str) -> None:
        """Fail the call that a frame answers, before all of it has arrived."""
        call = self._pending[frame.id]
        self._abandon(call, TransportError(f"{call.function}: {message}"))

    def deliver(
        self, frame: Any, body: bytes | memoryview, buffers: list[Buffer]
    ) -> None:
        """Complete a call with its result, or add an item to its stream."""
        call = self._pending[frame.id]
        try:
            value = unpack(body, buffers)
        except Malformed as error:
            self._abandon(call, ProtocolError(
                f"the answer of {call.function} cannot be decoded: {error}"
            ))  # fmt: skip
            return
        if type(frame) is frames.Item:
            if call.stream:
                call.stream.put(value, cost_of(frame.sizes))
            return
        self._remove(call)
        latencies = self.channel.metrics.called.get(call.function)
        if latencies is None:
            latencies = self.channel.metrics.called[call.function] = Latencies()
        latencies.add(time.perf_counter() - call.begun)
        if call.stream:
            call.stream.end(StopAsyncIteration())
        else:
            _set_result(call.future, value)

    def on_stream(self, frame: frames.Stream) -> None:
        """Complete a call with a stream, whose items follow."""
        call = self._pending.get(frame.id)
        if call is None or call.stream:
            return
        call.stream = StreamBuffer(
            grant=lambda amount: self.channel.send(frames.Credit(frame.id, amount)),
            cancel=lambda: self.cancel(call),
        )
        _set_result(call.future, call.stream)

    def on_fault(self, fault: frames.Fault) -> None:
        """Fail a call with the error that the peer sent."""
        call = self._pending.get(fault.id)
        if call:
            self._fail(call, _error(fault))


def _error(fault: frames.Fault) -> RpcError:
    if fault.refused:
        return AccessError(fault.message)
    return RemoteError(fault.error, fault.message, fault.traceback)


def _set_result(future: Future, value: Any) -> None:
    if isinstance(future, asyncio.Future):
        if not future.done():
            future.set_result(value)
    else:  # another thread may cancel it at any time
        with suppress(concurrent.futures.InvalidStateError):
            future.set_result(value)


def _set_exception(future: Future, error: BaseException) -> None:
    with suppress(asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
        future.set_exception(error)
