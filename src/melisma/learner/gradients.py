"""A coded sum of gradients on a learner: fetch, add up part by part, answer."""

import numpy as np

from melisma.fleets.messages import Gradient, GradientRequest
from melisma.learner.training import Device, Link, WarmTask, bytes_of
from melisma.learning.gradients import gradient_sum, size_of
from melisma.learning.parameters import put
from melisma.learning.shards import Shard, unpacked

#: Longest that a device's owner goes on meanwhile.
OWNER_S = 60.0


class Summation:
    """One worker's part of a cycle."""

    def __init__(
        self, device: Device, kept: WarmTask, request: GradientRequest
    ) -> None:
        self._device, self._kept, self._request = device, kept, request
        self._clock, self._began = device.clock, device.clock()
        self._line = Link(device, kept, OWNER_S)
        self._total = np.zeros(size_of(kept.model))
        self._downloaded_s, self._samples = 0.0, 0

    def fetch(self) -> None:
        """Have the model of this cycle, unless it is here, and all shards."""
        kept, request = self._kept, self._request
        if kept.loaded != request.cycle:
            put(self._line.fetch("parameters", request.cycle), kept.model)
            kept.loaded = request.cycle
        keys = [key for part in request.parts for key in part]
        self._shards: dict[str, Shard] = dict(
            zip(keys, self._device.cache.get(keys, self._fetched), strict=True)
        )
        self._downloaded_s = self._clock() - self._began

    def _fetched(self, keys: list[str]) -> list[Shard]:
        shards: list[Shard] = self._line.fetch("shards", keys)
        return shards

    def add(self, part: int) -> float:
        """Add one part's gradient; return the seconds that took."""
        began = self._clock()
        x, y = unpacked([self._shards[key] for key in self._request.parts[part]])
        self._line.pace.batch(len(y))
        vector, _ = gradient_sum(self._kept.model, x, y)
        self._total += self._request.coefficients[part] * vector
        self._samples += len(y)
        return self._clock() - began

    def gradient(self) -> Gradient:
        """The answer; returns when a slow device would have sent it."""
        trained_s = self._clock() - self._began
        took_s = trained_s - self._downloaded_s
        self._kept.speed.trained(self._samples, took_s)
        kind = np.float64 if self._request.wide else np.float32
        answer = Gradient(
            cycle=self._request.cycle,
            vector=self._total.astype(kind),
            downloaded_s=self._downloaded_s,
            trained_s=trained_s,
        )
        self._line.pace.transferred(bytes_of(answer.vector), self._clock())
        return answer
