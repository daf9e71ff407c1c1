"""Times and work of one cycle of simulated learners."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from melisma.fleets.protocols import Order, Report
from melisma.maths.arrays import Floats, Ints
from melisma.system.law import DelayLaw
from melisma.system.promise import Took


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """One cycle of every ordered learner, in time and in work."""

    downloaded_s: Floats
    trained_s: Floats
    uploaded_s: Floats
    batches: Ints
    samples: Ints
    passes: Ints  #: samples, each as often as it was trained on
    halted: NDArray[np.bool_]
    late: NDArray[np.bool_]  #: would not be done by the deadline

    def report(self, i: int, learner: int, loss: float) -> Report:
        """Return what learner ``learner``, of row i, did."""
        return Report(
            learner=learner,
            downloaded_s=float(self.downloaded_s[i]),
            trained_s=float(self.trained_s[i]),
            uploaded_s=float(self.uploaded_s[i]),
            samples=int(self.samples[i]),
            batches=int(self.batches[i]),
            loss=loss,
            halted=bool(self.halted[i]),
        )

    def took(self, law: DelayLaw, orders: Sequence[Order]) -> Took:
        """Compare it with what the learners knew of themselves."""
        samples = np.array([order.samples for order in orders])
        download_s = law.sample_s * samples + law.fixed_s / 2
        return Took(
            ratio=np.stack(
                [
                    _over(self.trained_s - self.downloaded_s, law.step_s * self.passes),
                    _over(self.downloaded_s, download_s),
                ]
            ),
            late=self.late,
        )


def _over(took_s: Floats, predicted_s: Floats) -> Floats:
    """Return the ratio; NaN where nothing was predicted."""
    ratio: Floats = np.full(len(took_s), np.nan)
    np.divide(took_s, predicted_s, out=ratio, where=predicted_s > 0)
    return ratio


@dataclass(frozen=True, slots=True, eq=False)
class Chance:
    """The random draws of one cycle."""

    states: Ints | None  #: in which it begins
    through: DelayLaw  #: on the whole, where states change in between
    slower: Floats  #: how much slower compute and network are

    def phases_s(self, who: Ints, samples: Ints, passes: Ints) -> Floats:
        """Seconds of download, of training on so many samples, and of upload."""
        law, (compute, network) = self.through.only(who), self.slower[:, who]
        half_s = law.fixed_s / 2
        download_s = (law.sample_s * samples + half_s) * network
        return np.stack([download_s, law.step_s * compute * passes, half_s * network])
