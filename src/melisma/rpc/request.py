"""The request that a running function answers: its caller, timeout and cancellation."""

import threading
import time
from contextvars import ContextVar

from melisma.errors import RpcError
from melisma.rpc.peer import Peer


class Request:
    """A call being answered; ``melisma.rpc.current()`` inside the function."""

    def __init__(self, function: str, caller: str, peer: Peer | None) -> None:
        self.function = function
        self.caller = caller  #: name of the calling peer
        self.peer = peer  #: the calling peer, to call back; None over HTTP
        self._deadline: float | None = None
        self._cancelled = False
        self._cancellation: threading.Event | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether the caller cancelled or timed out; long functions poll it."""
        return self._cancelled

    @property
    def remaining_s(self) -> float | None:
        """Return the seconds until the caller's timeout, None without one."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic())

    def sleep(self, seconds: float) -> bool:
        """Sleep in a thread; return True, and early, if the request is cancelled."""
        self._cancellation = self._cancellation or threading.Event()
        return self._cancelled or self._cancellation.wait(seconds)

    def cancel(self) -> None:
        """Mark the request as cancelled and wake ``sleep``."""
        self._cancelled = True
        if self._cancellation:
            self._cancellation.set()


current_request: ContextVar[Request] = ContextVar("request")


def current() -> Request:
    """Return the request that the running function answers; RpcError outside."""
    try:
        return current_request.get()
    except LookupError:
        raise RpcError(
            "no call is being answered here: use current() in an exposed function"
        ) from None
