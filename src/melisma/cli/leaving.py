"""Leaving when told to: by Ctrl-C, by SIGTERM, or as one's terminal is closed.

The first of these signals is KeyboardInterrupt, so that who waits for orders takes
leave of the orchestrator, which otherwise would wait for a learner that is not there.
The next one, or an orchestrator that does not take the farewell, ends the process.
"""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType

from melisma.cli.output import STOPPED, note

#: Longest time from the first signal to the end.
LEAVE_S = 1.5
#: Signals that tell a process to end; not all systems have the last.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def obey(quiet: bool) -> None:
    """From now on raise KeyboardInterrupt at the first signal, and end at the next.

    One that is ignored, as SIGHUP under nohup, stays so.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        for each in obeyed:
            signal.signal(each, lambda number, frame: _end(quiet))
        late = threading.Timer(LEAVE_S, _end, [quiet])
        late.daemon = True
        late.start()
        raise KeyboardInterrupt

    there = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    obeyed = [each for each in there if signal.getsignal(each) != signal.SIG_IGN]
    for each in obeyed:
        signal.signal(each, leave)


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
