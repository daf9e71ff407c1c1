"""Allocation where learners go on after the deadline (``late = "carry"``).

Who is at work on an earlier order begins with the next when that is done, so its order
is planned for the time that is left. Who could not do its least by the deadline, and
sits out otherwise, is given what it can do once in as few cycles as that takes, up to
``staleness_at_most``: its update counts when it comes.
"""

from dataclasses import dataclass, replace

import numpy as np

from melisma.algorithms.allocating import TOO_SLOW, allocate
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Carries, Trains
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.schemes import DECENTRALISED
from melisma.system.problem import Allocation
from melisma.system.promise import Promises

#: Why a learner sits out.
AT_WORK = "it is at work on an earlier order"


@dataclass(frozen=True, slots=True)
class Carrying:
    """Plans the cycles of a crew whose learners go on after the deadline."""

    promises: Promises | None = None

    async def __call__(
        self,
        task: ScheduledTask,
        crew: Trains,
        cycle: int,
        *,
        only_able: bool,
        among: Bools | None = None,
    ) -> Plan:
        """Allocate by the time that each learner has, and to slow ones besides.

        Raises InfeasibleError where nobody is at work and nobody can do anything.
        """
        assert isinstance(crew, Carries)
        rest_s, shards = crew.rest_s(), np.zeros(len(crew.learners), dtype=np.int64)
        if self.promises is None and task.scheme not in DECENTRALISED:
            shards = await _slowly(task, crew, rest_s, crew.staleness_at_most)
            shards = shards if among is None else shards * among
        try:
            plan = await allocate(
                task, crew, cycle, promises=self.promises, rest_s=rest_s, among=among
            )
        except InfeasibleError:
            if not rest_s.any() and not shards.any():
                raise
            nothing = Allocation(samples=shards * 0, steps=shards * 0)
            plan = Plan(nothing, rest_s * 0, why=[TOO_SLOW] * len(shards))
        return await _with(plan, shards, rest_s, task, crew)


async def _slowly(
    task: ScheduledTask, crew: Trains, rest_s: Floats, at_most: int
) -> Ints:
    """Shards of who is free, and cannot do its least by the deadline but by a later."""
    law = (await crew.law()).per_shard(task.shard)
    most = task.most_shards(len(crew.learners), crew.own_samples)
    least = np.full(len(most), max(1, task.least))
    cycles = np.ceil(law.seconds(least, np.ones_like(least)) / task.deadline_s)
    slow: Bools = (cycles > 1) & (cycles <= at_most) & (most >= least) & (rest_s == 0)
    work_s = cycles * task.deadline_s - law.fixed_s
    fits = np.floor(work_s / (law.sample_s + law.step_s) * (1 + 1e-9)).astype(np.int64)
    return np.where(slow, np.clip(fits, least, most), 0)


async def _with(
    plan: Plan, shards: Ints, rest_s: Floats, task: ScheduledTask, crew: Trains
) -> Plan:
    """Return a plan with orders for slow learners, and who sits out since it works."""
    sits_out = plan.allocation.samples == 0
    why = [
        AT_WORK if w in ("", TOO_SLOW) and out and rest else w
        for w, out, rest in zip(
            plan.why or [""] * len(sits_out), sits_out, rest_s.tolist(), strict=True
        )
    ]
    if not shards.any():
        return replace(plan, why=why)
    slow = (shards > 0) & (plan.allocation.samples == 0)
    law = (await crew.law()).per_shard(task.shard)
    assert plan.predicted_s is not None
    return replace(
        plan,
        allocation=Allocation(
            samples=np.where(slow, shards, plan.allocation.samples),
            steps=np.where(slow, 1, plan.allocation.steps),
        ),
        predicted_s=np.where(
            slow, law.seconds(shards, np.ones_like(shards)), plan.predicted_s
        ),
        why=["" if s else w for w, s in zip(why, slow.tolist(), strict=True)],
    )
