"""Several tasks at once, each with its own model, cycles and deadline.

Each task runs as it would alone, on the learners that the association gives it: before
each cycle it gathers them, and splits its shards among them. What tasks share, learners
and budget, is the association's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from melisma.algorithms.association import Association
from melisma.algorithms.averaging import Averaging, share_out, spread
from melisma.algorithms.clock import BEGIN, COME, END, TaskClock
from melisma.algorithms.control import Control
from melisma.algorithms.loop import train
from melisma.algorithms.task import Plan, Task
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Probed, SharedCrew, Trains
from melisma.learning.parameters import Parameters, parameters_of
from melisma.maths.arrays import Floats, Ints
from melisma.runs.records import Record, Refused
from melisma.runs.store import RunWriter, ignore
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A task, its view of the learners, its run, and when it arrives."""

    task: Task
    crew: SharedCrew
    run: RunWriter = field(default_factory=RunWriter)
    arrives_s: float = 0.0


class Knowledge(Enum):
    """What a cycle's split is made by, once the association stands."""

    BEFOREHAND = "beforehand"  #: what the association was made by (MED, MMTT)
    NOW = "now"  #: what is known now, where that changes from cycle to cycle
    LATEST = "latest"  #: that too, and the association is made anew by it
    PROBE = "probe"  #: what a few batches of the first shard took, in the cycle itself


async def nobody_new(task: str) -> None:
    """Simulated learners are there from the start."""


class Programme:
    """Tasks on one clock.

    ``look`` sees who is there, before a task is admitted and before each of its cycles.
    ``patient`` and ``control`` are as in `loop.train`; a task that has not arrived when
    the run is stopped does not arrive. ``observe`` sees the records of all tasks.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        association: Association,
        clock: TaskClock,
        knowledge: Knowledge = Knowledge.BEFOREHAND,
        *,
        look: Callable[[str], Awaitable[None]] = nobody_new,
        patient: bool = False,
        control: Control | None = None,
        observe: Callable[[Record], None] = ignore,
    ) -> None:
        self._control = control or Control()
        self.entries, self._association = entries, association
        self._knowledge, self._clock = knowledge, clock
        self._look, self._patient, self._observe = look, patient, observe

    async def run(self) -> dict[str, Parameters | None]:
        """Run all tasks; return their models, None of those that were refused.

        A task that fails does not end the others; its error is raised at the end.
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
            come = self._control.unless_stopped(self._come(entry))
            if await come is None:
                self._clock.leave(task.name)
                return None
            self._association.admit(i)
        except InfeasibleError as error:
            refused = Refused(
                time_s=crew.now_s(), task=task.name, cycle=0, reason=str(error)
            )
            entry.run.note(refused)
            self._observe(refused)
            self._clock.leave(task.name)
            return None
        crew.gather = lambda: self._gather(i, entry)
        averaging = Averaging(crew, _Planner(self, i))
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

    async def _come(self, entry: Entry) -> bool:
        """Wait until it is time for a task, and see who is there."""
        await self._clock.take(entry.task.name, entry.arrives_s, COME)
        await self._look(entry.task.name)
        return True

    async def _gather(self, i: int, entry: Entry) -> Ints:
        """Wait for one's turn, and for learners that are free then."""
        name, crew = entry.task.name, entry.crew
        await self._clock.take(name, crew.now_s(), BEGIN)
        while True:
            await self._look(name)
            if self._knowledge == Knowledge.LATEST:
                self._association.renew()
            members = self._association.members(i)
            if members.size:
                return members
            crew.wait_until(await self._clock.pass_on(name, crew.now_s()))

    async def plan(self, i: int, cycle: int) -> Plan:
        """What the members of a task do in the cycle that begins."""
        entry, association = self.entries[i], self._association
        task, members = entry.task, entry.crew.members
        seconds, probed, there = None, None, np.arange(len(members))
        if self._knowledge in (Knowledge.NOW, Knowledge.LATEST):
            seconds = association.seconds(i, members)
        elif self._knowledge == Knowledge.PROBE:
            probed = await self._probed(entry, cycle)
            seconds, there = seconds_of(probed.law, task), probed.there
        shards = association.split(i, members[there], seconds)
        shard_s, fixed_s = seconds or association.seconds(i, members[there])
        whole = spread(shards, there, len(members))
        predicted_s = np.where(shards > 0, fixed_s + shard_s * shards, 0.0)
        return Plan(
            Allocation(samples=whole, steps=(whole > 0) * task.steps),
            predicted_s=spread(predicted_s, there, len(members)),
            cost=association.costs(members, whole),
            probed=probed,
        )

    async def _probed(self, entry: Entry, cycle: int) -> Probed:
        """Have every member begin with a shard."""
        task, one = entry.task, np.ones(len(entry.crew.members), dtype=np.int64)
        first = Allocation(samples=one, steps=task.steps * one)
        orders = share_out(task, first, cycle)
        parameters = parameters_of(task.model)
        return await entry.crew.probe(orders, parameters, task.deadline_s)


class _Planner:
    def __init__(self, programme: Programme, i: int) -> None:
        self._programme, self._i = programme, i

    async def __call__(
        self, task: Task, crew: Trains, cycle: int, *, only_able: bool
    ) -> Plan:
        return await self._programme.plan(self._i, cycle)


def seconds_of(law: DelayLaw, task: Task) -> tuple[Floats, Floats]:
    """Seconds per shard and fixed seconds of each learner."""
    counted = law.per_shard(task.shard)
    return counted.sample_s + task.steps * counted.step_s, counted.fixed_s
