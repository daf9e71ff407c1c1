"""What workers draw and harvest, and the setting of the rules that follows from it.

In training a unit of data is one answer, whatever the model's size, and of work what
makes a worker's even share of a cycle's samples weigh as much as an answer: for both
the battery is drawn as deep. The Mbit and Gcycles of `Setting` are read as these. The
server's work is in seconds.
"""

from dataclasses import dataclass, replace

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, numbers
from melisma.transmission.queues import Setting

#: Answers of a worker that may wait to be sent: one of each stage.
MOST_WAITING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Batteries of equal workers, and how the scheduler weighs them."""

    battery_j: float = 50.0  #: what one holds
    start_j: float | None = None  #: in it as the run begins; None: full
    harvest_w: float = 1.0  #: mean
    steady: bool = False  #: each slot brings the mean; else 0 to twice as much
    sending_w: float = 1.0
    computing_w: float = 5.0
    slot_s: float = 0.1  #: T
    utility_weight: float = 0.02  #: V, answers²
    fairness: float = 100.0  #: λ, per answer
    decoding_s: float = 0.0  #: the server's work for one answer

    def __post_init__(self) -> None:
        for name in ("battery_j", "slot_s", "utility_weight", "fairness"):
            numbers(name, getattr(self, name), shape=(), above=0.0)
        for name in ("sending_w", "computing_w"):
            numbers(name, getattr(self, name), shape=(), above=0.0)
        for name in ("harvest_w", "decoding_s"):
            numbers(name, getattr(self, name), shape=())
        if not 0.0 <= self.full_j <= self.battery_j:
            raise ConfigError(
                f"a battery of {self.battery_j} J starts with {self.start_j} J: give "
                "0 J up to what it holds"
            )

    @property
    def full_j(self) -> float:
        """What a battery holds as the run begins."""
        return self.battery_j if self.start_j is None else self.start_j

    @property
    def most_harvest_j(self) -> float:
        """E^H_max, of a slot."""
        return (1 if self.steady else 2) * self.harvest_w * self.slot_s

    def unit_s(self, answer_s: Floats, share_s: Floats) -> Floats:
        """Seconds that each worker computes a unit of work, at full speed.

        An answer may draw the battery down by J_max = Q/(β·p/r), work by R/(β·δ): with
        a unit of √(J of an answer / J of a share) shares these are equal for one answer
        and one share.
        """
        share_s = _above_0(share_s)
        answer_j = self.sending_w * _above_0(answer_s)
        unit_s: Floats = share_s * np.sqrt(answer_j / (self.computing_w * share_s))
        return unit_s

    def setting(
        self, *, answer_s: Floats, share_s: Floats, channels: int, faster: float = 1.0
    ) -> Setting:
        """Return the setting of workers that take ``answer_s`` to send an answer.

        ``share_s`` is how long each computes its even share, at full speed; both times
        may be ``faster`` times as short. β is such that the battery that the rules
        ask for, θ + E^H_max, is the one there is: each worker has its own, since a
        battery that is fuller than that would weigh more than all that is owed. Raises
        ConfigError if a slot may use more than a battery holds.
        """
        unit_s, answer_s = self.unit_s(answer_s, share_s), _above_0(answer_s)
        each = np.ones_like(answer_s)
        free = Setting(
            rate_mbps=faster / answer_s,
            arrival_mbit=MOST_WAITING * each,
            harvest_j=self.most_harvest_j * each,
            work_gcycles=answer_s.size * share_s / unit_s,
            compute_gcycles=faster * self.slot_s / unit_s,
            power_w=self.sending_w * each,
            compute_j_per_gcycle=self.computing_w * unit_s,
            server_gcycles_per_mbit=self.decoding_s * each,
            fairness_per_mbit=self.fairness * each,
            server_gcycles=self.slot_s,
            channels=channels,
            slot_s=self.slot_s,
            utility_weight=self.utility_weight,
        )
        # With β = 1, θ = wanted + reserve; 1/β scales what is wanted to what is left.
        wanted = free.rate_mbps * free.most_data_mbit / self.sending_w
        left_j = self.battery_j - (free.most_battery_j - wanted)
        if not (left_j > 0).all():
            raise ConfigError(
                f"a battery of {self.battery_j} J, and a slot may bring or take "
                f"{self.battery_j - left_j.min():.3g} J: give a larger battery, or "
                "shorter slots"
            )
        return replace(free, energy_weight=wanted / left_j)


def _above_0(seconds: Floats) -> Floats:
    """A transfer that takes no time would have an infinite rate."""
    return np.maximum(seconds, 1e-9)
