"""Merging the updates of a cycle into one model.

clip → weigh → aggregate → the server's step
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import numpy as np

from melisma.algorithms.controls import Controls
from melisma.algorithms.log import CycleLog
from melisma.algorithms.standins import StandIns
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.protocols import Carries, Crew, Lost, Order, Report, Updates
from melisma.learning.aggregation import aggregate, clip, of_age
from melisma.learning.parameters import Parameters, trained
from melisma.learning.servers import Server
from melisma.learning.submodels.coverage import CoveredMean, mean_by_entry
from melisma.learning.submodels.part import Part
from melisma.learning.weights import weighting


class Merger:
    """Makes the model of a cycle from its updates, cycle by cycle.

    ``server`` steps along the mean change; without one, the mean is the model.
    ``stand_ins`` stand in for learners that are at work. ``controls`` correct what
    learners do by what updates show.
    """

    def __init__(
        self,
        server: Server | None = None,
        stand_ins: StandIns | None = None,
        controls: Controls | None = None,
    ) -> None:
        self._server, self._stand_ins = server, stand_ins
        self._controls = controls

    def corrected(self, orders: Sequence[Order], crew: Crew) -> Sequence[Order]:
        """Return orders with corrections of their learners' gradients, if any."""
        if self._controls is None:
            return orders
        return self._controls.corrected(orders, crew.learners)

    async def merge(
        self,
        log: CycleLog,
        crew: Crew,
        parameters: Parameters,
        arriving: AsyncIterator[Updates | Lost],
    ) -> Parameters | None:
        """Merge updates as they arrive, and record them; None if none counts."""
        mean = _Mean(log.task, log.cycle, parameters, crew.own_samples)
        async for updates in arriving:
            if isinstance(updates, Lost):
                log.lost(updates)
                continue
            refused = mean.add(updates)
            log.arrived(updates, refused)
            if self._controls:
                training = log.task.training.at(log.cycle)
                self._controls.see(
                    crew.learners, updates, refused, parameters, training
                )
            if self._stand_ins:
                self._stand_ins.see(crew.learners, updates, log.cycle, parameters)
        if not log.counted:
            return None
        for update in self._standing_in(crew, log.cycle, parameters):
            mean.add(update)
        merged = mean.result()
        if self._server is None:
            return merged
        return mean.settled(self._server.step(parameters, merged, mean.moving))

    def _standing_in(
        self, crew: Crew, cycle: int, parameters: Parameters
    ) -> Iterable[Updates]:
        """Return what is merged in place of learners at work."""
        if self._stand_ins is None or not isinstance(crew, Carries):
            return ()
        at_work = np.flatnonzero(crew.rest_s() > 0).tolist()
        names = {k: crew.learners[k] for k in at_work}
        return self._stand_ins.of(names, cycle, parameters)

    def state(self) -> Parameters:
        """Return the server's moments, learners' last changes, and their controls."""
        return {name: t for part in self._parts for name, t in part.state().items()}

    def restore(self, saved: Parameters) -> None:
        """Go on with them."""
        for part in self._parts:
            part.restore(saved)

    @property
    def _parts(self) -> "list[Server | StandIns | Controls]":
        parts = (self._server, self._stand_ins, self._controls)
        return [part for part in parts if part is not None]


class _Mean:
    """The mean of a cycle's updates, each clipped and weighed by the task's rules."""

    def __init__(
        self,
        task: ScheduledTask,
        cycle: int,
        before: Parameters,
        own: Sequence[int] | None,
    ) -> None:
        rules = self._rules = task.merging
        self._before, self._own = before, own
        self.moving: Collection[str] = trained(task.model).keys()
        self._weighting = weighting(rules.weights, task.training.at(cycle))
        self._merge = CoveredMean(
            before, lambda: aggregate(rules.rule, rules.trim, rules.most_share)
        )
        # Σ wₖ and Σ wₖ·‖aₖ‖ of each part
        self._weights: dict[Part | None, float] = {}
        self._lengths: dict[Part | None, float] = {}

    def add(self, updates: Updates) -> list[int]:
        """Add updates; return the rows that are refused."""
        stack, reports, part = updates.parameters, updates.reports, updates.part
        before = self._before if part is None else part.kept(self._before)
        if self._rules.clip:
            stack, _ = clip(stack, before, self._rules.clip)
        weights = [self._weight_of(report) for report in reports]
        lengths = [self._weighting.length(report) for report in reports]
        scaled = self._scaled(stack, before, lengths)
        refused = self._merge.add(scaled, weights, part)
        for row, weight in enumerate(weights):
            if row not in refused:
                self._weights[part] = self._weights.get(part, 0.0) + weight
                length = self._lengths.get(part, 0.0) + weight * lengths[row]
                self._lengths[part] = length
        return refused

    def _weight_of(self, report: Report) -> float:
        own = report.samples if self._own is None else self._own[report.learner]
        return self._weighting.weight(report, own) * of_age(report.age)

    def _scaled(
        self, stack: Parameters, before: Parameters, lengths: Sequence[float]
    ) -> Parameters:
        """Return updates with what they change divided by their lengths."""
        if all(length == 1 for length in lengths):
            return stack
        scaled = dict(stack)
        for name in stack.keys() & self.moving:
            start, rows = before[name], stack[name]
            by = rows.new_tensor(lengths).view(-1, *[1] * start.ndim)
            scaled[name] = start + (rows - start) / by
        return scaled

    def result(self) -> Parameters:
        """Return the mean, whose change is as long as they are on average."""
        mean = self._merge.result()
        if self._lengths == self._weights:  # all are of length 1
            return mean
        lengths = mean_by_entry(self._lengths, self._weights, self._before)
        for name in self.moving:
            before, length = self._before[name], lengths[name]
            mean[name] = (before + length * (mean[name] - before)).to(mean[name])
        return mean

    def settled(self, after: Parameters) -> Parameters:
        """Return a model in which what nobody trained is as it was before."""
        return self._merge.settled(after)
