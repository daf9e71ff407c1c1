"""A thread pool, a background event loop, and blocking calls into it."""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from melisma.errors import TransportError

P = ParamSpec("P")
T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]


class ThreadPool(concurrent.futures.Executor):
    """At most ``size`` daemon threads.

    The standard pool joins its threads when the interpreter exits, so Ctrl-C would wait
    for the calls of peers.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started, self._is_shut = 0, False
        self._idle = threading.Semaphore(0)

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run a function in a thread of the pool; RuntimeError once it is shut."""
        if self._is_shut:
            raise RuntimeError("the connection is closed: nothing runs here any more")
        future: Future[T] = Future()
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < self._size:
            self._started += 1
            name = f"melisma-rpc-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads exit after the queued jobs; never waits for them."""
        self._is_shut = True
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, function
            self._idle.release()


_loop: asyncio.AbstractEventLoop | None = None
_starting = threading.Lock()


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of a daemon thread, started on first use."""
    global _loop
    with _starting:
        if _loop is None:
            _loop = _new_loop()
            threading.Thread(
                target=_loop.run_forever, name="melisma-rpc-loop", daemon=True
            ).start()
        return _loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _reset_loop() -> None:
    """Forget the loop in a forked process, which has none of its parent's threads."""
    global _loop, _starting
    _loop, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_reset_loop)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run(
    work: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop,
    instead: str = "await its async form",
) -> T:
    """Run a coroutine on ``loop`` of another thread, and block until it is done.

    A loop that runs in this thread, as in a notebook, is blocked meanwhile.
    RuntimeError if that is ``loop`` itself: it would deadlock.
    """
    here = running_loop()
    if here is loop:
        work.close()
        raise RuntimeError(
            f"this would block the event loop that does the work: {instead}"
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except TransportError as error:
        if here:
            error.add_note(
                "This blocked the event loop of its thread: if that loop runs the"
                f" server, {instead}."
            )
        raise
    except BaseException:
        future.cancel()
        raise


def block_or_await(
    work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop
) -> Any:
    """Run ``work`` on ``loop``: block, or return an awaitable if a loop runs here."""
    here = running_loop()
    if here is None:
        return run(work, loop)
    if here is loop:
        return work
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
