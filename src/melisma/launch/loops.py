"""Blocking calls that work where an event loop runs already, as in a notebook."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, and return its result."""
    return anywhere(asyncio.run, work)


def anywhere(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function that runs a loop of its own.

    A thread can run one loop at a time, so where one runs already the function is
    called in a thread of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args, **options)
    work = partial(contextvars.copy_context().run, partial(function, *args, **options))
    with ThreadPoolExecutor(1, thread_name_prefix="melisma") as threads:
        return threads.submit(work).result()
