"""A notebook's output that is updated in place, until what it shows is over.

IPython is asked for only where the process is inside it already. An update is a message
that names the output: there is no script in the page, and a saved notebook has what was
shown last.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

log = logging.getLogger("melisma.views")

#: Least pause between two updates; most of the time that may go into drawing them.
PAUSE_S, SHARE = 1.0, 0.05
#: Longest wait for the last update: a kernel that hangs does not hold up a run.
LAST_S = 5.0


def notebook() -> Any:
    """Return IPython's shell if it is a notebook's kernel, else None.

    What a terminal's IPython has printed cannot be updated.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if getattr(shell, "kernel", None) else None


class Output:
    """HTML in the output of the cell that runs, and a thread that keeps it up to date.

    ``page`` returns the HTML. It is asked again about each second until ``over``, or
    until `close`, which shows the last of it. Where it fails, a warning says so and the
    output stays as it is: whoever shows a run does not end it.
    """

    def __init__(
        self, page: Callable[[], str], text: str, over: Callable[[], bool]
    ) -> None:
        self._page, self._over, self._text = page, over, text
        self._closed, self._html = threading.Event(), ""
        self._handle: Any = None
        self.cell = notebook().execution_count  #: the number of its cell
        # In a context of its own, so that updates are messages of the cell that runs by
        # then: some clients drop those of a cell that has ended.
        self._thread = threading.Thread(
            target=Context().run, args=[self._follow], name="notebook", daemon=True
        )
        if self._guarded(self._draw):
            self._thread.start()

    def close(self) -> None:
        """Show the last state, and stop."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(LAST_S)

    def _follow(self) -> None:
        self._guarded(self._update)

    def _update(self) -> None:
        pause_s, is_last = PAUSE_S, False
        while not is_last:
            is_closed = self._closed.wait(pause_s)
            began_s = time.monotonic()
            is_last = is_closed or self._over()
            self._draw()
            pause_s = max(PAUSE_S, (time.monotonic() - began_s) / SHARE)

    def _draw(self) -> None:
        """Show the page, if it is another one than before."""
        from IPython.display import display

        html = self._page()
        if html == self._html:
            return
        self._html, data = html, {"text/html": html, "text/plain": self._text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)

    def _guarded(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            log.warning("%s is not shown any further: %s", self._text, what)
            return False
        return True
