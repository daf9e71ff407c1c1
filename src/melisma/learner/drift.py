"""How far a device has drifted from its benchmark: it heats up, or its owner is busy.

A mean and a mean deviation of the ratio, each moved part of the way to what was seen
last, as TCP smooths round-trip times (RFC 6298). Few cycles are all there are, so news
weighs more here.
"""

from dataclasses import dataclass

#: Weight of what was seen last against what was known.
NEWS = 0.5
#: Deviations that a careful guess stays above the mean.
CAUTION = 2.0
#: Deviation before anything was seen: what small benchmarks are off by.
UNSEEN = 0.1


@dataclass(slots=True)
class Drift:
    """What work takes, in multiples of what its benchmark said."""

    mean: float = 1.0
    deviation: float = UNSEEN

    def see(self, predicted_s: float, took_s: float) -> None:
        """Take in what some work really took."""
        if predicted_s > 0 and took_s > 0:
            off = took_s / predicted_s - self.mean
            self.deviation += NEWS * (abs(off) - self.deviation)
            self.mean += NEWS * off

    def forget(self) -> None:
        """Move part of the way back to the benchmark, when there is no news."""
        self.deviation += NEWS * (UNSEEN - self.deviation)
        self.mean += NEWS * (1.0 - self.mean)

    @property
    def careful(self) -> float:
        """What to expect if being late is worse than being early."""
        return self.mean + CAUTION * self.deviation
