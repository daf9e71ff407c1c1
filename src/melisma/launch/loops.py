"""Blocking calls that work where an event loop runs already, as in a notebook."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: Longest sleep of a loop that waits for a thread.
AWAKE_S = 0.5


def blocking(
    work: Coroutine[Any, Any, T], stop: Callable[[], None] = lambda: None
) -> T:
    """Run a coroutine to its end on a loop of its own, and return its result.

    ``stop`` is called as `anywhere` does.
    """
    return anywhere(stop, asyncio.run, work)


def anywhere(
    stop: Callable[[], None],
    function: Callable[P, T],
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """Call a function that runs a loop of its own.

    A thread can run one loop at a time, so where one runs already the function is
    called in a thread of its own. There it does not see Ctrl-C, which interrupts the
    caller: so ``stop`` is called then, which is to end it soon.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args, **options)
    work = partial(contextvars.copy_context().run, partial(function, *args, **options))
    with ThreadPoolExecutor(1, thread_name_prefix="melisma") as threads:
        try:
            return threads.submit(work).result()
        except KeyboardInterrupt:
            stop()
            raise


async def in_thread(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """Call a function in a thread, and return its result.

    When the task is cancelled ``stop`` is called, which is to end the function soon.
    """
    run = contextvars.copy_context().run
    future = asyncio.get_running_loop().run_in_executor(None, run, work)
    try:
        return await awake(future)
    except asyncio.CancelledError:
        future.cancel()
        stop()
        raise


async def awake(future: "asyncio.Future[T]") -> T:
    """Await a future; the loop wakes meanwhile, and the future is never cancelled.

    A notebook's kernel that is interrupted cancels what a cell awaits, but does not
    wake the loop for it.
    """
    while not future.done():
        await asyncio.wait([future], timeout=AWAKE_S)
    return future.result()


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C at once, wherever the block computes.

    asyncio cancels the main task instead, which ends only at its next `await`: for a
    simulation that is after all training of the cycle. A handler of the caller's own
    stays.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
