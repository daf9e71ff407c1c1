"""A coded sum of gradients on a learner: fetch, add up part by part, answer."""

import math
from collections.abc import Callable

import numpy as np

from melisma.errors import ConfigError, TrainingError
from melisma.fleets.messages import Gradient, GradientRequest
from melisma.learner.battery import Battery
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.source import Air, Source
from melisma.learner.throttle import sleep_unless
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
        self._waited_s = 0.0  # for the battery

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

    def add(self, part: int, cancelled: Callable[[], bool]) -> float:
        """Add one part's gradient, with a charged battery; return the seconds it took.

        Waiting for the battery is not counted.
        """
        if (battery := self._battery()) is None:
            return self._add(part)
        samples = len(self._request.parts[part]) * self._task.spec.shard
        began = self._clock()
        took_s = battery.compute(samples, lambda: self._add(part), cancelled)
        self._waited_s += self._clock() - began - took_s
        return took_s

    def _battery(self) -> Battery | None:
        """The battery, as the request has it; it lasts from cycle to cycle."""
        budget, task = self._request.budget, self._task
        if budget is None:
            return None
        if task.battery is None or task.battery.budget.battery_j != budget.battery_j:
            task.battery = Battery(budget, self._device.sensor, self._clock)
        task.battery.budget = budget
        return task.battery

    def wait_for_leave(self, air: Air | None, cancelled: Callable[[], bool]) -> None:
        """Ask for a channel until there is one, and pay for the time on it."""
        battery, request = self._battery(), self._request
        if battery is None:
            return
        if air is None:
            raise ConfigError("answers share channels here: call over a connection")
        while True:
            level_j = battery.level_j()
            airtime_s = air.leave(request.task, request.cycle, level_j)
            if not isinstance(airtime_s, float) or not 0 <= airtime_s < math.inf:
                raise ConfigError(f"leave for {airtime_s!r} s: give 0 or more")
            if airtime_s > 0:
                battery.send(airtime_s)
                return
            if sleep_unless(cancelled, battery.budget.slot_s):
                raise TrainingError("cancelled while it waited for a channel")

    def _add(self, part: int) -> float:
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

    def done(self) -> None:
        """Take the time: everything is computed."""
        self._trained_s = self._clock() - self._began

    def gradient(self) -> Gradient:
        """Return the sum, once a device of this rate would have sent it."""
        trained_s, battery = self._trained_s, self._battery()
        computing_s = trained_s - self._downloaded_s - self._waited_s
        self._task.speed.trained(self._samples, computing_s)
        kind = np.float64 if self._request.wide else np.float32
        gradient = Gradient(
            cycle=self._request.cycle,
            vector=self._total.astype(kind),
            downloaded_s=self._downloaded_s,
            trained_s=trained_s,
            charge=battery.charge() if battery else None,
        )
        self._link.sent(bytes_of(gradient.vector), self._clock())
        return gradient
