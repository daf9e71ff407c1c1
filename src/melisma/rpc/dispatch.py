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
from melisma.rpc.link import Bulk
from melisma.rpc.metrics import Latencies
from melisma.rpc.peer import Peer
from melisma.rpc.request import Request, current_request
from melisma.rpc.service import Exposed, Service
from melisma.rpc.streams import STREAM_CREDIT, cost_of
from melisma.rpc.values import Malformed, Memory, pack, unpack

#: Longer messages and tracebacks are cut.
TEXT_CHARACTERS = 20_000


class Answering(Request):
    """A request over an exchange, with what is needed to answer it."""

    def __init__(
        self, call: frames.Call, exposed: Exposed, caller: str, peer: Peer
    ) -> None:
        super().__init__(call.function, caller, peer)
        self.id, self.exposed = call.id, exposed
        self.begun = time.perf_counter()
        self.work: asyncio.Future[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.bulk: Bulk | None = None
        self._credit = STREAM_CREDIT
        self._more: asyncio.Event | None = None

    def cancel(self) -> None:
        """Let the function know that nobody waits, and cancel its coroutine."""
        super().cancel()
        if self._more:
            self._more.set()
        if self.work:
            self.work.cancel()

    def limit(self, within_s: float) -> None:
        """Note when the caller stops waiting."""
        self._deadline = time.monotonic() + within_s

    def earn(self, amount: int) -> None:
        """Note that the consumer of a stream has room for more."""
        self._credit = min(STREAM_CREDIT, self._credit + amount)
        if self._more:
            self._more.set()

    async def spend(self, cost: int) -> None:
        """Wait until the consumer of a stream has room; raise if nobody waits."""
        while self._credit < cost and not self.cancelled:
            self._more = self._more or asyncio.Event()
            self._more.clear()
            await self._more.wait()
        self.check()
        self._credit -= cost

    def check(self) -> None:
        """Raise CancelledError if nobody waits."""
        if self.cancelled:
            raise asyncio.CancelledError


class Answerer:
    """The calls of one exchange's far side that run here."""

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
        self._answering: dict[int, Answering] = {}
        self._leaving: dict[int, Bulk] = {}  # results whose memory is being sent

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

    def expects(self, call: frames.Call) -> bool:
        """Return whether a call will be answered; if not, say why to the far side."""
        if call.id in self._answering:
            raise Malformed(f"call {call.id} made twice")
        exposed = self._service.functions.get(call.function)
        limits = self._channel.limits
        if not self._allows(call.function, exposed):
            message = f"{self._channel.name} may not call {call.function[:200]}"
            self._fault(call.id, "AccessError", message, refused=True)
        elif exposed is None:
            message = str(unknown("function", call.function[:200], self.offered()))
            self._fault(call.id, "UnknownFunction", message)
        elif len(self._answering) + len(self._leaving) >= limits.calls:
            self._fault(call.id, "Busy", f"{limits.calls} calls are under way already")
        elif self._leaving and self._leaving_bytes() > limits.message_bytes:
            self._fault(call.id, "Busy", "earlier results are still being sent")
        else:
            self._accept(call, exposed)
            return True
        return False

    def _leaving_bytes(self) -> int:
        return sum([bulk.left_bytes for bulk in self._leaving.values()])

    def _allows(self, name: str, exposed: Exposed | None) -> bool:
        allowed = self._allowed.get(name)
        if allowed is None:
            allowed = self._may_call(name)
            if exposed:  # names that mean nothing here are not worth remembering
                self._allowed[name] = allowed
        return allowed

    def _accept(self, call: frames.Call, exposed: Exposed) -> None:
        answering = Answering(call, exposed, self._channel.name, self._peer())
        self._answering[call.id] = answering
        if call.within_s is not None:
            if math.isnan(call.within_s):  # it would confuse the loop's clock
                raise Malformed("a time limit that is no number")
            answering.limit(call.within_s)
            answering.timer = self._channel.loop.call_later(
                call.within_s, self._drop, answering
            )

    def waits_for(self, call: frames.Call) -> bool:
        """Return whether the caller still wants what it began to send."""
        return call.id in self._answering

    def take(
        self, call: frames.Call, body: bytes | memoryview, memories: list[Memory]
    ) -> None:
        """Run the function of a call that has arrived whole."""
        answering = self._answering[call.id]
        try:
            args, kwargs = unpack(body, memories)
            function = partial(answering.exposed.function, *args, **kwargs)
        except (Malformed, TypeError, ValueError) as error:
            self._fail(answering, type(error).__name__, str(error))
            return
        if answering.exposed.kind in ("coroutine", "async generator"):
            context = copy_context()
            context.run(current_request.set, answering)
            answering.work = self._channel.loop.create_task(
                self._await(answering, function), context=context
            )
        else:
            answering.work = self._in_thread(answering, function)
            answering.work.add_done_callback(partial(self._done, answering))

    async def _await(self, answering: Answering, function: Callable[[], Any]) -> None:
        """Run a coroutine or an asynchronous generator, and answer."""
        value = None
        try:
            if answering.exposed.kind == "async generator":
                await self._stream(answering, function())
            else:
                value = await function()
        except BaseException as error:  # the edge: whatever it is, the caller hears it
            self._answer_error(answering, error)
        else:
            self._answer(answering, value)

    def _in_thread(
        self, answering: Answering, function: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        loop, executor = self._channel.loop, answering.exposed.executor
        if executor is not None:  # perhaps another process: it gets the function alone
            return loop.run_in_executor(executor, call, function)
        if answering.exposed.kind == "generator":
            function = partial(self._stream_from_thread, answering, function)
        return loop.run_in_executor(self._executor, _as_current, answering, function)

    def _done(self, answering: Answering, work: asyncio.Future[Any]) -> None:
        if work.cancelled():
            self._answer_error(answering, asyncio.CancelledError())
        elif error := work.exception():
            self._answer_error(answering, error)
        else:
            self._answer(answering, work.result())

    def _answer(self, answering: Answering, value: Any) -> None:
        answering.work = None  # the task's context leads back here: no cycles
        if self._answering.get(answering.id) is not answering:
            return  # nobody waits
        try:
            packed = value if type(value) is Packed else Packed(*pack(value))
            bulk = self._send(frames.Result, answering, packed)
        except (TypeError, TransportError) as error:
            message = f"the result of {answering.function} cannot be sent: {error}"
            self._fail(answering, type(error).__name__, message)
            return
        if bulk.bytes:
            bulk.gone = self._channel.loop.create_future()
            bulk.gone.add_done_callback(partial(self._left, answering.id))
            self._leaving[answering.id] = bulk
        self._forget(answering)
        answered, name = self._channel.metrics.answered, answering.function
        if name not in answered:
            answered[name] = Latencies()
        answered[name].add(time.perf_counter() - answering.begun)

    def _left(self, id: int, gone: asyncio.Future[None]) -> None:
        self._leaving.pop(id, None)

    def _answer_error(self, answering: Answering, error: BaseException) -> None:
        answering.work = None
        if self._answering.get(answering.id) is answering:
            trace = "".join(traceback.format_exception(error))[-TEXT_CHARACTERS:]
            message = str(error)[:TEXT_CHARACTERS]
            name = type(error).__name__
            self._fail(answering, name, _unicode(message), _unicode(trace))

    def _send(self, kind: Any, answering: Answering, packed: "Packed") -> Bulk:
        bulk = self._channel.envelope(
            kind, (answering.id,), packed.body, packed.memories
        )
        answering.bulk = bulk
        self._channel.post_bulk(bulk)
        return bulk

    async def _stream(
        self, answering: Answering, items: AsyncGenerator[Any, None]
    ) -> None:
        self._channel.post(frames.Stream(answering.id))
        try:
            async for item in items:
                await self._send_item(answering, Packed(*pack(item)))
        finally:
            await items.aclose()

    def _stream_from_thread(
        self, answering: Answering, function: Callable[[], Generator[Any, None, None]]
    ) -> None:
        loop, items = self._channel.loop, function()
        loop.call_soon_threadsafe(self._channel.post, frames.Stream(answering.id))
        try:
            for item in items:
                sent = self._send_item(answering, Packed(*pack(item)))
                asyncio.run_coroutine_threadsafe(sent, loop).result()
        finally:
            items.close()

    async def _send_item(self, answering: Answering, packed: "Packed") -> None:
        bulk = self._channel.envelope(
            frames.Item, (answering.id,), packed.body, packed.memories
        )
        await answering.spend(cost_of([bulk.bytes]))
        answering.bulk = bulk
        self._channel.post_bulk(bulk)
        if bulk.bytes:  # a producer holds one large item at a time
            bulk.gone = self._channel.loop.create_future()
            await bulk.gone
            answering.check()

    def take_cancel(self, frame: frames.Cancel) -> None:
        """Stop a call for which nobody waits."""
        if frame.id in self._answering:
            self._drop(self._answering[frame.id])
        elif frame.id in self._leaving:
            self._channel.link.withdraw(self._leaving[frame.id])

    def take_credit(self, frame: frames.Credit) -> None:
        """Let a stream go on."""
        if frame.id in self._answering and frame.amount > 0:
            self._answering[frame.id].earn(frame.amount)

    def drop_all(self) -> None:
        """Stop every call: the far side is gone."""
        for answering in list(self._answering.values()):
            self._drop(answering)
        self._leaving.clear()

    def _drop(self, answering: Answering) -> None:
        self._forget(answering)
        answering.cancel()
        if answering.bulk:
            self._channel.link.withdraw(answering.bulk)

    def _forget(self, answering: Answering) -> None:
        self._answering.pop(answering.id, None)
        if answering.timer:
            answering.timer.cancel()

    def _fail(
        self, answering: Answering, error: str, message: str = "", trace: str = ""
    ) -> None:
        self._forget(answering)
        self._channel.metrics.fail(answering.function)
        self._fault(answering.id, error, message, trace)

    def _fault(
        self, id: int, error: str, message: str, trace: str = "", refused: bool = False
    ) -> None:
        message = message[:TEXT_CHARACTERS]
        self._channel.post(frames.Fault(id, refused, error, message, trace))


def _unicode(text: str) -> str:
    """Return ``text`` without half characters, which file names may hold."""
    return text.encode("utf-8", "replace").decode()


class Packed:
    """A value that is ready to be sent."""

    __slots__ = ("body", "memories")

    def __init__(self, body: bytes, memories: list[Memory]) -> None:
        self.body, self.memories = body, memories


def _as_current(request: Request, function: Callable[[], Any]) -> Packed:
    """Run a function in its thread, and pack its result there too."""
    token = current_request.set(request)
    try:
        return Packed(*pack(call(function)))
    finally:
        current_request.reset(token)


def call(function: Callable[[], Any]) -> Any:
    """Call a function in a thread or process of its own."""
    try:
        return function()
    except StopIteration as error:  # no future can carry it
        raise RuntimeError("the function raised StopIteration") from error
