"""What happens in a cycle, as records; and what the records say of who takes part."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from melisma.algorithms.task import Plan, Task
from melisma.errors import TrainingError
from melisma.fleets.protocols import Fleet, Lost, Updates
from melisma.maths.arrays import Floats
from melisma.runs import records
from melisma.system.metrics import (
    cycle_s,
    max_staleness,
    mean_staleness,
    truancy,
    utilisation,
)

Sink = Callable[[records.Record], None]

#: Refused updates after which a learner is sent away.
OFFENCES = 3


class Standing:
    """Who takes part, who offended how often, and how far the run is.

    All of it is what the records say, so that a run that was cut short goes on with it.
    """

    def __init__(self, past: Iterable[records.Record] = ()) -> None:
        self.there: set[str] = set()
        self.expelled: dict[str, str] = {}
        self.offences: Counter[str] = Counter()
        self.deadline_s: float | None = None  #: if it was changed
        self.done = 0  #: cycles
        for record in past:
            self.see(record)

    def see(self, record: records.Record) -> None:
        """Take in what has happened."""
        match record:
            case records.Joined(learner=name):
                self.there.add(name)
            case records.Left(learner=name):
                self.there.discard(name)
            case records.Expelled(learner=name, reason=reason):
                self.expelled[name] = reason
            case records.Dropped(learner=name, offence=True):
                self.offences[name] += 1
            case records.Steered(deadline_s=deadline_s):
                self.deadline_s = deadline_s
            case records.Evaluated(cycle=number):
                self.done = number


class Diary:
    """Turns what happens in a cycle into records."""

    def __init__(
        self, task: Task, fleet: Fleet, sink: Sink, standing: Standing, cycle: int
    ) -> None:
        self.task, self._fleet, self.cycle = task, fleet, cycle
        self._to, self._standing = sink, standing
        self.began_s, self._is_mustered = fleet.now_s(), False
        self.counted: list[int] = []  #: samples of each update that counts
        self._dropped: Counter[str] = Counter()

    def steered(self, task: Task) -> None:
        """Note another deadline, which holds from this cycle on."""
        self.task = task
        self._cycle_wide(records.Steered, deadline_s=task.deadline_s)

    def mustered(self, began_s: float | None = None) -> None:
        """Note who came and who left; the cycle begins now, or has begun before."""
        self.began_s = self._fleet.now_s() if began_s is None else began_s
        self._is_mustered, names = True, self._fleet.learners
        for name in sorted(self._standing.there.difference(names)):
            self._learner(records.Left, name, 0.0)
        for name in names:
            if name not in self._standing.there:
                self._learner(records.Joined, name, 0.0)

    def allocated(self, plan: Plan) -> None:
        """Note what everybody is to do, and who came and left if that is not noted."""
        if not self._is_mustered:
            self.mustered(plan.probed.began_s if plan.probed else None)
        self._seconds = np.zeros(len(self._fleet.learners))
        allocation = plan.allocation
        for k, shards in enumerate(allocation.samples.tolist()):
            self._learner(
                records.Allocated,
                self._fleet.learners[k],
                0.0,
                samples=shards * self.task.shard,
                steps=int(allocation.steps[k]),
                predicted_s=_at(plan.predicted_s, k),
                cost=_at(plan.cost, k),
            )

    def moved(self, name: str, **facts: Any) -> None:
        """Note what a device of a fog did with its data in the slot that is over."""
        self._cycle_wide(records.Moved, learner=name, **facts)

    def arrived(self, updates: Updates, refused: Sequence[int]) -> None:
        """Note what came, and which rows of it are refused."""
        for row, report in enumerate(updates.reports):
            name = self._fleet.learners[report.learner]
            self._seconds[report.learner] = report.uploaded_s
            self._learner(records.Downloaded, name, report.downloaded_s)
            self._learner(
                records.Halted if report.halted else records.Trained,
                name,
                report.trained_s,
                samples=report.samples,
                batches=report.batches,
                loss=_finite(report.loss),
            )
            self._learner(records.Uploaded, name, report.uploaded_s)
            self._checked(name, report.distance, report.uploaded_s)
            if report.samples == 0:
                self._drop(name, report.uploaded_s, "nothing trained by the deadline")
            elif row in refused:
                why = "parameters are not finite"
                self._drop(name, report.uploaded_s, why, offence=True)
            else:
                self.counted.append(report.samples)

    def lost(self, lost: Lost) -> None:
        """Note what did not come, or does not count."""
        name = self._fleet.learners[lost.learner]
        self._seconds[lost.learner] = lost.after_s
        self._checked(name, lost.distance, lost.after_s)
        self._drop(name, lost.after_s, lost.reason, offence=lost.offence)

    def _checked(self, name: str, distance: float | None, after_s: float) -> None:
        if distance is not None:
            self._learner(records.Checked, name, after_s, distance=_finite(distance))

    def _drop(
        self, name: str, after_s: float, reason: str, *, offence: bool = False
    ) -> None:
        self._dropped[reason] += 1
        self._learner(records.Dropped, name, after_s, reason=reason, offence=offence)

    def fruitless(self) -> TrainingError:
        """What to raise when no update counts."""
        why = ", ".join(f"{reason} ({n})" for reason, n in self._dropped.items())
        return TrainingError(
            f"cycle {self.cycle} of {self.task.name!r} ended without one update "
            f"that counts: {why or 'no learner had work'}. Extend the deadline of "
            f"{self.task.deadline_s:.6g} s, or lower the learning rate"
        )

    def aggregated(self, plan: Plan, error: float | None = None) -> None:
        """Note what the cycle came to; ``error`` is that of a decoded gradient."""
        steps = plan.allocation.steps[plan.allocation.samples > 0]
        deadline_s = self.task.deadline_s
        self._cycle_wide(
            records.Aggregated,
            learners=len(self.counted),
            samples=sum(self.counted),
            cycle_s=cycle_s(self._seconds),
            max_staleness=max_staleness(steps),
            mean_staleness=mean_staleness(steps),
            truancy=truancy(self._seconds, deadline_s),
            utilisation=utilisation(self._seconds, deadline_s),
            error=error,
        )

    def evaluated(self, accuracy: float, loss: float) -> None:
        """Note how good the model is."""
        self._cycle_wide(records.Evaluated, accuracy=accuracy, loss=_finite(loss))

    def expel_offenders(self) -> None:
        """Send away who offended too often."""
        for name, offences in self._standing.offences.items():
            if offences >= OFFENCES and name not in self._standing.expelled:
                reason = f"{offences} updates were refused"
                self._fleet.expel(name, reason)
                self.expelled(name, reason)

    def expelled(self, name: str, reason: str) -> None:
        """Note who was sent away."""
        after_s = self._fleet.now_s() - self.began_s
        self._learner(records.Expelled, name, after_s, reason=reason)

    def _learner(
        self,
        event: Callable[..., records.Record],
        name: str,
        after_s: float,
        **facts: Any,
    ) -> None:
        self._record(event, self.began_s + after_s, learner=name, **facts)

    def _cycle_wide(self, event: Callable[..., records.Record], **facts: Any) -> None:
        self._record(event, self._fleet.now_s(), **facts)

    def _record(
        self, event: Callable[..., records.Record], time_s: float, **facts: Any
    ) -> None:
        record = event(time_s=time_s, task=self.task.name, cycle=self.cycle, **facts)
        self._standing.see(record)
        self._to(record)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _at(values: Floats | None, k: int) -> float | None:
    return None if values is None else float(values[k])
