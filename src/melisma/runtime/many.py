"""Several tasks at once, each with its own model, cycles and deadline.

Each task runs as it would alone, on the learners that the association gives it: before
each cycle it gathers them, and splits its shards among them. What tasks share, learners
and budget, is the association's.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from melisma.errors import InfeasibleError
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Floats, Ints
from melisma.runtime.association import Association
from melisma.runtime.diary import Sink
from melisma.runtime.fleet import Fleet
from melisma.runtime.orchestrator import run
from melisma.runtime.records import Refused
from melisma.runtime.simulated import SimulatedFleet
from melisma.runtime.task import Plan, Task
from melisma.runtime.turns import Turns
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation

#: What happens at the same time, in this order: tasks end, tasks come, cycles begin,
#: who found no learner looks again.
END, COME, BEGIN, LOOK_AGAIN = range(4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A task, its view of the learners, and when it comes."""

    task: Task
    fleet: SimulatedFleet
    arrives_s: float = 0.0


class Knowledge(Enum):
    """What a cycle's split is made by, once the association stands."""

    BEFOREHAND = "beforehand"  #: what the association was made by (MED, MMTT)
    LATEST = "latest"  #: what is known by now, association included
    TRUTH = "truth"  #: the states that the learners will be in (MMTT-Ideal)
    PROBE = "probe"  #: what a few batches of the first shard took, in the cycle itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How learners are probed."""

    batches: int = 5
    noise: float = 0.1  #: spread (σ of the logarithm) of what is measured
    latency_s: float = 0.1  #: of telling, and of being told the rest


PROBE = Probe()


class Programme:
    """Tasks on one virtual clock."""

    def __init__(
        self,
        entries: Sequence[Entry],
        association: Association,
        knowledge: Knowledge = Knowledge.BEFOREHAND,
        probe: Probe = PROBE,
    ) -> None:
        self._entries, self._association = entries, association
        self._knowledge, self._probe, self._turns = knowledge, probe, Turns()

    async def run(self, sink: Sink) -> dict[str, Parameters | None]:
        """Run all tasks; return their models, None of those that were refused."""
        for entry in self._entries:
            self._turns.enter(entry.task.name, entry.arrives_s)
        models = await asyncio.gather(
            *(self._run(i, entry, sink) for i, entry in enumerate(self._entries))
        )
        names = [entry.task.name for entry in self._entries]
        return dict(zip(names, models, strict=True))

    async def _run(self, i: int, entry: Entry, sink: Sink) -> Parameters | None:
        task, fleet = entry.task, entry.fleet
        fleet.wait_until(entry.arrives_s)
        await self._turns.take(task.name, entry.arrives_s, COME)
        try:
            self._association.admit(i)
        except InfeasibleError as error:
            reason = str(error)
            sink(Refused(time_s=fleet.now_s(), task=task.name, cycle=0, reason=reason))
            self._turns.leave(task.name)
            return None
        fleet.gather = lambda: self._gather(i, entry)
        try:
            return await run(task, fleet, sink, planner=_Planner(self, i))
        finally:
            await self._turns.take(task.name, fleet.now_s(), END)
            self._association.finish(i)
            self._turns.leave(task.name)

    async def _gather(self, i: int, entry: Entry) -> Ints:
        """Wait for one's turn, and for learners that are free then."""
        name, fleet, phase = entry.task.name, entry.fleet, BEGIN
        while True:
            await self._turns.take(name, fleet.now_s(), phase)
            if self._knowledge == Knowledge.LATEST:
                self._association.renew()
            members = self._association.members(i)
            if members.size:
                return members
            phase = LOOK_AGAIN
            fleet.wait_until(self._turns.next_s(phase))

    def plan(self, i: int) -> Plan:
        """What the members of a task do in the cycle that begins."""
        entry = self._entries[i]
        task, fleet, members = entry.task, entry.fleet, entry.fleet.members
        seconds, waits_s = None, None
        if self._knowledge == Knowledge.TRUTH:
            seconds = seconds_of(fleet.true_law().only(members), task)
        elif self._knowledge == Knowledge.LATEST:
            seconds = self._association.seconds(i, members)
        elif self._knowledge == Knowledge.PROBE:
            seconds, waits_s = self._probed(entry)
        shards = self._association.split(i, members, seconds)
        shard_s, fixed_s = seconds or self._association.seconds(i, members)
        return Plan(
            Allocation(samples=shards, steps=(shards > 0) * task.steps),
            predicted_s=np.where(shards > 0, fixed_s + shard_s * shards, 0.0),
            cost=self._association.costs(members, shards),
            waits_s=waits_s,
        )

    def _probed(self, entry: Entry) -> tuple[tuple[Floats, Floats], Floats]:
        """What the members measure on their first shard, and how long each then waits.

        All wait for the last to have trained its few batches, and go on with their
        first shard meanwhile.
        """
        task, fleet = entry.task, entry.fleet
        law = fleet.true_law().only(fleet.members)
        shard_s, fixed_s = seconds_of(law, task)
        begun_s = fixed_s / 2 + law.sample_s * task.shard
        samples = min(self._probe.batches * fleet.batch, task.shard * task.steps)
        batches_s = law.step_s * samples
        told_s = float((begun_s + batches_s).max()) + self._probe.latency_s
        first_s = fixed_s / 2 + shard_s
        noisy = np.exp(self._probe.noise * fleet.rng.standard_normal(len(shard_s)))
        return (shard_s * noisy, fixed_s), np.maximum(0.0, told_s - first_s)


class _Planner:
    def __init__(self, programme: Programme, i: int) -> None:
        self._programme, self._i = programme, i

    async def __call__(self, task: Task, fleet: Fleet, *, only_able: bool) -> Plan:
        return self._programme.plan(self._i)


def seconds_of(law: DelayLaw, task: Task) -> tuple[Floats, Floats]:
    """Seconds per shard and fixed seconds of each learner."""
    counted = law.per_shard(task.shard)
    return counted.sample_s + task.steps * counted.step_s, counted.fixed_s
