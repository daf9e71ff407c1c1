"""Load of a device's owner beside the learner, and the rates it leaves for learning.

A device is in one of several states, drawn anew for every request. Its load is real:
matrix products that take the processor from training, downloads that take the link
from transfers. Where a state also has rates, the learner is throttled to them, as an
emulated device is.
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
from melisma.system.states import owner_generator

#: Side of the matrices that a computing load multiplies.
SIDE = 256
#: Downloads that run at the same time, as a browser has them.
DOWNLOADS = 4


class Activity(StrEnum):
    """What a device does beside learning."""

    IDLE = "idle"
    COMPUTING = "computing"  #: matrix products, on every core there is
    DOWNLOADING = "downloading"  #: several downloads, one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One load, and how fast the device then is."""

    probability: float = 1.0
    activity: Activity = Activity.IDLE
    samples_per_s: float = math.inf
    bytes_per_s: float = math.inf
    #: Of tasks, by name, in place of ``samples_per_s``.
    task_samples_per_s: Mapping[str, float] = field(default_factory=dict)

    def throttle(self, task: str) -> Throttle:
        """Return the rates of a task in this state."""
        rate = self.task_samples_per_s.get(task, self.samples_per_s)
        return Throttle(rate, self.bytes_per_s)


class BackgroundLoad:
    """Puts the device into another state each time; ``seed`` decides which.

    With probability ``changing`` the state also changes once in between. An ``owner``
    draws the states of each cycle anew by seed, name and cycle, whatever came before,
    so that who knows them can foresee the states.
    """

    def __init__(
        self,
        states: Sequence[State] = (State(),),
        seed: int = 0,
        changing: float = 0.0,
        *,
        owner: str | None = None,
    ) -> None:
        self._seed, self._owner = seed, owner
        self._states, self._changing, self._now = states, changing, 0
        self._gamma = np.array([state.probability for state in states])
        self._rng = np.random.default_rng(seed)
        self._throttles: dict[tuple[int, str], Throttle] = {}
        self._stop = threading.Event()

    @property
    def probabilities(self) -> list[float]:
        """Of the states."""
        return [state.probability for state in self._states]

    @property
    def is_several(self) -> bool:
        """Whether the device is in one of several states."""
        return len(self._states) > 1

    @property
    def seed(self) -> int | None:
        """The seed of an owner whose states can be foreseen."""
        return None if self._owner is None else self._seed

    def drawn(self, cycle: int) -> int:
        """Return the state of a cycle, without entering it; 0 is the benchmark's."""
        return self._draw(self._generator(cycle))

    def begin(
        self,
        most_s: float,
        download: Callable[[], object],
        *,
        cycle: int | None = None,
        state: int | None = None,
    ) -> None:
        """Enter another state, until the next time or for ``most_s`` at most.

        ``download`` fetches something once. The state is that of a ``cycle`` where
        there is an owner, or the ``state`` that is given, which then does not change.
        """
        self._stop.set()
        self._stop = stop = threading.Event()
        if state is not None:
            self._enter(state, stop, most_s, download)
            return
        rng = self._generator(cycle)
        self._enter(self._draw(rng), stop, most_s, download)
        if rng.random() < self._changing:
            next_state = self._draw(rng)

            def change() -> None:
                if not stop.wait(after_s):
                    stop.set()
                    self._stop = later = threading.Event()
                    self._enter(next_state, later, most_s - after_s, download)

            after_s = most_s / 2 * float(rng.random())
            threading.Thread(target=change, name=THREAD, daemon=True).start()

    def throttle(self, task: str) -> Throttle:
        """Return how fast the learner may be now."""
        key = self._now, task
        if key not in self._throttles:
            self._throttles[key] = self._states[self._now].throttle(task)
        return self._throttles[key]

    def rest(self) -> None:
        """Stop the load."""
        self._stop.set()

    def _generator(self, cycle: int | None) -> np.random.Generator:
        if self._owner is None or cycle is None:
            return self._rng
        return owner_generator(self._seed, self._owner, cycle)

    def _draw(self, rng: np.random.Generator) -> int:
        return int(rng.choice(len(self._states), p=self._gamma))

    def _enter(
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
                    _repeat(_products(), stop, most_s)
            case Activity.DOWNLOADING:
                for _ in range(DOWNLOADS):
                    _repeat(download, stop, most_s)


#: Name of the threads that are the load.
THREAD = "background load"


def _repeat(work: Callable[[], object], stop: threading.Event, most_s: float) -> None:
    until = time.monotonic() + most_s

    def repeat() -> None:
        with contextlib.suppress(RpcError):  # disconnected: no more downloads
            while not stop.is_set() and time.monotonic() < until:
                work()

    threading.Thread(target=repeat, name=THREAD, daemon=True).start()


def _products() -> Callable[[], object]:
    square = np.random.default_rng(0).random((SIDE, SIDE))
    return lambda: square @ square
