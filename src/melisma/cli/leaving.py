"""Leaving when told to: by Ctrl-C, by SIGTERM, or as one's terminal is closed.

The first of these signals is KeyboardInterrupt, so that who waits for orders takes
leave of the orchestrator, which otherwise would wait for a learner that is not there.
The next one, or an orchestrator that does not take the farewell, ends the process.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from melisma.cli.output import STOPPED, note

#: Longest time from the first signal to the end.
LEAVE_S = 1.5
#: Signals that tell a process to end; not all systems have the last.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def obeying(quiet: bool) -> Iterator[Callable[[], None]]:
    """Yield what makes the first signal a KeyboardInterrupt, and the next one the end.

    One that is ignored, as SIGHUP under nohup, stays so. After the block all signals
    are what they were.
    """
    before: dict[int, Any] = {}
    late = threading.Timer(LEAVE_S, _end, [quiet])
    late.daemon = True

    def leave(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, lambda number, frame: _end(quiet))
        late.start()
        raise KeyboardInterrupt

    def obey() -> None:
        for name in _SIGNALS:
            number = getattr(signal, name, signal.SIGINT)
            if number not in before and signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, leave)

    try:
        yield obey
    finally:
        late.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def farewell(learner: str, orchestrator: str) -> None:
    """Print what a learner that has left leaves behind, and how it comes back."""
    with suppress(OSError):  # its terminal is closed
        note(
            f"{learner} has left {orchestrator}, which keeps what it had sent and goes "
            "on without it; what it was training is lost.\n"
            "To come back, give the same command again."
        )


def _end(quiet: bool) -> None:
    """End this process at once, in a signal's handler too: no lock is waited for."""
    if not quiet:
        with suppress(OSError):
            os.write(2, b"Ended without a farewell: the orchestrator finds out.\n")
    os._exit(STOPPED)
