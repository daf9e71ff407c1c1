"""A fast machine that behaves like a slow one: duty-cycled compute, paced transfers.

For unlike learners on one machine without root. Sleeping takes no cores from the
others, so that several slow devices fit on a fast one.
"""

import math
import time
from collections.abc import Callable

from melisma.errors import ConfigError

#: Pause between two looks at whether work was cancelled.
POLL_S = 0.05


class Throttle:
    """How fast a learner may be; infinity for as fast as it can."""

    def __init__(
        self,
        samples_per_s: float = math.inf,
        bytes_per_s: float = math.inf,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        for name, rate in (("samples", samples_per_s), ("bytes", bytes_per_s)):
            if not rate > 0:
                raise ConfigError(f"a rate of {rate} {name}/s: give a number above 0")
        self._sample_s, self._byte_s = 1 / samples_per_s, 1 / bytes_per_s
        self.rates = samples_per_s, bytes_per_s  #: that it keeps to
        self._clock, self._sleep = clock, sleep
        self._own_sample_s = math.inf  # of the machine itself, the fastest so far
        self._batch: tuple[float, float] | None = None

    @property
    def is_free(self) -> bool:
        """Whether training is as fast as the machine."""
        return not self._sample_s

    def batch(self, samples: float, *, warm_up: bool = False) -> None:
        """Sleep, before a batch, as much longer as a slow device would take for it.

        A sample of a part of the model counts as far as it computes. In a ``warm_up``,
        which nobody times, it learns how fast the machine is, and does not sleep.
        """
        if not self._sample_s:
            return
        if self._batch:
            began, size = self._batch
            took_s = (self._clock() - began) / size
            self._own_sample_s = min(self._own_sample_s, took_s)
        own_s = self._own_sample_s if self._own_sample_s < math.inf else 0.0
        if not warm_up:
            self._sleep(max(0.0, samples * (self._sample_s - own_s)))
        self._batch = self._clock(), samples

    def transferred(self, size_bytes: int, began: float) -> None:
        """Sleep until a transfer that began at ``began`` would be over."""
        self._sleep(max(0.0, began + size_bytes * self._byte_s - self._clock()))


def sleep_unless(
    cancelled: Callable[[], bool],
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Sleep, and return early and True once ``cancelled`` holds."""
    ends = clock() + seconds
    while not cancelled():
        if (left_s := ends - clock()) <= 0:
            return False
        sleep(min(left_s, POLL_S))
    return True
