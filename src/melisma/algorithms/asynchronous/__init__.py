"""Asynchronous training: each learner works in its own time, and nobody waits.

give every idle learner an order → whose update comes next?
  → mix it into the model, by its age → give that learner its next order

Every order is the same amount of work: all samples of a learner, or its share of those
that are sent, for ``steps`` epochs. A cycle is so many arrivals: after them the model
is evaluated and a checkpoint written, while learners go on. An update's age is how many
versions the model has had since its order.
"""

import asyncio
from typing import NamedTuple, Protocol

import numpy as np

from melisma.algorithms.asynchronous.arrived import Arrived
from melisma.algorithms.log import NOTHING, CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError, MelismaError
from melisma.fleets.protocols import NOT_FINITE, Flows, Lost, Order, Updates
from melisma.learning import splits
from melisma.learning.parameters import (
    Parameters,
    all_finite,
    packed,
    unpacked,
)
from melisma.maths.arrays import Ints
from melisma.system.problem import Allocation
from melisma.system.streams import Stream

#: Before the version of a model in a checkpoint, from which there are orders.
PREFIX = "version:"
#: Why an update does not count.
TOO_OLD = "it is of a model that is too old"


class Rule(Protocol):
    """How updates become models."""

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Take an update; return the next model, None if there is none yet."""

    def weight(self, age: int) -> float:
        """Return what an update counts, for its age."""

    def end(self, model: Parameters) -> Parameters | None:
        """Return the model of the cycle's updates together; None if there is none."""

    def state(self) -> Parameters:
        """Return what a checkpoint is to hold."""

    def restore(self, saved: Parameters) -> None:
        """Restore it."""


class Asynchronous:
    """Gives orders, and has each update mixed in when it comes.

    ``updates`` arrivals are a cycle; None: as many as there are learners. Those of
    orders from models more than ``staleness_at_most`` versions old do not count.
    """

    def __init__(
        self,
        crew: Flows,
        rule: Rule,
        *,
        updates: int | None = None,
        staleness_at_most: int | None = None,
    ) -> None:
        self._crew, self._rule = crew, rule
        self._updates, self._at_most = updates, staleness_at_most
        self._version = self._drawn = 0  # of the model; orders with samples
        self._given: dict[str, _Given] = {}

    async def begin(self, log: CycleLog, *, patient: bool) -> Plan:
        """Ask which learners are ready; their work is the same in every cycle.

        A ``patient`` run waits up to `WAIT_S` for somebody to be there.
        """
        crew = self._crew
        until_s = crew.now_s() + (WAIT_S if patient else 0.0)
        await crew.ready()
        while not crew.learners:
            if crew.now_s() >= until_s:
                raise InfeasibleError("no learner is ready: wait for some to join")
            await asyncio.sleep(POLL_S)
            await crew.ready()
        learners, own = len(crew.learners), crew.own_samples
        share = log.task.cycle_samples(own) // learners
        shard = log.task.shard
        samples = np.full(learners, share - share % shard)
        if own is not None:
            samples = np.asarray(own) - np.asarray(own) % shard
        if not samples.any():
            raise InfeasibleError(
                f"none of {learners} learners has a shard of {shard} samples: use "
                "smaller shards, or more samples"
            )
        steps = np.where(samples > 0, log.task.steps, 0)
        law = await crew.law()
        log.roster()
        return Plan(
            Allocation(samples=samples, steps=steps), law.seconds(samples, steps)
        )

    async def cycle(
        self, log: CycleLog, begun: Plan, parameters: Parameters
    ) -> Outcome:
        """Have so many updates arrive."""
        crew, model, ages = self._crew, parameters, list[int]()
        log.begin_answers()
        has_work = begun.allocation.samples > 0
        for place in crew.idle():
            if has_work[place]:
                self._order(log, begun, place, model)
        for _ in range(self._updates or int(has_work.sum())):
            result = await crew.arrival()
            if result is None:
                break
            if isinstance(result, Lost):
                # It has its next order in another cycle, if it is there.
                log.lost(result)
                continue
            arrived = self._recorded(log, result)
            if arrived is not None:
                ages.append(arrived.age)
                model = self._moved(model, self._rule.arrive(model, arrived))
            self._order(log, begun, result.reports[0].learner, model)
        model = self._moved(model, self._rule.end(model))
        return Outcome(model if ages else None, begun, ages=ages)

    def _moved(self, model: Parameters, better: Parameters | None) -> Parameters:
        """Return the next version of the model, if there is one."""
        if better is None:
            return model
        self._version += 1
        return better

    def _recorded(self, log: CycleLog, result: Updates) -> Arrived | None:
        """Record an update; return it if it counts."""
        (report,) = result.reports
        given = self._given.pop(self._crew.learners[report.learner])
        update = Arrived(
            {n: rows[0] for n, rows in result.parameters.items()},
            given.start,
            self._version - given.version,
            report,
        )
        reason = self._refused(update)
        log.answered(
            report,
            given.began_s,
            given.predicted_s,
            given.steps,
            age=update.age,
            weight=self._rule.weight(update.age),
            reason=reason,
        )
        return None if reason else update

    def _refused(self, update: Arrived) -> str:
        """Return why an update does not count; empty if it does."""
        if not update.report.samples:
            return NOTHING
        if self._at_most is not None and update.age > self._at_most:
            return TOO_OLD
        return "" if all_finite(update.parameters) else f"parameters are {NOT_FINITE}"

    def _order(self, log: CycleLog, plan: Plan, place: int, model: Parameters) -> None:
        """Give a learner its next order, from the present model."""
        crew, samples = self._crew, int(plan.allocation.samples[place])
        steps = int(plan.allocation.steps[place])
        rows = None
        if crew.own_samples is None:
            rows = self._rows(log, samples)
        assert plan.predicted_s is not None
        start = dict(model)  # of this order alone, so that it can be restored in place
        self._given[crew.learners[place]] = _Given(
            self._version, start, crew.now_s(), float(plan.predicted_s[place]), steps
        )
        crew.order(Order(learner=place, samples=samples, steps=steps, rows=rows), start)

    def _rows(self, log: CycleLog, samples: int) -> Ints:
        """Draw the samples of an order."""
        task, self._drawn = log.task, self._drawn + 1
        rng = np.random.default_rng([task.seed, Stream.ROWS, self._drawn])
        shards = len(task.data.train) // task.shard
        turns = rng.choice(shards, samples // task.shard, replace=False)
        return splits.rows_of(turns, task.shard)

    def state(self) -> Parameters:
        """Return earlier models that learners were ordered from, and the rule's own."""
        starts = {given.version: given.start for given in self._given.values()}
        starts.pop(self._version, None)  # the checkpoint has the model itself
        owned = {str(version): start for version, start in starts.items()}
        return packed(PREFIX, owned) | self._rule.state()

    def restore(self, saved: Parameters) -> None:
        """Restore them; versions and times, a replay knows."""
        self._rule.restore(saved)
        starts = unpacked(PREFIX, saved)
        for given in self._given.values():
            now = {n: saved.get(n, tensor) for n, tensor in given.start.items()}
            # In place: the learner that is to train from it has the same one.
            given.start.update(starts.get(str(given.version), now))

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no update counts."""
        return log.fruitless()


class _Given(NamedTuple):
    """An order that was given."""

    version: int  #: of the model that it starts from
    start: Parameters
    began_s: float
    predicted_s: float
    steps: int
