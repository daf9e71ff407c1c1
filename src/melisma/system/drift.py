"""Drift of a device from its benchmark: it heats up, or has other work.

A mean and a mean deviation of the ratio, each moved part of the way to the latest
observation, as TCP smooths round-trip times (RFC 6298). There are few cycles, so the
latest one weighs more here. One that is far from the mean is believed at once: then it
is the prediction that was wrong, and half the way to a hundred times is still half.
"""

from dataclasses import dataclass

#: Weight of the latest observation.
NEWS = 0.5
#: Deviations by which a careful estimate exceeds the mean.
CAUTION = 2.0
#: Deviation before any observation: the error of a small benchmark.
UNSEEN = 0.1
#: Times as long as the mean, or as short, from which on the mean was wrong.
WRONG = 4.0


@dataclass(slots=True)
class Drift:
    """Duration of work, in multiples of what the benchmark predicts."""

    mean: float = 1.0
    deviation: float = UNSEEN

    def see(self, predicted_s: float, took_s: float) -> None:
        """Observe how long some work took."""
        if predicted_s > 0 and took_s > 0:
            ratio = took_s / predicted_s
            if not 1 / WRONG < ratio / self.mean < WRONG:
                self.mean, self.deviation = ratio, UNSEEN * ratio
                return
            off = ratio - self.mean
            self.deviation += NEWS * (abs(off) - self.deviation)
            self.mean += NEWS * off

    def forget(self) -> None:
        """Move part of the way back to the benchmark, without an observation."""
        self.deviation += NEWS * (UNSEEN - self.deviation)
        self.mean += NEWS * (1.0 - self.mean)

    @property
    def careful(self) -> float:
        """What to expect if being late is worse than being early."""
        return self.mean + CAUTION * self.deviation
