"""The battery of a worker: a model of it, corrected by what sensors say.

What work takes is paid before it begins, so the battery is never below zero. Books are
kept since the battery began, and balance:

    began + stored − computing − sending = level
"""

import random
import time
from collections.abc import Callable

import numpy as np

from melisma.errors import TrainingError
from melisma.fleets.messages import Budget, Charge
from melisma.learner.energy import Meter, PowerSupply
from melisma.learner.throttle import POLL_S, sleep_unless

#: Slots of harvest that are drawn at most at a time: older ones are their mean.
MOST_DRAWS = 10_000


class Battery:
    """A battery that fills by itself as time passes."""

    def __init__(
        self,
        budget: Budget,
        sensor: PowerSupply | Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget, self._clock = budget, clock
        self._supply = sensor if isinstance(sensor, PowerSupply) else None
        self._meter = None if isinstance(sensor, PowerSupply) else sensor
        self._life = random.random()
        self._began_j = self._level_j = self._sensed(budget.start_j)
        self._lowest_j = self._level_j
        self._harvested_j = self._stored_j = 0.0
        self._computing_j = self._sending_j = 0.0
        self._slots, self._last_s = np.random.default_rng(), clock()

    def _sensed(self, otherwise_j: float) -> float:
        """A device's own battery counts by how full it is."""
        if self._supply is None:
            return otherwise_j
        return self._supply.share() * self.budget.battery_j

    def level_j(self) -> float:
        """What is in it now."""
        now_s = self._clock()
        elapsed_s, self._last_s = max(now_s - self._last_s, 0.0), now_s
        if self._supply is not None:
            change_j = self._sensed(0.0) - self._level_j
            self._store(max(change_j, 0.0))
            self._take(max(-change_j, 0.0))
        else:
            self._store(self._harvest_j(elapsed_s))
        return self._level_j

    def _harvest_j(self, elapsed_s: float) -> float:
        mean_j = self.budget.harvest_w * elapsed_s
        if self.budget.steady:
            return mean_j
        slots = int(min(max(elapsed_s / self.budget.slot_s, 1.0), MOST_DRAWS))
        return mean_j * float(self._slots.uniform(0.0, 2.0, slots).mean())

    def _store(self, harvest_j: float) -> None:
        stored_j = max(min(harvest_j, self.budget.battery_j - self._level_j), 0.0)
        self._harvested_j += harvest_j
        self._stored_j += stored_j
        self._level_j += stored_j

    def _take(self, spent_j: float) -> None:
        """Count energy of computing; no more than there is."""
        spent_j = min(spent_j, self._level_j)
        self._computing_j += spent_j
        self._level_j -= spent_j
        self._lowest_j = min(self._lowest_j, self._level_j)

    def compute(
        self, samples: int, work: Callable[[], float], cancelled: Callable[[], bool]
    ) -> float:
        """Do work once there is energy for it; return what it returns.

        Raises TrainingError if it is cancelled before.
        """
        need_j = samples * self.budget.sample_j
        least_j = max(need_j, min(self.budget.above_j, self.budget.battery_j))
        while self.level_j() < least_j:
            if sleep_unless(cancelled, POLL_S):
                raise TrainingError("cancelled while the battery was low")
        before_j = self._meter.spent_j() if self._meter else 0.0
        if self._supply is None:
            self._take(need_j)
        result = work()
        if self._meter:
            extra_j = self._meter.spent_j() - before_j - need_j
            if extra_j < 0:  # it took less than was paid
                self._computing_j += extra_j
                self._level_j -= extra_j
            self._take(max(extra_j, 0.0))
        return result

    def send(self, airtime_s: float) -> None:
        """Pay for so long on the air; TrainingError if there is not enough."""
        need_j = airtime_s * self.budget.sending_w
        if need_j > self.level_j():
            raise TrainingError(
                f"{need_j:.3g} J to send, and {self._level_j:.3g} J in the battery"
            )
        if self._supply is None:
            self._sending_j += need_j
            self._level_j -= need_j
            self._lowest_j = min(self._lowest_j, self._level_j)

    def charge(self) -> Charge:
        """Return the books."""
        return Charge(
            life=self._life,
            began_j=self._began_j,
            battery_j=self._level_j,
            lowest_j=self._lowest_j,
            harvested_j=self._harvested_j,
            stored_j=self._stored_j,
            computing_j=self._computing_j,
            sending_j=self._sending_j,
        )
