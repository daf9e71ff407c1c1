"""Who stands in for learners that are at work: their own last updates.

Where data lies on learners, and unevenly, an average without some of them leads away
from their data. Ringleader ASGD (Maranjyan and Richtárik 2025) keeps the last gradient
of every worker and averages all of them, which is time-optimal for such data; MIFA (Gu
et al. 2021) does so with the updates of federated averaging. So here: of a learner that
goes on with its order after the deadline, the last change that it sent is averaged in
its place, with less weight the older it is, until its update comes.

Where samples are sent to learners, all draw from the same data, and nobody's absence
leads anywhere: then it is time-optimal that all compute until one moment, and only what
they computed from the present model is averaged (Rennala SGD, Tyurin and Richtárik
2023).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from melisma.fleets.protocols import Report, Updates
from melisma.learning.parameters import (
    Parameters,
    all_finite,
    from_arrays,
    packed,
    unpacked,
)

#: Before the name of a learner in a checkpoint.
PREFIX = "stands in:"
#: In place of a parameter: the cycle, the samples and the batches.
FACTS = ""
#: Of a report that nobody sent.
UNTOLD: dict[str, Any] = {
    "downloaded_s": 0.0,
    "trained_s": 0.0,
    "uploaded_s": 0.0,
    "loss": 0.0,
    "halted": False,
}
#: Memory that all changes together may take.
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Last:
    """The last update of a learner."""

    cycle: int  #: in which it arrived
    samples: int
    batches: int
    change: Parameters  #: of the model that it was averaged into


class StandIns:
    """The last change of each learner, as long as there is room for it."""

    def __init__(self, staleness_at_most: int) -> None:
        self._at_most = staleness_at_most
        self._last: dict[str, Last] = {}
        self._bytes = 0

    def see(
        self, names: Sequence[str], updates: Updates, cycle: int, onto: Parameters
    ) -> None:
        """Keep updates that arrived; ``names`` are the learners'.

        What trained nothing, or is not finite, does not count and is not kept.
        """
        for row, report in enumerate(updates.reports):
            rows, name = updates.parameters.items(), names[report.learner]
            change = {n: values[row] - onto[n] for n, values in rows}
            if not report.samples or not all_finite(change):
                continue
            if name not in self._last:
                if self._bytes + size_of(change) > MOST_BYTES:
                    continue
                self._bytes += size_of(change)
            self._last[name] = Last(cycle, report.samples, report.batches, change)

    def of(
        self, names: Mapping[int, str], cycle: int, onto: Parameters
    ) -> Iterator[Updates]:
        """Yield what stands in for learners at work: their names, by their places."""
        for place, name in names.items():
            last = self._last.get(name)
            if last and (age := cycle - last.cycle) <= self._at_most:
                report = Report(
                    learner=place,
                    samples=last.samples,
                    batches=last.batches,
                    age=age,
                    **UNTOLD,
                )
                stack = {n: (onto[n] + t)[None] for n, t in last.change.items()}
                yield Updates([report], stack)

    def state(self) -> Parameters:
        """Return them for a checkpoint."""
        owned = {}
        for name, last in self._last.items():
            facts = {FACTS: np.array([last.cycle, last.samples, last.batches])}
            owned[name] = from_arrays(facts) | last.change
        return packed(PREFIX, owned)

    def restore(self, saved: Parameters) -> None:
        """Go on with those of a checkpoint."""
        self._last = {}
        for name, change in unpacked(PREFIX, saved).items():
            cycle, samples, batches = (int(fact) for fact in change.pop(FACTS))
            self._last[name] = Last(cycle, samples, batches, change)
        self._bytes = sum(size_of(last.change) for last in self._last.values())


def size_of(change: Parameters) -> int:
    """Return the memory of a change."""
    return sum(tensor.nbytes for tensor in change.values())
