"""What a device's owner does while it learns, and what that leaves for learning.

An owner is in one of several states, drawn anew for every routine of the learner. Work
of the owner is real: matrix products that take the processor from training, downloads
that take the link from transfers. Where a state also has a pace, the learner keeps to
it, as an emulated device does.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from melisma.errors import RpcError
from melisma.learner.throttle import Throttle

#: Side of the matrices that a computing owner multiplies.
SIDE = 256
#: Downloads that run at the same time, as a browser has them.
DOWNLOADS = 4


class Activity(StrEnum):
    """What an owner can do meanwhile."""

    IDLE = "idle"
    COMPUTING = "computing"  #: matrix products, on every core there is
    DOWNLOADING = "downloading"  #: several downloads, one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One thing that the owner does, and how fast the device then is."""

    probability: float = 1.0
    activity: Activity = Activity.IDLE
    samples_per_s: float = math.inf
    bytes_per_s: float = math.inf
    #: Of tasks, by name, in place of ``samples_per_s``.
    task_samples_per_s: Mapping[str, float] = field(default_factory=dict)

    def pace(self, task: str) -> Throttle:
        """How fast the learner may be."""
        rate = self.task_samples_per_s.get(task, self.samples_per_s)
        return Throttle(rate, self.bytes_per_s)


class BackgroundLoad:
    """Does something else every time; ``seed`` decides what.

    With the chance ``changing`` it also turns to something else in between.
    """

    def __init__(
        self,
        states: Sequence[State] = (State(),),
        seed: int = 0,
        changing: float = 0.0,
    ) -> None:
        self._states, self._changing, self._now = states, changing, 0
        self._gamma = np.array([state.probability for state in states])
        self._rng = np.random.default_rng(seed)
        self._paces: dict[tuple[int, str], Throttle] = {}
        self._stop = threading.Event()

    def begin(self, most_s: float, download: Callable[[], object]) -> None:
        """Begin something else, until the next time or for ``most_s`` at most.

        ``download`` fetches something useless once.
        """
        self._stop.set()
        self._stop = stop = threading.Event()
        self._turn_to(self._draw(), stop, most_s, download)
        if self._rng.random() < self._changing:
            next_state = self._draw()

            def change() -> None:
                if not stop.wait(after_s):
                    stop.set()
                    self._stop = later = threading.Event()
                    self._turn_to(next_state, later, most_s - after_s, download)

            after_s = most_s / 2 * float(self._rng.random())
            threading.Thread(target=change, name="owner", daemon=True).start()

    def pace(self, task: str) -> Throttle:
        """How fast the learner may be now."""
        key = self._now, task
        if key not in self._paces:
            self._paces[key] = self._states[self._now].pace(task)
        return self._paces[key]

    def _draw(self) -> int:
        return int(self._rng.choice(len(self._states), p=self._gamma))

    def _turn_to(
        self,
        state: int,
        stop: threading.Event,
        most_s: float,
        download: Callable[[], object],
    ) -> None:
        self._now = state
        match self._states[state].activity:
            case Activity.COMPUTING:
                for _ in range(os.cpu_count() or 1):
                    _work(_products(), stop, most_s)
            case Activity.DOWNLOADING:
                for _ in range(DOWNLOADS):
                    _work(download, stop, most_s)

    def rest(self) -> None:
        """Stop whatever is being done."""
        self._stop.set()


def _work(once: Callable[[], object], stop: threading.Event, most_s: float) -> None:
    until = time.monotonic() + most_s

    def work() -> None:
        with contextlib.suppress(RpcError):  # the line is cut: no more downloads
            while not stop.is_set() and time.monotonic() < until:
                once()

    threading.Thread(target=work, name="owner", daemon=True).start()


def _products() -> Callable[[], object]:
    square = np.random.default_rng(0).random((SIDE, SIDE))
    return lambda: square @ square
