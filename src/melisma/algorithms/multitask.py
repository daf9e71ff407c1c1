"""Several tasks at once, each with its own model, cycles and deadline.

Each task runs the same loop as it would alone, on the learners that the association
assigns to it: before each cycle it gathers them, and splits its shards among them. The
association holds what tasks share, learners and budget.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from melisma.algorithms.allocating import spread
from melisma.algorithms.association import Association
from melisma.algorithms.averaging import Averaging, share_out
from melisma.algorithms.clock import ARRIVE, BEGIN, END, TaskClock
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.algorithms.merging import Merger
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Probed, SharedCrew, Trains
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.servers import server_for
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.runs.records import Evaluated, Record, Refused
from melisma.runs.store import RunWriter, ignore
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation
from melisma.system.promise import COMPUTE, UNSEEN, Promises


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A task, its view of the learners, its run, and when it arrives."""

    task: ScheduledTask
    crew: SharedCrew
    run: RunWriter = field(default_factory=RunWriter)
    arrives_s: float = 0.0
    promises: Promises | None = None  #: where lateness is limited


class DelayEstimates(Enum):
    """Which estimates of delays the split of a cycle uses."""

    FIXED = "fixed"  #: those of the association (MED, MMTT)
    CURRENT = "current"  #: those of the cycle's start
    RENEWED = "renewed"  #: those too, and the association is renewed by them
    PROBED = "probed"  #: how long a few batches of the first shard took in this cycle


async def unchanged(task: str) -> None:
    """Do nothing: simulated learners are there from the start."""


class TaskScheduler:
    """Runs several tasks on one clock.

    ``refresh`` updates the roster of learners before a task is admitted and before each
    of its cycles. ``patient`` and ``control`` are as in `loop.train`; when the run is
    stopped, tasks that have not arrived are left out. ``observe`` is called with the
    records of all tasks.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        association: Association,
        clock: TaskClock,
        estimates: DelayEstimates = DelayEstimates.FIXED,
        *,
        refresh: Callable[[str], Awaitable[None]] = unchanged,
        patient: bool = False,
        control: Control | None = None,
        observe: Callable[[Record], None] = ignore,
    ) -> None:
        self._control = control or Control()
        self.entries, self._association = entries, association
        self._estimates, self._clock = estimates, clock
        self._refresh, self._patient, self._observe = refresh, patient, observe

    async def run(self) -> dict[str, Parameters | None]:
        """Run all tasks; return the model of each, None if it was refused.

        If a task fails, the others go on, and its error is raised at the end.
        """
        for entry in self.entries:
            self._clock.enter(entry.task.name, entry.arrives_s)
        ended = await asyncio.gather(
            *(self._run(i, entry) for i, entry in enumerate(self.entries)),
            return_exceptions=True,
        )
        models = {}
        for entry, end in zip(self.entries, ended, strict=True):
            if isinstance(end, BaseException):
                raise end
            models[entry.task.name] = end
        return models

    async def _run(self, i: int, entry: Entry) -> Parameters | None:
        task, crew = entry.task, entry.crew
        crew.wait_until(entry.arrives_s)
        try:
            arrival = self._control.unless_stopped(self._arrival(entry))
            if await arrival is None:
                self._clock.leave(task.name)
                return None
            begun = any(isinstance(r, Evaluated) for r in entry.run.past)
            self._association.admit(i, begun=begun)
        except InfeasibleError as error:
            refused = Refused(
                time_s=crew.now_s(), task=task.name, cycle=0, reason=str(error)
            )
            entry.run.note(refused)
            self._observe(refused)
            self._clock.leave(task.name)
            return None
        crew.gather = lambda: self._gather(i, entry)
        merger = Merger(server_for(task.merging))
        averaging = Averaging(crew, _Planner(self, i), entry.promises, merger=merger)
        try:
            return await train(
                task,
                crew,
                averaging,
                entry.run,
                patient=self._patient,
                control=self._control,
                observe=self._observe,
            )
        finally:
            await self._clock.take(task.name, crew.now_s(), END)
            self._association.finish(i)
            self._clock.leave(task.name)

    async def _arrival(self, entry: Entry) -> bool:
        """Wait until a task arrives, and refresh the roster."""
        await self._clock.take(entry.task.name, entry.arrives_s, ARRIVE)
        await self._refresh(entry.task.name)
        return True

    async def _gather(self, i: int, entry: Entry) -> Ints:
        """Wait for the task's turn, and until some of its learners are free."""
        name, crew = entry.task.name, entry.crew
        await self._clock.take(name, crew.now_s(), BEGIN)
        while True:
            await self._refresh(name)
            if self._estimates == DelayEstimates.RENEWED:
                self._association.renew()
            members = self._association.members(i)
            if members.size:
                return members
            crew.wait_until(await self._clock.pass_on(name, crew.now_s()))

    async def plan(self, i: int, cycle: int) -> Plan:
        """Plan the cycle of a task that begins now."""
        entry, association = self.entries[i], self._association
        task, members = entry.task, entry.crew.members
        seconds, probed, there = None, None, np.arange(len(members))
        if self._estimates in (DelayEstimates.CURRENT, DelayEstimates.RENEWED):
            seconds = association.seconds(i, members)
        elif self._estimates == DelayEstimates.PROBED:
            probed = await self._probed(entry, cycle)
            seconds, there = seconds_of(probed.law, task), probed.there
            if not there.size:
                raise InfeasibleError(
                    f"none of {len(members)} learners of {task.name!r} answered its "
                    "probe: wait for others"
                )
        shards = association.split(i, members[there], seconds)
        shard_s, fixed_s = seconds or association.seconds(i, members[there])
        whole = spread(shards, there, len(members))
        planned_s = np.where(shards > 0, fixed_s + shard_s * shards, 0.0)
        plan = Plan(
            Allocation(samples=whole, steps=(whole > 0) * task.steps),
            predicted_s=spread(planned_s, there, len(members)),
            cost=association.costs(members, whole),
            probed=probed,
        )
        if entry.promises is None:
            return plan
        margins = entry.promises.margins(entry.crew.learners)
        known_s = planned_s / margins.planned[COMPUTE]
        return replace(
            plan,
            predicted_s=known_s * margins.expected[COMPUTE],
            planned_s=planned_s,
            known_s=known_s,
        )

    async def _probed(self, entry: Entry, cycle: int) -> Probed:
        """Have every member begin with one shard, and report its speed."""
        task, shards = entry.task, np.ones(len(entry.crew.members), dtype=np.int64)
        first = Allocation(samples=shards, steps=task.steps * shards)
        orders = share_out(task, first, cycle)
        parameters = parameters_of(task.model)
        return await entry.crew.probe(orders, parameters, task.deadline_s)


class _Planner:
    def __init__(self, scheduler: TaskScheduler, i: int) -> None:
        self._scheduler, self._i = scheduler, i

    async def __call__(
        self,
        task: ScheduledTask,
        crew: Trains,
        cycle: int,
        *,
        only_able: bool,
        among: Bools | None = None,
    ) -> Plan:
        return await self._scheduler.plan(self._i, cycle)


def seconds_of(law: DelayLaw, task: ScheduledTask) -> tuple[Floats, Floats]:
    """Seconds per shard and fixed seconds of each learner."""
    counted = law.per_shard(task.shard)
    return counted.sample_s + task.steps * counted.step_s, counted.fixed_s


#: Returns seconds per shard and fixed seconds, tasks × learners.
Known = Callable[[], tuple[Floats, Floats]]


def with_care(
    known: Known,
    promises: Sequence[Promises | None],
    names: Callable[[], Sequence[str]],
    spread: Callable[[int], Floats | float] = lambda task: UNSEEN,
) -> Known:
    """Return the known times of learners as they are to be planned with.

    A learner has one margin for each task, of its whole cycle: what is known is not
    told apart into compute and link. ``spread`` is of the benchmarks for a task.
    """
    kept = [promised for promised in promises if promised]
    if not kept:
        return known

    def careful() -> tuple[Floats, Floats]:
        shard_s, fixed_s = known()
        everybody = names()
        slower = np.stack(
            [
                promised.margins(everybody, spread(i)).planned[COMPUTE]
                for i, promised in enumerate(kept)
            ]
        )
        return shard_s * slower, fixed_s * slower

    return careful
