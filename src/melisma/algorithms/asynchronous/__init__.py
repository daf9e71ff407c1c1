"""Asynchronous training: each learner works in its own time, and nobody waits.

give every idle learner an order → whose update comes next?
  → mix it into the model, by its age → give that learner its next order

A learner's work is all its samples, or its share of those that are sent, for ``steps``
epochs; a rule may have it do less, or wait. A cycle is so many arrivals: after them the
model is evaluated and a checkpoint written, while learners go on. An update's age is
how many versions the model has had since its order.
"""

import asyncio
import math
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

import numpy as np

from melisma.algorithms.asynchronous.arrived import Arrived
from melisma.algorithms.log import NOTHING, CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.task import Plan, in_batches
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
    """How updates become models, and who goes on when, with how much work."""

    @property
    def due_s(self) -> float:
        """When `due` is to be called, if nothing comes before; may be infinite."""

    def begin(self, learners: Collection[str]) -> None:
        """Take note of who is at work in a cycle."""

    def arrive(self, model: Parameters, update: Arrived) -> Parameters | None:
        """Take an update; return the next model, None if there is none yet."""

    def due(self, model: Parameters) -> Parameters | None:
        """Return the next model at ``due_s``, None if there is none."""

    def lost(self, learner: str, time_s: float) -> None:
        """Take note of an order of which nothing comes."""

    def holds(self, learner: str) -> bool:
        """Return whether a learner is to wait for its next order."""

    def freed(self) -> Iterable[str]:
        """Return those who have waited, and are to go on: each once."""

    def batches(self, learner: str, whole: int) -> int:
        """Return the batches of a learner's next order, of so many."""

    def weight(self, age: int) -> float:
        """Return what an update counts, for its age."""

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
        self._places: dict[str, int] = {}  # of those with work in this cycle

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
        samples, steps = log.task.fixed(samples)
        law = await crew.law()
        log.roster()
        return Plan(
            Allocation(samples=samples, steps=steps),
            law.seconds(samples, steps),
            law=law,
        )

    async def cycle(
        self, log: CycleLog, begun: Plan, parameters: Parameters
    ) -> Outcome:
        """Have so many updates arrive."""
        crew, rule, model, ages = self._crew, self._rule, parameters, list[int]()
        log.begin_answers()
        at_work = np.flatnonzero(begun.allocation.samples).tolist()
        self._places = {crew.learners[place]: place for place in at_work}
        rule.begin(self._places)
        idle = [crew.learners[place] for place in crew.idle()]
        self._go_on(log, begun, idle, model)
        missing = self._updates or len(self._places)
        while missing:
            result = await crew.arrival(rule.due_s)
            if result is None and rule.due_s == math.inf:
                break
            if result is None:
                model = self._moved(model, rule.due(model))
                self._go_on(log, begun, rule.freed(), model)
                continue
            missing -= 1
            if isinstance(result, Lost):
                # It has its next order in another cycle, if it is there.
                rule.lost(crew.learners[result.learner], crew.now_s())
                log.lost(result)
                continue
            name = crew.learners[result.reports[0].learner]
            arrived = self._recorded(log, begun, result)
            if arrived is None:
                rule.lost(name, crew.now_s())
            else:
                ages.append(arrived.age)
                model = self._moved(model, rule.arrive(model, arrived))
            self._go_on(log, begun, (name, *rule.freed()), model)
        return Outcome(model if ages else None, begun, ages=ages)

    def _go_on(
        self, log: CycleLog, plan: Plan, names: Iterable[str], model: Parameters
    ) -> None:
        """Give learners their next orders, unless they have no work or are to wait."""
        for name in dict.fromkeys(names):
            if name in self._places and not self._rule.holds(name):
                self._order(log, plan, name, model)

    def _moved(self, model: Parameters, better: Parameters | None) -> Parameters:
        """Return the next version of the model, if there is one."""
        if better is None:
            return model
        self._version += 1
        return better

    def _recorded(self, log: CycleLog, plan: Plan, result: Updates) -> Arrived | None:
        """Record an update; return it if it counts."""
        (report,) = result.reports
        name = self._crew.learners[report.learner]
        given = self._given.pop(name)
        update = Arrived(
            {n: rows[0] for n, rows in result.parameters.items()},
            given.start,
            self._version - given.version,
            report,
            name,
            self._crew.now_s(),
            self._whole(log, plan, report.learner),
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

    def _order(self, log: CycleLog, plan: Plan, name: str, model: Parameters) -> None:
        """Give a learner its next order, from the present model."""
        crew, place = self._crew, self._places[name]
        samples = int(plan.allocation.samples[place])
        steps = int(plan.allocation.steps[place])
        assert plan.predicted_s is not None
        predicted_s = float(plan.predicted_s[place])
        whole = self._whole(log, plan, place)
        batches = self._rule.batches(name, whole)
        if batches < whole:
            each = (log.task.training.batch, log.task.shard)
            samples, steps = in_batches(batches, samples, *each)
            assert plan.law is not None
            law = plan.law.only(np.array([place]))
            predicted_s = float(law.seconds(np.array([samples]), np.array([steps]))[0])
        rows = None
        if crew.own_samples is None:
            rows = self._rows(log, samples)
        start = dict(model)  # of this order alone, so that it can be restored in place
        self._given[name] = _Given(
            self._version, start, crew.now_s(), predicted_s, steps
        )
        crew.order(Order(learner=place, samples=samples, steps=steps, rows=rows), start)

    def _whole(self, log: CycleLog, plan: Plan, place: int) -> int:
        """Return the batches of all of a learner's work."""
        samples = int(plan.allocation.samples[place])
        return -(-samples // log.task.training.batch) * int(
            plan.allocation.steps[place]
        )

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
