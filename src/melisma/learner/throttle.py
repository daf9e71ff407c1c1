"""A fast machine that behaves like a slow one: duty-cycled compute, paced transfers.

For a fleet of unlike learners on one machine without root. Sleeping takes no cores from
the others, so that several slow devices fit on a fast one.
"""

import math
import time
from collections.abc import Callable

from melisma.errors import ConfigError


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
                raise ConfigError(f"a pace of {rate} {name}/s: give a number above 0")
        self._sample_s, self._byte_s = 1 / samples_per_s, 1 / bytes_per_s
        self._clock, self._sleep = clock, sleep
        self._own_sample_s = math.inf  # what the machine itself takes, as seen so far
        self._batch: tuple[float, int] | None = None

    def batch(self, samples: int) -> None:
        """Wait, before a batch, for as long as a slow device would take longer."""
        if not self._sample_s:
            return
        if self._batch:
            began, size = self._batch
            took_s = (self._clock() - began) / size
            self._own_sample_s = min(self._own_sample_s, took_s)
        own_s = self._own_sample_s if self._own_sample_s < math.inf else 0.0
        self._sleep(max(0.0, samples * (self._sample_s - own_s)))
        self._batch = self._clock(), samples

    def transferred(self, size_bytes: int, began: float) -> None:
        """Wait until a transfer that began at ``began`` would be over."""
        self._sleep(max(0.0, began + size_bytes * self._byte_s - self._clock()))
