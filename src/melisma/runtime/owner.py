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
from melisma.runtime.pace import Pace

#: Side of the matrices that a computing owner multiplies.
SIDE = 256


class Activity(StrEnum):
    """What an owner can do meanwhile."""

    IDLE = "idle"
    COMPUTING = "computing"  #: matrix products, on every core there is
    DOWNLOADING = "downloading"  #: one download after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One thing that the owner does, and how fast the device then is."""

    probability: float = 1.0
    activity: Activity = Activity.IDLE
    samples_per_s: float = math.inf
    bytes_per_s: float = math.inf
    #: Of tasks, by name, in place of ``samples_per_s``.
    task_samples_per_s: Mapping[str, float] = field(default_factory=dict)

    def pace(self, task: str) -> Pace:
        """How fast the learner may be."""
        rate = self.task_samples_per_s.get(task, self.samples_per_s)
        return Pace(rate, self.bytes_per_s)


class Owner:
    """Does something else every time; ``seed`` decides what."""

    def __init__(self, states: Sequence[State] = (State(),), seed: int = 0) -> None:
        self._states = states
        self._gamma = np.array([state.probability for state in states])
        self._rng = np.random.default_rng(seed)
        self._paces: dict[tuple[int, str], Pace] = {}
        self._stop = threading.Event()

    def begin(self, task: str, most_s: float, download: Callable[[], object]) -> Pace:
        """Begin something else, until the next time or for ``most_s`` at most.

        ``download`` fetches something useless once. Returns the pace that the device
        has meanwhile.
        """
        self._stop.set()
        self._stop = threading.Event()
        k = int(self._rng.choice(len(self._states), p=self._gamma))
        match self._states[k].activity:
            case Activity.COMPUTING:
                for _ in range(os.cpu_count() or 1):
                    self._work(_products(), most_s)
            case Activity.DOWNLOADING:
                self._work(download, most_s)
        if (k, task) not in self._paces:
            self._paces[k, task] = self._states[k].pace(task)
        return self._paces[k, task]

    def rest(self) -> None:
        """Stop whatever is being done."""
        self._stop.set()

    def _work(self, once: Callable[[], object], most_s: float) -> None:
        stop, until = self._stop, time.monotonic() + most_s

        def work() -> None:
            with contextlib.suppress(RpcError):  # the line is cut: no more downloads
                while not stop.is_set() and time.monotonic() < until:
                    once()

        threading.Thread(target=work, name="owner", daemon=True).start()


def _products() -> Callable[[], object]:
    square = np.random.default_rng(0).random((SIDE, SIDE))
    return lambda: square @ square
