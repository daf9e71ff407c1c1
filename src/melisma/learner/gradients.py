"""A coded sum of gradients on a learner: fetch, add up part by part, answer."""

import numpy as np

from melisma.fleets.messages import Gradient, GradientRequest
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.source import Source
from melisma.learning.gradients import gradient_sum, size_of
from melisma.learning.losses import loss_of
from melisma.learning.samples import Arrays, joined
from melisma.learning.shards import Shard

#: Longest that the background load lasts meanwhile.
BACKGROUND_S = 60.0


class Summation:
    """One worker's part of a cycle."""

    def __init__(
        self, device: Device, task: WarmTask, request: GradientRequest, source: Source
    ) -> None:
        self._device, self._task, self._request = device, task, request
        self._clock, self._began = device.clock, device.clock()
        self._link = Link(device, task, source, BACKGROUND_S)
        self._total = np.zeros(size_of(task.model))
        self._downloaded_s, self._samples = 0.0, 0

    def fetch(self) -> None:
        """Fetch the model of this cycle, unless it is loaded, and all shards."""
        task, request = self._task, self._request
        if task.loaded != request.cycle:
            task.load(self._link.parameters(request.cycle), request.cycle)
            task.loaded = request.cycle
        keys = [key for part in request.parts for key in part]
        self._shards: dict[str, Shard] = dict(
            zip(keys, self._device.cache.get(keys, self._link.shards), strict=True)
        )
        self._downloaded_s = self._clock() - self._began

    def add(self, part: int) -> float:
        """Add one part's gradient; return the seconds that took."""
        began = self._clock()
        shards = [self._shards[key] for key in self._request.parts[part]]
        samples = Arrays(self._task.transform(joined(shards)))
        self._link.throttle.batch(len(samples))
        vector, _ = gradient_sum(
            self._task.model, samples, loss_of(self._task.training)
        )
        self._total += self._request.coefficients[part] * vector
        self._samples += len(samples)
        return self._clock() - began

    def gradient(self) -> Gradient:
        """Return the sum, once a device of this rate would have sent it."""
        trained_s = self._clock() - self._began
        self._task.speed.trained(self._samples, trained_s - self._downloaded_s)
        kind = np.float64 if self._request.wide else np.float32
        gradient = Gradient(
            cycle=self._request.cycle,
            vector=self._total.astype(kind),
            downloaded_s=self._downloaded_s,
            trained_s=trained_s,
        )
        self._link.sent(bytes_of(gradient.vector), self._clock())
        return gradient
