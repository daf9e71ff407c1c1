"""The calls that this side answers.

A call is looked up by its exact name, and refused before any of its memory arrives if
the peer may not make it. Plain functions run in threads and coroutines on the loop, so
that a long one never keeps the connection from giving signs of life.
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
from melisma.rpc.metrics import Latencies
from melisma.rpc.peer import Peer
from melisma.rpc.request import Request, current_request
from melisma.rpc.service import Exposed, Service
from melisma.rpc.streams import STREAM_CREDIT, cost_of
from melisma.rpc.values import Buffer, Malformed, pack, unpack

#: Longer messages and tracebacks are cut.
TEXT_CHARACTERS = 20_000


class ActiveCall(Request):
    """A request over a session, with what is needed to answer it."""

    def __init__(
        self, call: frames.Call, exposed: Exposed, caller: str, peer: Peer
    ) -> None:
        super().__init__(call.function, caller, peer)
        self.id, self.exposed = call.id, exposed
        self.begun = time.perf_counter()
        self.work: asyncio.Future[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.transfer: Transfer | None = None
        self._credit = STREAM_CREDIT
        self._granted: asyncio.Event | None = None

    def cancel(self) -> None:
        """Let the function know that nobody waits, and cancel its coroutine."""
        super().cancel()
        if self._granted:
            self._granted.set()
        if self.work:
            self.work.cancel()

    def limit(self, within_s: float) -> None:
        """Note when the caller stops waiting."""
        self._deadline = time.monotonic() + within_s

    def grant(self, amount: int) -> None:
        """Note that the consumer of a stream has room for more."""
        self._credit = min(STREAM_CREDIT, self._credit + amount)
        if self._granted:
            self._granted.set()

    async def use_credit(self, cost: int) -> None:
        """Wait until the consumer of a stream has room; raise if nobody waits."""
        while self._credit < cost and not self.cancelled:
            self._granted = self._granted or asyncio.Event()
            self._granted.clear()
            await self._granted.wait()
        self.check()
        self._credit -= cost

    def check(self) -> None:
        """Raise CancelledError if nobody waits."""
        if self.cancelled:
            raise asyncio.CancelledError


class Dispatcher:
    """The calls of one session's far side that run here."""

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
        self._allowed: dict[str, bool] = {}  # by function, as asked before
        self._active: dict[int, ActiveCall] = {}
        self._sending: dict[int, Transfer] = {}  # results whose memory is being sent

    def permit(self, may_call: Callable[[str], bool]) -> None:
        """Let the far side call what ``may_call`` says, from now on."""
        self._may_call = may_call
        self._allowed.clear()

    def offered(self) -> dict[str, bool]:
        """Return what the far side may call, and whether it is idempotent."""
        return {
            name: exposed.idempotent
            for name, exposed in self._service.functions.items()
            if self._may_call(name)
        }

    def admit(self, call: frames.Call) -> bool:
        """Return whether a call will be answered; if not, say why to the far side."""
        if call.id in self._active:
            raise Malformed(f"call {call.id} made twice")
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
                call.id, "Busy", f"{limits.calls} calls are under way already"
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
            if exposed:  # names that mean nothing here are not worth remembering
                self._allowed[name] = allowed
        return allowed

    def _accept(self, call: frames.Call, exposed: Exposed) -> None:
        active = ActiveCall(call, exposed, self._channel.name, self._peer())
        self._active[call.id] = active
        if call.within_s is not None:
            if math.isnan(call.within_s):  # it would confuse the loop's clock
                raise Malformed("a time limit that is no number")
            active.limit(call.within_s)
            active.timer = self._channel.loop.call_later(
                call.within_s, self._drop, active
            )

    def wants(self, call: frames.Call) -> bool:
        """Return whether the caller still wants what it began to send."""
        return call.id in self._active

    def deliver(
        self, call: frames.Call, body: bytes | memoryview, buffers: list[Buffer]
    ) -> None:
        """Run the function of a call that has arrived whole."""
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
        """Run a coroutine or an asynchronous generator, and answer."""
        value = None
        try:
            if active.exposed.kind == "async generator":
                await self._stream(active, function())
            else:
                value = await function()
        except BaseException as error:  # the edge: whatever it is, the caller hears it
            self._reply_error(active, error)
        else:
            self._reply(active, value)

    def _in_thread(
        self, active: ActiveCall, function: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        loop, executor = self._channel.loop, active.exposed.executor
        if executor is not None:  # perhaps another process: it gets the function alone
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
        active.work = None  # the task's context leads back here: no cycles
        if self._active.get(active.id) is not active:
            return  # nobody waits
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
        if transfer.bytes:  # a producer holds one large item at a time
            transfer.sent = self._channel.loop.create_future()
            await transfer.sent
            active.check()

    def on_cancel(self, frame: frames.Cancel) -> None:
        """Stop a call for which nobody waits."""
        if frame.id in self._active:
            self._drop(self._active[frame.id])
        elif frame.id in self._sending:
            self._channel.link.cancel(self._sending[frame.id])

    def on_credit(self, frame: frames.Credit) -> None:
        """Let a stream go on."""
        if frame.id in self._active and frame.amount > 0:
            self._active[frame.id].grant(frame.amount)

    def drop_all(self) -> None:
        """Stop every call: the far side is gone."""
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
    """Return ``text`` without half characters, which file names may hold."""
    return text.encode("utf-8", "replace").decode()


class Packed:
    """A value that is ready to be sent."""

    __slots__ = ("body", "buffers")

    def __init__(self, body: bytes, buffers: list[Buffer]) -> None:
        self.body, self.buffers = body, buffers


def _as_current(request: Request, function: Callable[[], Any]) -> Packed:
    """Run a function in its thread, and pack its result there too."""
    token = current_request.set(request)
    try:
        return Packed(*pack(run_function(function)))
    finally:
        current_request.reset(token)


def run_function(function: Callable[[], Any]) -> Any:
    """Call a function in a thread or process of its own."""
    try:
        return function()
    except StopIteration as error:  # no future can carry it
        raise RuntimeError("the function raised StopIteration") from error
