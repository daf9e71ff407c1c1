"""Averaging: learners train apart, and the model is the mean of their updates.

ready → allocate → order → learners download, train, halt, upload
  → aggregate, weighted by samples really trained
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from melisma.algorithms.log import CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.promised import Observed, restore, stored
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError, MelismaError
from melisma.fleets.protocols import Lost, Order, Probed, Spreads, Trains, Updates
from melisma.learning import splits
from melisma.learning.aggregation import aggregate, clip
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.schemes import DECENTRALISED, find
from melisma.schemes.choosing import chosen
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation, Problem, learner_s
from melisma.system.promise import UNSEEN, Promises
from melisma.system.streams import Stream

logger = logging.getLogger("melisma.orchestrator")

#: Why a learner sits out.
TOO_SLOW = "it cannot do its least by the deadline"
MANY, HINDRANCE = "others are faster", "it would hold the others back"
NO_TURN = "it has no turn in this cycle"
#: Cycles after which little is left of what a learner without work has shown.
RELAXED = 30

Number = TypeVar("Number", np.int64, np.float64)


class Planner(Protocol):
    """Allocates the work of a cycle."""

    async def __call__(
        self, task: ScheduledTask, crew: Trains, cycle: int, *, only_able: bool
    ) -> Plan:
        """Plan for the learners present; ``only_able``: too slow ones sit out."""


class Averaging:
    """Learners train on their own share; the model is the mean of their updates.

    ``planner`` decides who does how much, in place of the task's scheme. ``promises``,
    by whose margins it plans, learn what the learners' cycles took.
    """

    def __init__(
        self,
        crew: Trains,
        planner: Planner | None = None,
        promises: Promises | None = None,
    ) -> None:
        self._crew, self._planner = crew, planner or allocate
        self._promises = promises
        self._said: dict[str, str] = {}  # the last warning of each kind

    async def begin(self, log: CycleLog, *, patient: bool) -> Plan:
        """Ask which learners are ready, and plan.

        A ``patient`` run lets learners sit out that cannot do ``least`` shards by the
        deadline, and waits up to `WAIT_S` for others where no plan is feasible. Where
        nobody can promise to be in time, promises are forgotten until somebody can.
        """
        crew, relaxed = self._crew, 0
        until_s = crew.now_s() + (WAIT_S if patient else 0.0)
        while True:
            await crew.ready()
            if patient:
                self._say("shortage", shortage(log.task, crew))
            try:
                plan = await self._planner(log.task, crew, log.cycle, only_able=patient)
            except InfeasibleError as error:
                if self._promises and relaxed < RELAXED:
                    relaxed += 1
                    self._promises.skip()
                    continue
                if crew.now_s() >= until_s:
                    raise
                self._say("waiting", f"waiting up to {WAIT_S:g} s: {error}")
                await asyncio.sleep(POLL_S)
            else:
                log.allocated(plan)
                return plan

    def _say(self, kind: str, warning: str) -> None:
        """Log a warning, unless it was the last one of its kind."""
        if warning and warning != self._said.get(kind):
            logger.warning("%s", warning)
        self._said[kind] = warning

    async def cycle(
        self, log: CycleLog, begun: Plan, parameters: Parameters
    ) -> Outcome:
        """Have the plan's orders trained, and merge the updates."""
        own, task = self._crew.own_samples, log.task
        orders = share_out(task, begun.allocation, log.cycle, own, begun.probed)
        updates = self._crew.train(orders, parameters, task.deadline_s)
        if self._promises and begun.law:
            seen = Observed(begun.law, orders, task)
            updates = seen.through(updates)
        outcome = Outcome(await merged(log, parameters, updates), begun)
        if self._promises and begun.law:
            names = [self._crew.learners[k] for k in seen.learners]
            self._promises.see(names, seen.took())
        return outcome

    def state(self) -> Parameters:
        """Return what was learnt of the learners' times."""
        return stored(self._promises) if self._promises else {}

    def restore(self, saved: Parameters) -> None:
        """Go on with it."""
        if self._promises:
            restore(self._promises, saved)

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no update counts."""
        return log.fruitless()


def shortage(task: ScheduledTask, crew: Trains) -> str:
    """Return what a federated run lacks of the samples that its job asks for, if any.

    It goes on with less: learners come and go, and their data with them.
    """
    own = crew.own_samples
    if own is None:
        return ""
    rows = task.there(own)
    without = [
        name for name, n in zip(crew.learners, own, strict=True) if n < task.shard
    ]
    parts = []
    if task.samples is not None and rows < task.samples:
        parts.append(f"{task.samples} samples a cycle were asked for, {rows} are there")
    if without:
        parts.append(f"less than a shard of {task.shard} has {', '.join(without)}")
    return "; ".join(parts)


async def merged(
    log: CycleLog, parameters: Parameters, arriving: AsyncIterator[Updates | Lost]
) -> Parameters | None:
    """Merge updates as they arrive, and record them; None if none counts."""
    merging = log.task.merging
    merge = aggregate(merging.rule, merging.trim, merging.most_share)
    async for updates in arriving:
        if isinstance(updates, Lost):
            log.lost(updates)
            continue
        stack = updates.parameters
        if merging.clip:
            stack, _ = clip(stack, parameters, merging.clip)
        refused = merge.add(stack, [report.samples for report in updates.reports])
        log.arrived(updates, refused)
    return merge.result() if log.counted else None


def spread_of(crew: Trains) -> Floats | float:
    """Return the spread of the learners' benchmarks, where it is known."""
    return crew.spread() if isinstance(crew, Spreads) else UNSEEN


async def allocate(
    task: ScheduledTask,
    crew: Trains,
    cycle: int = 1,
    *,
    only_able: bool = False,
    on_air: Bools | None = None,
    promises: Promises | None = None,
) -> Plan:
    """Shards and steps of each learner by the task's scheme.

    Under a decentralised scheme the learners bid, and keep their speeds to themselves.
    With ``only_able``, learners that cannot do ``task.least`` shards by the deadline,
    or do not have them, get nothing, and all get less if there is less data. Nor do
    those get anything that are not ``on_air``, where that is given, and all get less if
    the others cannot train on so much once. With ``promises``, the law is multiplied by
    the learners' margins, and those get nothing who cannot promise to be in time.
    """
    own = crew.own_samples
    if task.scheme in DECENTRALISED:
        most = task.most_shards(len(crew.learners), own)
        bids = await crew.bids(
            deadline_s=task.deadline_s, steps=task.steps, shard=task.shard
        )
        shards = np.minimum(bids, most)
        if task.learners_at_most is not None:  # who takes most does most
            shards[np.argsort(-shards, kind="stable")[task.learners_at_most :]] = 0
        if not shards.any():
            raise InfeasibleError(
                f"none of {len(shards)} learners takes a shard of {task.shard} samples "
                f"with {task.steps} steps by the deadline of {task.deadline_s:.6g} s: "
                "extend it, or use smaller shards or fewer steps"
            )
        allocation = Allocation(samples=shards, steps=(shards > 0) * task.steps)
        return Plan(allocation, predicted_s=None)
    told = expected = planned = await crew.law()
    if promises:
        margins = promises.margins(crew.learners, spread_of(crew))
        expected, planned = margins.expect(told), margins.plan(told)
        only_able = True
    law = planned.per_shard(task.shard)
    if only_able and own is not None:
        own = _within_reach(own, law, task)
    most = task.most_shards(len(crew.learners), own)
    able = np.ones(len(most), dtype=bool)
    if only_able:
        least = np.full(len(most), task.least)
        has = most >= max(1, task.least)
        has = has if on_air is None else has & on_air
        able = has & (law.seconds(least, np.ones_like(least)) <= task.deadline_s)
        if not able.any():  # then the scheme's own error says why
            able = has if has.any() else ~able
        if own is not None:
            task = task.for_those_there(_of(own, able))
    problem = Problem.of(
        law.only(able),
        samples=task.cycle_samples(_of(own, able)) // task.shard,
        deadline_s=task.deadline_s,
        least=task.least,
        most=most[able],
    )
    if on_air is not None or promises:
        problem = _fitting(problem, cycle, quiet=promises is not None)
    who = _who(task, problem)
    why = _reasons(task, able, who)
    if on_air is not None:
        why = [
            reason if turn else NO_TURN
            for reason, turn in zip(why, on_air, strict=True)
        ]
    if not who.all():
        able[able] = who
        problem = problem.of_some(who)
    allocation = find(task.scheme)(problem)
    whole = Allocation(
        samples=spread(allocation.samples, able, len(able)),
        steps=spread(allocation.steps, able, len(able)),
    )
    seconds = spread(learner_s(problem, allocation), able, len(able))
    if promises is None:
        return Plan(whole, seconds, why=why)
    counted = expected.per_shard(task.shard)
    predicted_s = counted.seconds(whole.samples, whole.steps)
    return Plan(whole, predicted_s, planned_s=seconds, law=told, why=why)


def _who(task: ScheduledTask, problem: Problem) -> Bools:
    """Choose who takes part of those who can.

    Data that lies on learners is lost with them, and schemes but CSA take everybody, so
    that these leave out no more than they have to.
    """
    crowded = int(problem.low.sum()) > problem.samples
    picky = task.scheme == "csa" and not task.federated
    if crowded or picky or task.learners_at_most is not None:
        return chosen(problem, task.learners_at_most)
    return np.ones(problem.learners, dtype=bool)


def _reasons(task: ScheduledTask, able: Bools, who: Bools) -> list[str]:
    """Return why each learner sits out; empty where it does not."""
    full = who.sum() == task.learners_at_most
    chosen = iter(who.tolist())
    left_out = MANY if full else HINDRANCE
    return [("" if next(chosen) else left_out) if can else TOO_SLOW for can in able]


def _fitting(problem: Problem, cycle: int, *, quiet: bool) -> Problem:
    """Return the problem with no more samples than can be trained on once."""
    fits = int(problem.samples_within(1).sum())
    if not 0 < fits < problem.samples:
        return problem
    logger.log(
        logging.INFO if quiet else logging.WARNING,
        "cycle %d: %d of %d shards can be trained on by the deadline of %.6g s",
        cycle,
        fits,
        problem.samples,
        problem.deadline_s,
    )
    return replace(problem, samples=fits)


def _of(own: Sequence[int] | None, able: NDArray[np.bool_]) -> Sequence[int] | None:
    """Return the samples of those learners that are able."""
    return None if own is None else np.asarray(own)[able].tolist()


def _within_reach(own: Sequence[int], law: DelayLaw, task: ScheduledTask) -> list[int]:
    """Samples of each learner, no more than it says it can do once by the deadline.

    A learner that claims more would make every plan infeasible.
    """
    left_s = np.maximum(0.0, task.deadline_s - law.fixed_s)
    shards = np.floor(left_s / (law.step_s + law.sample_s))
    fits = np.maximum(task.least, shards) * task.shard
    return [int(n) for n in np.minimum(own, fits)]


def spread(
    values: NDArray[Number], places: NDArray[np.bool_] | Ints, size: int
) -> NDArray[Number]:
    """Return ``size`` values: those given at their places, 0 elsewhere."""
    whole = np.zeros(size, dtype=values.dtype)
    whole[places] = values
    return whole


def share_out(
    task: ScheduledTask,
    allocation: Allocation,
    cycle: int,
    own: Sequence[int] | None = None,
    probed: Probed | None = None,
) -> list[Order]:
    """Return each learner's order; in parallel mode, with the rows drawn for it.

    All shards are shuffled anew each cycle and dealt in that order, so that none is
    used twice before all were used once. A learner that was ``probed`` has begun with
    the shard at its own place in that order.
    """
    shards = allocation.samples
    drawn: Sequence[Ints | None] = [None] * len(shards)
    if own is None:
        rng = np.random.default_rng([task.seed, Stream.ROWS, cycle])
        turns = rng.permutation(len(task.data.train) // task.shard)
        drawn = [
            splits.rows_of(turns[places % len(turns)], task.shard)
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
    """Places of each learner's shards in the shuffled order.

    Where learners have ``begun``, the first shard of each is at its own place.

    >>> [places.tolist() for places in _places(np.array([1, 3, 2]), begun=False)]
    [[0], [1, 2, 3], [4, 5]]
    >>> [places.tolist() for places in _places(np.array([1, 3, 2]), begun=True)]
    [[0], [1, 3, 4], [2, 5]]
    """
    if not begun:
        return np.split(np.arange(shards.sum()), shards.cumsum()[:-1])
    rest = np.maximum(shards - 1, 0)
    others = np.split(len(shards) + np.arange(rest.sum()), rest.cumsum()[:-1])
    return [np.r_[k, places][: shards[k]] for k, places in enumerate(others)]
