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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from melisma.fleets.protocols import Updates
from melisma.learning.aggregation import of_age
from melisma.learning.parameters import Parameters, all_finite, from_arrays

#: Before, and between, the names of a learner and a parameter in a checkpoint.
PREFIX, BETWEEN = "stands in:", "\x1f"
#: In place of a parameter: the cycle and the samples.
FACTS = ""
#: Memory that all changes together may take.
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Last:
    """The last update of a learner."""

    cycle: int  #: in which it arrived
    samples: int
    change: Parameters  #: of the model that it was averaged into


class StandIns:
    """The last change of each learner, as long as there is room for it."""

    def __init__(self, staleness_at_most: int) -> None:
        self._at_most = staleness_at_most
        self._last: dict[str, Last] = {}
        self._bytes = 0

    def see(
        self, names: Iterable[str], updates: Updates, cycle: int, onto: Parameters
    ) -> None:
        """Keep updates that arrived; ``names`` are their learners'.

        What trained nothing, or is not finite, does not count and is not kept.
        """
        for row, name in enumerate(names):
            rows = updates.parameters.items()
            change = {n: values[row] - onto[n] for n, values in rows}
            if not updates.reports[row].samples or not all_finite(change):
                continue
            if name not in self._last:
                if self._bytes + size_of(change) > MOST_BYTES:
                    continue
                self._bytes += size_of(change)
            self._last[name] = Last(cycle, updates.reports[row].samples, change)

    def of(
        self, names: Iterable[str], cycle: int, onto: Parameters
    ) -> Iterator[tuple[Parameters, float]]:
        """Yield what stands in for learners at work: a stack of one, and its weight."""
        for name in names:
            last = self._last.get(name)
            if last and (age := cycle - last.cycle) <= self._at_most:
                stack = {n: (onto[n] + t)[None] for n, t in last.change.items()}
                yield stack, last.samples * of_age(age)

    def state(self) -> Parameters:
        """Return them for a checkpoint."""
        saved: Parameters = {}
        for name, last in self._last.items():
            facts = {FACTS: np.array([last.cycle, last.samples])}
            change = from_arrays(facts) | last.change
            saved |= {PREFIX + name + BETWEEN + n: t for n, t in change.items()}
        return saved

    def restore(self, saved: Parameters) -> None:
        """Go on with those of a checkpoint."""
        changes: dict[str, Parameters] = {}
        for key in (key for key in saved if key.startswith(PREFIX)):
            name, _, n = key.removeprefix(PREFIX).partition(BETWEEN)
            changes.setdefault(name, {})[n] = saved[key]
        self._last = {}
        for name, change in changes.items():
            cycle, samples = (int(fact) for fact in change.pop(FACTS))
            self._last[name] = Last(cycle, samples, change)
        self._bytes = sum(size_of(last.change) for last in self._last.values())


def size_of(change: Parameters) -> int:
    """Return the memory of a change."""
    return sum(tensor.nbytes for tensor in change.values())
