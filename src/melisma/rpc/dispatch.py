"""Dispatch of incoming calls to exposed functions.

A function is looked up by its exact name, and permissions are checked before the
buffers of a call arrive. Plain functions run in threads and coroutines on the event
loop, so a long function never delays the session's pings.
"""

import asyncio
import concurrent.futures
import math
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import copy_context
from functools import partial
from typing import Any

from melisma.errors import TransportError, unknown
from melisma.rpc import frames
from melisma.rpc.channel import Channel
from melisma.rpc.link import Transfer
from melisma.rpc.memory import Reservation
from melisma.rpc.metrics import Latencies
from melisma.rpc.peer import Peer
from melisma.rpc.request import Request, current_request
from melisma.rpc.service import Exposed, Service
from melisma.rpc.streams import STREAM_CREDIT, cost_of
from melisma.rpc.values import Buffer, Malformed, pack, unpack

#: Longer error messages and tracebacks are truncated.
TEXT_CHARACTERS = 20_000


class ActiveCall(Request):
    """An incoming call that is running or waiting to run."""

    def __init__(
        self, call: frames.Call, exposed: Exposed, caller: str, peer: Peer
    ) -> None:
        super().__init__(call.function, caller, peer)
        self.id, self.exposed = call.id, exposed
        self.begun = time.perf_counter()
        self.work: asyncio.Future[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.transfer: Transfer | None = None
        self.reserved: Reservation | None = None  # memory of its arguments
        self._credit = STREAM_CREDIT
        self._granted: asyncio.Event | None = None

    def cancel(self) -> None:
        """Mark the request as cancelled, and cancel its coroutine or queued thread."""
        super().cancel()
        if self._granted:
            self._granted.set()
        if self.work:
            self.work.cancel()

    def limit(self, within_s: float) -> None:
        """Set the time after which the caller stops waiting."""
        self._deadline = time.monotonic() + within_s

    def grant(self, amount: int) -> None:
        """Add stream credit that the consumer granted."""
        self._credit = min(STREAM_CREDIT, self._credit + amount)
        if self._granted:
            self._granted.set()

    async def use_credit(self, cost: int) -> None:
        """Wait for stream credit and use it up; CancelledError if cancelled."""
        while self._credit < cost and not self.cancelled:
            self._granted = self._granted or asyncio.Event()
            self._granted.clear()
            await self._granted.wait()
        self.check()
        self._credit -= cost

    def check(self) -> None:
        """Raise CancelledError if the caller cancelled or timed out."""
        if self.cancelled:
            raise asyncio.CancelledError


class Dispatcher:
    """Runs the calls of one peer and sends back results, streams and errors."""

    def __init__(
        self,
        channel: Channel,
        service: Service,
        may_call: Callable[[str], bool],
        executor: concurrent.futures.Executor | None,
        *,
        peer: Callable[[], Peer],
    ) -> None:
        self._channel, self._executor, self._peer = channel, executor, peer
        self._service, self._may_call = service, may_call
        self._allowed: dict[str, bool] = {}  # cached by function
        self._active: dict[int, ActiveCall] = {}
        self._sending: dict[int, Transfer] = {}  # results whose buffers are being sent

    def permit(self, may_call: Callable[[str], bool]) -> None:
        """Replace the peer's permissions by ``may_call``."""
        self._may_call = may_call
        self._allowed.clear()

    def offered(self) -> dict[str, bool]:
        """Return the functions that the peer may call; True for idempotent ones."""
        return {
            name: exposed.idempotent
            for name, exposed in self._service.functions.items()
            if self._may_call(name)
        }

    def admit(self, call: frames.Call) -> bool:
        """Register a call and return True, or send a fault and return False."""
        if call.id in self._active:
            raise Malformed(f"two calls with id {call.id}")
        exposed = self._service.functions.get(call.function)
        limits = self._channel.limits
        if not self._allows(call.function, exposed):
            message = f"{self._channel.name} may not call {call.function[:200]}"
            self._send_fault(call.id, "AccessError", message, refused=True)
        elif exposed is None:
            message = str(unknown("function", call.function[:200], self.offered()))
            self._send_fault(call.id, "UnknownFunction", message)
        elif len(self._active) + len(self._sending) >= limits.calls:
            self._send_fault(
                call.id, "Busy", f"{limits.calls} calls are running already"
            )
        elif self._sending and self._sending_bytes() > limits.message_bytes:
            self._send_fault(call.id, "Busy", "earlier results are still being sent")
        else:
            self._accept(call, exposed)
            return True
        return False

    def _sending_bytes(self) -> int:
        return sum([transfer.left_bytes for transfer in self._sending.values()])

    def _allows(self, name: str, exposed: Exposed | None) -> bool:
        allowed = self._allowed.get(name)
        if allowed is None:
            allowed = self._may_call(name)
            if exposed:  # a peer could fill the cache with invented names
                self._allowed[name] = allowed
        return allowed

    def _accept(self, call: frames.Call, exposed: Exposed) -> None:
        active = ActiveCall(call, exposed, self._channel.name, self._peer())
        self._active[call.id] = active
        if call.within_s is not None:
            if math.isnan(call.within_s):  # would break the order of the loop's timers
                raise Malformed("the time limit is not a number")
            active.limit(call.within_s)
            active.timer = self._channel.loop.call_later(
                call.within_s, self._drop, active
            )

    def wants(self, call: frames.Call) -> bool:
        """Return whether a call is still active once all of it has arrived."""
        return call.id in self._active

    def refuse(self, call: frames.Call, message: str) -> None:
        """Answer an admitted call with an error, before it has arrived."""
        self._fail(self._active[call.id], "TooLarge", message)

    def hold(self, call: frames.Call, reserved: Reservation | None) -> None:
        """Keep memory reserved for a call's arguments until the call is over."""
        self._active[call.id].reserved = reserved

    def deliver(
        self, call: frames.Call, body: bytes | memoryview, buffers: list[Buffer]
    ) -> None:
        """Run the function of a call whose buffers have all arrived."""
        active = self._active[call.id]
        try:
            args, kwargs = unpack(body, buffers)
            function = partial(active.exposed.function, *args, **kwargs)
        except (Malformed, TypeError, ValueError) as error:
            self._fail(active, type(error).__name__, str(error))
            return
        if active.exposed.kind in ("coroutine", "async generator"):
            context = copy_context()
            context.run(current_request.set, active)
            active.work = self._channel.loop.create_task(
                self._await(active, function), context=context
            )
        else:
            active.work = self._in_thread(active, function)
            active.work.add_done_callback(partial(self._done, active))

    async def _await(self, active: ActiveCall, function: Callable[[], Any]) -> None:
        """Run a coroutine or an asynchronous generator, and send its result."""
        value = None
        try:
            if active.exposed.kind == "async generator":
                await self._stream(active, function())
            else:
                value = await function()
        except BaseException as error:  # the edge: every exception goes to the caller
            self._reply_error(active, error)
        else:
            self._reply(active, value)

    def _in_thread(
        self, active: ActiveCall, function: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        loop, executor = self._channel.loop, active.exposed.executor
        if executor is not None:  # perhaps a process pool: no request to pickle
            return loop.run_in_executor(executor, run_function, function)
        if active.exposed.kind == "generator":
            function = partial(self._stream_from_thread, active, function)
        return loop.run_in_executor(self._executor, _as_current, active, function)

    def _done(self, active: ActiveCall, work: asyncio.Future[Any]) -> None:
        if work.cancelled():
            self._reply_error(active, asyncio.CancelledError())
        elif error := work.exception():
            self._reply_error(active, error)
        else:
            self._reply(active, work.result())

    def _reply(self, active: ActiveCall, value: Any) -> None:
        active.work = None  # breaks the cycle of task, context and call
        if self._active.get(active.id) is not active:
            return  # cancelled or timed out
        try:
            packed = value if type(value) is Packed else Packed(*pack(value))
            transfer = self._send(frames.Result, active, packed)
        except (TypeError, TransportError) as error:
            message = f"the result of {active.function} cannot be sent: {error}"
            self._fail(active, type(error).__name__, message)
            return
        if transfer.bytes:
            transfer.sent = self._channel.loop.create_future()
            transfer.sent.add_done_callback(partial(self._result_sent, active.id))
            self._sending[active.id] = transfer
        self._forget(active)
        answered, name = self._channel.metrics.answered, active.function
        if name not in answered:
            answered[name] = Latencies()
        answered[name].add(time.perf_counter() - active.begun)

    def _result_sent(self, id: int, sent: asyncio.Future[None]) -> None:
        self._sending.pop(id, None)

    def _reply_error(self, active: ActiveCall, error: BaseException) -> None:
        active.work = None
        if self._active.get(active.id) is active:
            trace = "".join(traceback.format_exception(error))[-TEXT_CHARACTERS:]
            message = str(error)[:TEXT_CHARACTERS]
            name = type(error).__name__
            self._fail(active, name, _unicode(message), _unicode(trace))

    def _send(self, kind: Any, active: ActiveCall, packed: "Packed") -> Transfer:
        transfer = self._channel.encode(kind, (active.id,), packed.body, packed.buffers)
        active.transfer = transfer
        self._channel.send_transfer(transfer)
        return transfer

    async def _stream(
        self, active: ActiveCall, items: AsyncGenerator[Any, None]
    ) -> None:
        self._channel.send(frames.Stream(active.id))
        try:
            async for item in items:
                await self._send_item(active, Packed(*pack(item)))
        finally:
            await items.aclose()

    def _stream_from_thread(
        self, active: ActiveCall, function: Callable[[], Generator[Any, None, None]]
    ) -> None:
        loop, items = self._channel.loop, function()
        loop.call_soon_threadsafe(self._channel.send, frames.Stream(active.id))
        try:
            for item in items:
                sent = self._send_item(active, Packed(*pack(item)))
                asyncio.run_coroutine_threadsafe(sent, loop).result()
        finally:
            items.close()

    async def _send_item(self, active: ActiveCall, packed: "Packed") -> None:
        transfer = self._channel.encode(
            frames.Item, (active.id,), packed.body, packed.buffers
        )
        await active.use_credit(cost_of([transfer.bytes]))
        active.transfer = transfer
        self._channel.send_transfer(transfer)
        if transfer.bytes:  # a producer has one large item in memory at a time
            transfer.sent = self._channel.loop.create_future()
            await transfer.sent
            active.check()

    def on_cancel(self, frame: frames.Cancel) -> None:
        """Cancel a running call, or the sending of its result."""
        if frame.id in self._active:
            self._drop(self._active[frame.id])
        elif frame.id in self._sending:
            self._channel.link.cancel(self._sending[frame.id])

    def on_credit(self, frame: frames.Credit) -> None:
        """Grant credit to a stream."""
        if frame.id in self._active and frame.amount > 0:
            self._active[frame.id].grant(frame.amount)

    def drop_all(self) -> None:
        """Cancel every call: the session ended."""
        for active in list(self._active.values()):
            self._drop(active)
        self._sending.clear()

    def _drop(self, active: ActiveCall) -> None:
        self._forget(active)
        active.cancel()
        if active.transfer:
            self._channel.link.cancel(active.transfer)

    def _forget(self, active: ActiveCall) -> None:
        self._active.pop(active.id, None)
        if active.timer:
            active.timer.cancel()
        if active.reserved:
            active.reserved.release()
            active.reserved = None

    def _fail(
        self, active: ActiveCall, error: str, message: str = "", trace: str = ""
    ) -> None:
        self._forget(active)
        self._channel.metrics.fail(active.function)
        self._send_fault(active.id, error, message, trace)

    def _send_fault(
        self, id: int, error: str, message: str, trace: str = "", refused: bool = False
    ) -> None:
        message = message[:TEXT_CHARACTERS]
        self._channel.send(frames.Fault(id, refused, error, message, trace))


def _unicode(text: str) -> str:
    """Return ``text`` without lone surrogates, as file names may hold."""
    return text.encode("utf-8", "replace").decode()


class Packed:
    """A value as the bytes to send."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: bytes, buffers: list[Buffer]) -> None:
        self.body, self.buffers = body, buffers


def _as_current(request: Request, function: Callable[[], Any]) -> Packed:
    """Run a function and pack its result, both in the worker thread."""
    token = current_request.set(request)
    try:
        return Packed(*pack(run_function(function)))
    finally:
        current_request.reset(token)


def run_function(function: Callable[[], Any]) -> Any:
    """Call a function in an executor."""
    try:
        return function()
    except StopIteration as error:  # futures reject StopIteration
        raise RuntimeError("the function raised StopIteration") from error
