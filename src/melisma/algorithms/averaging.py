"""The global update cycle, for whatever fleet.

muster → allocate → order → learners download, train, halt, upload
  → aggregate, weighted by samples really trained → evaluate → record
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from melisma.algorithms.control import Steering
from melisma.algorithms.log import Diary, Sink
from melisma.algorithms.loop import Cycles, Keep
from melisma.algorithms.task import Plan, Task
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Fleet, Lost, Order, Probed, Updates
from melisma.learning import splits
from melisma.learning.aggregation import aggregate, clip
from melisma.learning.evaluation import evaluate
from melisma.learning.parameters import Parameters, parameters_of, put
from melisma.maths.arrays import Ints
from melisma.runs.records import Record
from melisma.schemes import DECENTRALISED, find
from melisma.system.problem import Allocation, Problem, learner_s
from melisma.system.streams import Stream

logger = logging.getLogger("melisma.orchestrator")

Number = TypeVar("Number", np.int64, np.float64)


class Planner(Protocol):
    """Decides what everybody does in a cycle."""

    async def __call__(
        self, task: Task, fleet: Fleet, cycle: int, *, only_able: bool
    ) -> Plan:
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
    keep: Keep = lambda cycle, parameters: None,
    patient: bool = False,
    planner: Planner | None = None,
    steering: Steering | None = None,
) -> Parameters:
    """Train ``task`` on ``fleet`` for all its cycles; return the model's parameters.

    ``past`` is what was recorded of cycles that are behind it already, in the model as
    it is. ``keep`` gets each cycle's number and parameters once all that happened in it
    is recorded.

    Real learners come and go, so a live run is ``patient``: it goes on after a cycle
    without an update that counts, waits for learners with whom the deadline can be met,
    and lets those sit out who cannot do the least by then. Otherwise, or when patience
    ends, that is a TrainingError or an InfeasibleError.

    ``planner`` decides who does how much, in place of the task's scheme. With
    ``steering``, whoever watches may pause the run, give it another deadline, or stop
    it: then it ends after fewer cycles.
    """
    parameters = parameters_of(task.model)
    fruitless = 0
    cycles = Cycles(task, fleet, sink, past, keep, steering)
    async for diary in cycles:
        task = diary.task
        begin = _begin(task, fleet, diary, patient, planner or allocate)
        if (plan := await cycles.unless_stopped(begin)) is None:
            break
        cycles.begun(diary)
        orders = share_out(
            task, plan.allocation, diary.cycle, fleet.own_samples, plan.probed
        )
        updates = fleet.train(orders, parameters, task.deadline_s)
        better = await merged(task, diary, parameters, updates)
        fruitless = 0 if better else fruitless + 1
        if better:
            parameters = better
            put(parameters, task.model)
        elif not patient or fruitless == FRUITLESS:
            raise diary.fruitless()
        diary.aggregated(plan)
        diary.evaluated(*evaluate(task.model, task.data.test_x, task.data.test_y))
        cycles.end(diary, parameters)
    return parameters


async def merged(
    task: Task,
    diary: Diary,
    parameters: Parameters,
    arriving: AsyncIterator[Updates | Lost],
) -> Parameters | None:
    """Merge updates as they arrive, and note them; None if none counts."""
    merging = aggregate(task.merging.rule, task.merging.trim)
    async for updates in arriving:
        if isinstance(updates, Lost):
            diary.lost(updates)
            continue
        stack = updates.parameters
        if task.merging.clip:
            stack, _ = clip(stack, parameters, task.merging.clip)
        refused = merging.add(stack, [r.samples for r in updates.reports])
        diary.arrived(updates, refused)
    return merging.result() if diary.counted else None


async def _begin(
    task: Task, fleet: Fleet, diary: Diary, patient: bool, planner: Planner
) -> Plan:
    """See who is there, and plan; wait for others if it cannot be done."""
    until_s, said = fleet.now_s() + (WAIT_S if patient else 0.0), ""
    while True:
        await fleet.ready()
        try:
            plan = await planner(task, fleet, diary.cycle, only_able=patient)
        except InfeasibleError as error:
            if fleet.now_s() >= until_s:
                raise
            if said != (said := str(error)):
                logger.warning("waiting up to %g s: %s", WAIT_S, error)
            await asyncio.sleep(LOOK_S)
        else:
            diary.allocated(plan)
            return plan


async def allocate(
    task: Task, fleet: Fleet, cycle: int = 1, *, only_able: bool = False
) -> Plan:
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
        samples=spread(allocation.samples, able, len(able)),
        steps=spread(allocation.steps, able, len(able)),
    )
    return Plan(whole, spread(learner_s(problem, allocation), able, len(able)))


def spread(
    values: NDArray[Number], places: NDArray[np.bool_] | Ints, size: int
) -> NDArray[Number]:
    """Give the others nothing."""
    whole = np.zeros(size, dtype=values.dtype)
    whole[places] = values
    return whole


def share_out(
    task: Task,
    allocation: Allocation,
    cycle: int,
    own: Sequence[int] | None = None,
    probed: Probed | None = None,
) -> list[Order]:
    """Draw the rows of each learner, unless it draws from its own.

    In parallel mode learners take the next shards of one shuffled round of all of
    them, so that none is sent twice before all were sent once. Where they were
    ``probed``, each has begun with the one that is at its own place in the round.
    """
    shards = allocation.samples
    drawn: Sequence[Ints | None] = [None] * len(shards)
    if own is None:
        rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
        pieces = splits.shards(np.arange(len(task.data.train_y)), task.shard)
        turns = rng.permutation(len(pieces))
        drawn = [
            pieces[turns[places % len(turns)]].ravel()
            for places in _places(shards, begun=probed is not None)
        ]
    waits_s = None if probed is None else probed.waits_s
    return [
        Order(
            learner=k,
            samples=amount,
            steps=int(allocation.steps[k]),
            rows=rows,
            begun=task.shard if probed else 0,
            waits_s=0.0 if waits_s is None else float(waits_s[k]),
        )
        for k, (amount, rows) in enumerate(
            zip((shards * task.shard).tolist(), drawn, strict=True)
        )
    ]


def _places(shards: Ints, *, begun: bool) -> list[Ints]:
    """Where each learner's shards are in the round; its first at its own place.

    >>> [places.tolist() for places in _places(np.array([1, 3, 2]), begun=False)]
    [[0], [1, 2, 3], [4, 5]]
    >>> [places.tolist() for places in _places(np.array([1, 3, 2]), begun=True)]
    [[0], [1, 3, 4], [2, 5]]
    """
    if not begun:
        return np.split(np.arange(shards.sum()), shards.cumsum()[:-1])
    rest = np.maximum(shards - 1, 0)
    others = np.split(len(shards) + np.arange(rest.sum()), rest.cumsum()[:-1])
    return [np.r_[k, some][: shards[k]] for k, some in enumerate(others)]
