"""Signals that end a process, turned into exits and kept out of the clean-up."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def exiting() -> Iterator[None]:
    """Raise SystemExit on signals that would end the process at once."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    unhandled = [s for s in _ENDING if signal.getsignal(s) is signal.SIG_DFL]
    if not _in_main_thread():
        unhandled = []
    for number in unhandled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in unhandled:
            if signal.getsignal(number) is leave:
                signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Deliver signals that come within the block at its end."""
    late: list[int] = []
    before = {s: signal.getsignal(s) for s in _ENDING if _in_main_thread()}
    for number, handler in before.items():
        if handler is not None:  # else it is not Python's to put back
            signal.signal(number, lambda number, _: late.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        for missed in late:
            signal.raise_signal(missed)
