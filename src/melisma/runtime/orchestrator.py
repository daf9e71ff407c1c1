"""The global update cycle, for whatever fleet.

muster → allocate → order → learners download, train, halt, upload
  → aggregate, weighted by samples really trained → evaluate → record
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from melisma.errors import InfeasibleError
from melisma.learning import splits
from melisma.learning.aggregation import aggregate, clip
from melisma.learning.evaluation import evaluate
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.maths.arrays import Ints
from melisma.runtime.chance import Stream
from melisma.runtime.diary import Diary, Sink, Standing
from melisma.runtime.fleet import Fleet, Lost, Order
from melisma.runtime.records import Record
from melisma.runtime.task import Plan, Task
from melisma.schemes import DECENTRALISED, find
from melisma.system.problem import Allocation, Problem, learner_s

logger = logging.getLogger("melisma.runtime")

Number = TypeVar("Number", np.int64, np.float64)


class Planner(Protocol):
    """Decides what everybody does in a cycle."""

    async def __call__(self, task: Task, fleet: Fleet, *, only_able: bool) -> Plan:
        """Plan for who is there; ``only_able``: who is too slow sits out."""


#: Cycles in a row without an update that counts after which a patient run ends.
FRUITLESS = 5
#: How long a patient run waits for learners who can meet the deadline, and how often
#: it looks.
WAIT_S, LOOK_S = 30.0, 1.0


async def run(
    task: Task,
    fleet: Fleet,
    sink: Sink,
    *,
    past: Iterable[Record] = (),
    keep: Callable[[int, Parameters], None] = lambda cycle, parameters: None,
    patient: bool = False,
    planner: Planner | None = None,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    ``past`` is what was recorded of cycles that are behind it already, in the model as
    it is. ``keep`` gets each cycle's number and parameters once all that happened in it
    is recorded.

    Real learners come and go, so a live run is ``patient``: it goes on after a cycle
    without an update that counts, waits for learners with whom the deadline can be met,
    and lets those sit out who cannot do the least by then. Otherwise, or when patience
    ends, that is a TrainingError or an InfeasibleError.

    ``planner`` decides who does how much, in place of the task's scheme.
    """
    standing = Standing(past)
    for name, reason in standing.expelled.items():
        fleet.expel(name, reason)
    parameters = parameters_of(task.model)
    fruitless = 0
    for number in range(standing.done + 1, task.cycles + 1):
        diary = Diary(task, fleet, sink, standing, number)
        plan = await _begin(task, fleet, diary, patient, planner or allocate)
        orders = share_out(task, plan.allocation, number, fleet.own_samples)
        if plan.waits_s is not None:
            orders = [
                replace(order, waits_s=float(wait_s))
                for order, wait_s in zip(orders, plan.waits_s, strict=True)
            ]
        merged = aggregate(task.merging.rule, task.merging.trim)
        async for updates in fleet.carry_out(orders, parameters, task.deadline_s):
            if isinstance(updates, Lost):
                diary.lost(updates)
                continue
            stack = updates.parameters
            if task.merging.clip:
                stack, _ = clip(stack, parameters, task.merging.clip)
            refused = merged.add(stack, [r.samples for r in updates.reports])
            diary.arrived(updates, refused)
        fruitless = 0 if diary.counted else fruitless + 1
        if diary.counted:
            parameters = merged.result()
            put(parameters, task.model)
        elif not patient or fruitless == FRUITLESS:
            raise diary.fruitless()
        diary.aggregated(plan)
        diary.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        diary.expel_offenders()
        keep(number, parameters)
    return parameters


async def _begin(
    task: Task, fleet: Fleet, diary: Diary, patient: bool, planner: Planner
) -> Plan:
    """See who is there, and plan; wait for others if it cannot be done."""
    until_s, said = fleet.now_s() + (WAIT_S if patient else 0.0), ""
    while True:
        await fleet.muster()
        try:
            plan = await planner(task, fleet, only_able=patient)
        except InfeasibleError as error:
            if fleet.now_s() >= until_s:
                raise
            if said != (said := str(error)):
                logger.warning("waiting up to %g s: %s", WAIT_S, error)
            await asyncio.sleep(LOOK_S)
        else:
            diary.allocated(plan)
            return plan


async def allocate(task: Task, fleet: Fleet, *, only_able: bool = False) -> Plan:
    """Shards and steps of each learner by the task's scheme.

    Under a decentralised scheme the learners bid, and their times stay their own. With
    ``only_able``, who cannot do the least by the deadline is given nothing.
    """
    own = fleet.own_samples
    most = task.most_shards(len(fleet.learners), own)
    if task.scheme in DECENTRALISED:
        bids = await fleet.bids(
            deadline_s=task.deadline_s, steps=task.steps, shard=task.shard
        )
        shards = np.minimum(bids, most)
        if not shards.any():
            raise InfeasibleError(
                f"none of {len(shards)} learners takes a shard of {task.shard} samples "
                f"with {task.steps} steps by the deadline of {task.deadline_s:.6g} s: "
                "extend it, or use smaller shards or fewer steps"
            )
        allocation = Allocation(samples=shards, steps=(shards > 0) * task.steps)
        return Plan(allocation, predicted_s=None)
    law = (await fleet.law()).per_shard(task.shard)
    able = np.ones(len(most), dtype=bool)
    if only_able:
        least = np.full(len(most), task.least)
        able = law.seconds(least, np.ones_like(least)) <= task.deadline_s
        able |= not able.any()  # then let the scheme say why it cannot be
    problem = Problem.of(
        law.only(able),
        samples=task.cycle_samples(own) // task.shard,
        deadline_s=task.deadline_s,
        least=task.least,
        most=most[able],
    )
    allocation = find(task.scheme)(problem)
    whole = Allocation(
        samples=_spread(allocation.samples, able),
        steps=_spread(allocation.steps, able),
    )
    return Plan(whole, _spread(learner_s(problem, allocation), able))


def _spread(values: NDArray[Number], able: NDArray[np.bool_]) -> NDArray[Number]:
    """Give the others nothing."""
    whole = np.zeros(len(able), dtype=values.dtype)
    whole[able] = values
    return whole


def share_out(
    task: Task, allocation: Allocation, cycle: int, own: Sequence[int] | None = None
) -> list[Order]:
    """Draw the rows of each learner, unless it draws from its own.

    In parallel mode learners take the next shards of one shuffled round of all of
    them, so that none is sent twice before all were sent once.
    """
    amounts = (allocation.samples * task.shard).tolist()
    drawn: Sequence[Ints | None] = [None] * len(amounts)
    if own is None:
        rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
        pieces = splits.shards(np.arange(len(task.data.train_y)), task.shard)
        turns = rng.permutation(len(pieces))
        ends = allocation.samples.cumsum()
        drawn = [
            pieces[turns[np.arange(end - shards, end) % len(turns)]].ravel()
            for shards, end in zip(allocation.samples, ends, strict=True)
        ]
    return [
        Order(learner=k, samples=amount, steps=int(allocation.steps[k]), rows=rows)
        for k, (amount, rows) in enumerate(zip(amounts, drawn, strict=True))
    ]
