"""How long a benchmark takes yet, told to who waits for it."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

#: Pause before it is told, and between two times: a short benchmark tells nothing.
TELL_S = 1.0


class Remaining:
    """Counts the samples of a benchmark, and tells now and then how long it takes yet.

    In a thread of its own, so that telling is in no time that is measured.
    """

    def __init__(
        self, clock: Callable[[], float], tell: Callable[[float], None]
    ) -> None:
        self.times = 1  #: that all is measured, once in each state
        self._clock, self._tell = clock, tell
        self._ended = threading.Event()
        self._began, self._samples, self._rounds = 0.0, 0, 0
        self._within_s, self._done, self._over = 0.0, 0, 0

    def train(self, samples: int, rounds: int, within_s: float) -> None:
        """Training begins: so many samples, so often, for so long at most."""
        self._samples, self._rounds, self._within_s = samples, rounds, within_s
        self._began, self._done = self._clock(), 0

    def batch(self, samples: int) -> None:
        """So many samples are about to be trained."""
        self._done += samples

    def done(self) -> None:
        """All was measured, once."""
        self._over += 1

    def left_s(self) -> float | None:
        """Return how long the training takes yet, in all states; None if unknown."""
        if not self._done or not self._samples:
            return None
        took_s = self._clock() - self._began
        round_s = took_s / self._done * self._samples
        # As many rounds as end in time, and the first one in any case.
        rounds = max(1.0, min(self._rounds, self._within_s // max(round_s, 1e-9)))
        again = self.times - self._over - 1
        return max(0.0, rounds * round_s - took_s) + again * rounds * round_s

    def __enter__(self) -> Self:
        threading.Thread(target=self._report, name="remaining", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()

    def _report(self) -> None:
        while not self._ended.wait(TELL_S):
            if (left_s := self.left_s()) is not None:
                self._tell(left_s)
