"""Times and work of one cycle of simulated learners."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from melisma.fleets.protocols import NOT_NEEDED, NOT_THERE, Lost, Order, Report
from melisma.learning.settings import Late
from melisma.maths.arrays import Floats, Ints
from melisma.runs.records import RECLAIMED
from melisma.system.law import DelayLaw
from melisma.system.promise import Took


class Arrivals(NamedTuple):
    """What becomes of the orders of a cycle."""

    rows: Ints  #: of prices, in the order in which updates arrive
    lost: list[Lost]
    ends_s: float  #: when the cycle does


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

    def arrivals(
        self,
        orders: Sequence[Order],
        deadline_s: float,
        late: Late,
        *,
        enough: int | None = None,
        taken_s: Floats | float = np.inf,
    ) -> Arrivals:
        """Return who arrives and who is lost, where ``enough`` updates end the cycle.

        A learner that is reclaimed, ``taken_s`` after its order was given, before it
        has sent all is lost then.
        """
        cut_off = np.zeros(len(orders), dtype=bool)
        if late == Late.DROP:
            cut_off = self.late
        elif late == Late.HALT:  # who cannot send anything in time
            cut_off = self.uploaded_s > deadline_s * (1 + 1e-9)
        until_s = np.where(cut_off, deadline_s, self.uploaded_s)
        taken = taken_s < until_s
        until_s = np.where(taken, taken_s, until_s)
        ends_s, reason = float(until_s.max(initial=0)), NOT_THERE
        rows = np.argsort(self.uploaded_s, kind="stable")
        is_there = ~(cut_off | taken)[rows]
        rows, others = rows[is_there], rows[~is_there]
        if enough is not None and len(rows) >= enough:
            others = np.concatenate([rows[enough:], others])
            rows, reason = rows[:enough], NOT_NEEDED
            ends_s = float(self.uploaded_s[rows].max())
        taken &= until_s <= ends_s
        lost = [
            Lost(
                learner=orders[i].learner,
                reason=RECLAIMED if taken[i] else reason,
                after_s=float(until_s[i]) if taken[i] else ends_s,
            )
            for i in others.tolist()
        ]
        return Arrivals(rows, lost, ends_s)

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
