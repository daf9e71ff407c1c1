"""Writes the records of a cycle."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import TrainingError
from melisma.fleets.protocols import (
    NOT_FINITE,
    NOT_THERE,
    Crew,
    Judges,
    Lost,
    Report,
    Updates,
)
from melisma.fleets.sums import Energy
from melisma.learning.aggregation import of_age
from melisma.learning.evaluation import Scores
from melisma.learning.parameters import all_finite
from melisma.runs import records
from melisma.system.energy import PowerProfile
from melisma.system.metrics import (
    cycle_s,
    max_staleness,
    mean_staleness,
    truancy,
    utilisation,
)

Sink = Callable[[records.Record], None]

logger = logging.getLogger("melisma.orchestrator")

#: What is longer than the deadline by this share is not late.
ROUNDING = 1e-9
#: Why an update does not count that has no samples.
NOTHING = "nothing trained by the deadline"
#: Refused answers after which a learner is expelled.
OFFENCES = 3


class CycleLog:
    """Turns what happens in a cycle into records."""

    def __init__(
        self, task: ScheduledTask, crew: Crew, sink: Sink, state: RunState, cycle: int
    ) -> None:
        self.task, self._crew, self.cycle = task, crew, cycle
        self._to, self.state = sink, state
        self.began_s, self._has_roster = crew.now_s(), False
        self.counted: list[int] = []  #: samples of each update that counts
        self.going_on = 0  #: learners that were not done, and whose work is not lost
        self.reclaimed = 0  #: learners whose machines were taken at work
        self._dropped: Counter[str] = Counter()
        self._not_finite = set[str]()
        self._power: PowerProfile | None = None

    def steered(self, deadline_s: float, **facts: Any) -> None:
        """Record another deadline, which holds from this cycle on."""
        self.task = replace(self.task, deadline_s=deadline_s)
        self._cycle_wide(records.Steered, deadline_s=deadline_s, **facts)

    def waits(self, reason: str) -> None:
        """Record that the cycle cannot be planned yet."""
        self._cycle_wide(records.Waited, reason=reason)

    def roster(
        self, began_s: float | None = None, names: Sequence[str] | None = None
    ) -> None:
        """Record who joined and left; the cycle begins now, or began at ``began_s``.

        ``names`` are those who are there; None: all of the crew.
        """
        self.began_s = self._crew.now_s() if began_s is None else began_s
        self._has_roster = True
        self._changed(self._crew.learners if names is None else names, 0.0)
        self.complaints()

    def turnover(self, names: Sequence[str]) -> None:
        """Record who joined and left in the midst of a cycle: these are there."""
        self._changed(names, self._crew.now_s() - self.began_s)

    def _changed(self, names: Sequence[str], after_s: float) -> None:
        for name in sorted(self.state.there.difference(names)):
            self._learner(records.Left, name, after_s)
        for name in names:
            if name not in self.state.there:
                self._learner(records.Joined, name, after_s)

    def complaints(self) -> None:
        """Record the answers that do not count and were given apart from any work."""
        if isinstance(self._crew, Judges):
            for name, reason, offence in self._crew.take_complaints():
                self._drop(name, 0.0, reason, offence=offence)

    def allocated(self, plan: Plan) -> None:
        """Record each learner's allocation, after the roster."""
        if not self._has_roster:
            self.roster(plan.probed.began_s if plan.probed else None)
        self._seconds = np.zeros(len(self._crew.learners))
        self._power = plan.power
        for k, name in enumerate(self._crew.learners):
            facts = plan.facts(k, self.task)
            if facts["samples"]:
                facts |= self.task.fixed_ways.get(name, {})
            self._learner(records.Allocated, name, 0.0, **facts)

    def moved(self, name: str, **facts: Any) -> None:
        """Record what a fog device did with its data in the slot that ended."""
        self._cycle_wide(records.Moved, learner=name, **facts)

    def powered(self, energy: Energy) -> None:
        """Record a worker's battery and queues in the cycle that ended."""
        facts = asdict(energy)
        name = self._crew.learners[facts.pop("worker")]
        self._cycle_wide(records.Powered, learner=name, **facts)

    def arrived(self, updates: Updates, refused: Sequence[int]) -> None:
        """Record updates; ``refused`` are the rows that do not count."""
        for row, report in enumerate(updates.reports):
            if report.age:
                self._carried(report, is_refused=row in refused)
                continue
            name = self._crew.learners[report.learner]
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
            late = report.uploaded_s > self.task.deadline_s * (1 + ROUNDING)
            facts = {"late": late, "spent_j": self._spent_j(report)}
            self._learner(records.Uploaded, name, report.uploaded_s, **facts)
            self._checked(name, report.distance, report.uploaded_s)
            if report.samples == 0:
                self._drop(name, report.uploaded_s, NOTHING, late=True)
            elif row in refused:
                one = {name: rows[row] for name, rows in updates.parameters.items()}
                large = all_finite(one)
                why = "too large to average" if large else NOT_FINITE
                # What is trained from a broken model is broken, whoever trains it.
                offence = not self.state.broken
                why = f"parameters are {why}"
                self._drop(name, report.uploaded_s, why, offence=offence)
            else:
                self.counted.append(report.samples)

    def _spent_j(self, report: Report) -> float | None:
        power, sensed_j = self._power, report.spent_j
        if power is None:
            return sensed_j
        computing_s = report.trained_s - report.downloaded_s
        sending_s = max(report.uploaded_s - computing_s - report.waited_s, 0.0)
        return power.spent_j(report.learner, computing_s, sending_s, sensed_j)

    def _carried(self, report: Report, *, is_refused: bool) -> None:
        """Record the update of an earlier cycle's order."""
        name = self._crew.learners[report.learner]
        self._checked(name, report.distance, report.uploaded_s)
        if not report.samples:
            self._drop(name, report.uploaded_s, NOTHING, late=True)
            return
        if is_refused:
            why = "parameters are not finite, or too large to average"
            self._drop(name, report.uploaded_s, why, offence=not self.state.broken)
            return
        self.counted.append(report.samples)
        self._learner(
            records.Carried,
            name,
            report.uploaded_s,
            samples=report.samples,
            batches=report.batches,
            loss=_finite(report.loss),
            age=report.age,
            weight=of_age(report.age),
        )

    def begin_answers(self) -> None:
        """Begin a cycle in which updates come as they come."""
        self._seconds = np.zeros(len(self._crew.learners))

    def answered(
        self,
        report: Report,
        began_s: float,
        predicted_s: float,
        steps: int,
        *,
        age: int,
        weight: float,
        reason: str,
    ) -> None:
        """Record an order and its update, which arrived now; ``reason`` it is refused.

        All of it is of this cycle, whenever the order was given.
        """
        name = self._crew.learners[report.learner]
        self._seconds[report.learner] = report.uploaded_s
        after_s = began_s - self.began_s
        work = {
            "samples": report.samples,
            "batches": report.batches,
            "loss": _finite(report.loss),
        }
        self._learner(
            records.Allocated,
            name,
            after_s,
            samples=report.samples,
            steps=steps,
            predicted_s=predicted_s,
        )
        self._learner(records.Downloaded, name, after_s + report.downloaded_s)
        trained = records.Halted if report.halted else records.Trained
        self._learner(trained, name, after_s + report.trained_s, **work)
        arrived_s = after_s + report.uploaded_s
        self._learner(records.Uploaded, name, arrived_s)
        if reason:
            # What is trained from a broken model is broken, whoever trains it.
            offence = reason.endswith(NOT_FINITE) and not self.state.broken
            self._drop(name, arrived_s, reason, offence=offence)
            return
        self.counted.append(report.samples)
        if age:
            facts = {"age": age, "weight": weight}
            self._learner(records.Carried, name, arrived_s, **work, **facts)

    def lost(self, lost: Lost) -> None:
        """Record work that did not arrive, or does not count, or not yet."""
        name = self._crew.learners[lost.learner]
        self._seconds[lost.learner] = lost.after_s
        if lost.goes_on:
            self.going_on += 1
            self._learner(records.GoesOn, name, lost.after_s)
            return
        self._checked(name, lost.distance, lost.after_s)
        late = lost.reason == NOT_THERE
        self.reclaimed += lost.reason == records.RECLAIMED
        self._drop(name, lost.after_s, lost.reason, offence=lost.offence, late=late)

    def _checked(self, name: str, distance: float | None, after_s: float) -> None:
        if distance is not None:
            self._learner(records.Checked, name, after_s, distance=_finite(distance))

    def _drop(
        self,
        name: str,
        after_s: float,
        reason: str,
        *,
        offence: bool = False,
        late: bool = False,
    ) -> None:
        self._dropped[reason] += 1
        if reason.endswith(NOT_FINITE):
            self._not_finite.add(name)
        facts = {"reason": reason, "offence": offence, "late": late}
        self._learner(records.Dropped, name, after_s, **facts)

    def broken(self) -> None:
        """Count no update of this cycle: together they make no usable model."""
        reason = "the merged model is not finite, or its loss is not"
        logger.warning("cycle %d: %s: the old one stays", self.cycle, reason)
        self.counted.clear()
        self._dropped[reason] += 1

    def diverged(self) -> TrainingError | None:
        """Return an error if most learners answered with what is not finite.

        One that does may lie; where most do, the job makes them. Most of all that are
        there, not of those at work: who boasts enough is the only one at work.
        """
        there = len(self._crew.learners)
        if 2 * len(self._not_finite) <= there:
            return None
        return TrainingError(
            f"cycle {self.cycle} of {self.task.name!r}: {len(self._not_finite)} of "
            f"{there} learners answered with numbers that are not finite: "
            "lower the learning rate"
        )

    def fruitless(self) -> TrainingError:
        """Return the error to raise when no update counts."""
        why = ", ".join(f"{reason} ({n})" for reason, n in self._dropped.items())
        return TrainingError(
            f"cycle {self.cycle} of {self.task.name!r} ended without one update "
            f"that counts: {why or 'no learner had work'}. Extend the deadline of "
            f"{self.task.deadline_s:.6g} s, or lower the learning rate"
        )

    def aggregated(
        self,
        plan: Plan,
        error: float | None = None,
        ages: Sequence[int] | None = None,
    ) -> None:
        """Record the cycle's totals; ``error`` is that of a decoded gradient.

        Staleness is how many steps learners are apart, or, where ``ages`` of updates
        are given, how many versions of the model they are behind.
        """
        steps = plan.allocation.steps[plan.allocation.samples > 0]
        deadline_s = self.task.deadline_s
        self._cycle_wide(
            records.Aggregated,
            learners=len(self.counted),
            samples=sum(self.counted),
            cycle_s=cycle_s(self._seconds),
            max_staleness=max_staleness(steps)
            if ages is None
            else max(ages, default=0),
            mean_staleness=(
                mean_staleness(steps) if ages is None else float(np.mean(ages or [0]))
            ),
            truancy=truancy(self._seconds, deadline_s),
            utilisation=utilisation(self._seconds, deadline_s),
            error=error,
        )

    def evaluated(self, scores: Scores) -> None:
        """Record the model's metrics and loss on the test set."""
        metrics = {name: _finite(value) for name, value in scores.metrics.items()}
        self._cycle_wide(records.Evaluated, metrics=metrics, loss=_finite(scores.loss))
        last = self.cycle == self.task.cycles
        if not last and (why := self.task.stop.reason(self.state.evaluations)):
            self._cycle_wide(records.Stopped, reason=why)

    def expel_offenders(self) -> None:
        """Expel learners that offended too often."""
        self.complaints()
        for name, offences in list(self.state.offences.items()):
            if offences >= OFFENCES:
                reason = f"{offences} answers were refused"
                self._crew.expel(name, reason)
                self.expelled(name, reason)

    def expelled(self, name: str, reason: str) -> None:
        """Record that a learner was expelled."""
        after_s = self._crew.now_s() - self.began_s
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
        self._record(event, self._crew.now_s(), **facts)

    def _record(
        self, event: Callable[..., records.Record], time_s: float, **facts: Any
    ) -> None:
        if not self.state.began:
            self._metrics(time_s)
        record = event(time_s=time_s, task=self.task.name, cycle=self.cycle, **facts)
        self.state.see(record)
        self._to(record)

    def _metrics(self, time_s: float) -> None:
        """Record by what the model is evaluated, before anything else.

        Not as the loop begins: a run that fails before its first record is removed.
        """
        self.state.began = True
        metrics = tuple(
            records.Metric(metric.name, metric.more_is_better, metric.percent)
            for metric in self.task.metrics
        )
        batch = self.task.training.batch
        self._record(records.Metrics, time_s, metrics=metrics, batch=batch)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
