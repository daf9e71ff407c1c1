"""The call that a running function answers: who made it, and for how long they wait."""

import threading
import time
from contextvars import ContextVar

from melisma.errors import RpcError
from melisma.rpc.peer import Peer


class Request:
    """A call that is being answered; ``melisma.rpc.current()`` inside the function."""

    def __init__(self, function: str, caller: str, peer: Peer | None) -> None:
        self.function = function
        self.caller = caller  #: the name of who calls
        self.peer = peer  #: who calls, to be called back; None over plain HTTP
        self._deadline: float | None = None
        self._cancelled = False
        self._nobody_waits: threading.Event | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether the caller has given up; a long function asks now and then."""
        return self._cancelled

    @property
    def remaining_s(self) -> float | None:
        """Return the seconds that the caller still waits, or None for no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def sleep(self, seconds: float) -> bool:
        """Sleep, in a thread; return early, and True, if the caller gives up."""
        self._nobody_waits = self._nobody_waits or threading.Event()
        return self._cancelled or self._nobody_waits.wait(seconds)

    def cancel(self) -> None:
        """Let the function know that nobody waits."""
        self._cancelled = True
        if self._nobody_waits:
            self._nobody_waits.set()


current_request: ContextVar[Request] = ContextVar("request")


def current() -> Request:
    """Return the call that the running function answers; RpcError outside of one."""
    try:
        return current_request.get()
    except LookupError:
        raise RpcError("no call is being answered here") from None
