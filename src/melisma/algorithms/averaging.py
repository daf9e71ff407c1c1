"""Averaging: learners train apart, and the model is the mean of their updates.

ready → allocate → order → learners download, train, halt, upload
  → aggregate, weighted by samples really trained
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from melisma.algorithms.allocating import allocate
from melisma.algorithms.auto import Auto, Work
from melisma.algorithms.log import CycleLog
from melisma.algorithms.loop import POLL_S, WAIT_S, Outcome
from melisma.algorithms.merging import Merger
from melisma.algorithms.participating import Participation
from melisma.algorithms.promised import Observed, restore, stored
from melisma.algorithms.spending import Spender
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError, MelismaError
from melisma.fleets.protocols import Jumps, Order, Probed, Trains
from melisma.learning import splits
from melisma.learning.parameters import Parameters
from melisma.maths.arrays import Bools, Ints
from melisma.system.problem import Allocation
from melisma.system.promise import Promises
from melisma.system.streams import Stream

logger = logging.getLogger("melisma.orchestrator")

#: Cycles after which little is left of what a learner without work has shown.
RELAXED = 30
#: Share of a deadline that learners may be idle before a word is said.
IDLE = 0.1
#: How often a cycle waits for learners that come back, or for batteries.
WAITS = 1000


class Planner(Protocol):
    """Allocates the work of a cycle."""

    async def __call__(
        self,
        task: ScheduledTask,
        crew: Trains,
        cycle: int,
        *,
        only_able: bool,
        among: Bools | None = None,
    ) -> Plan:
        """Plan for the learners present; ``only_able``: too slow ones sit out.

        All do that are not ``among`` those chosen, where some are.
        """


class Averaging:
    """Learners train on their own share; the model is the mean of their updates.

    ``planner`` decides who does how much, in place of the task's scheme. ``promises``,
    by whose margins it plans, learn what the learners' cycles took. ``auto`` chooses
    deadlines. ``merger`` makes one model of the updates. ``participation`` says who
    takes part in a cycle. ``spender`` is asked by the planner what may be spent.
    """

    def __init__(
        self,
        crew: Trains,
        planner: Planner | None = None,
        promises: Promises | None = None,
        auto: Auto | None = None,
        merger: Merger | None = None,
        participation: Participation | None = None,
        spender: Spender | None = None,
    ) -> None:
        self._spender = spender
        self._crew, self._planner = crew, planner or allocate
        self._promises, self._auto = promises, auto
        self._merger, self._participation = merger or Merger(), participation
        self._said: dict[str, str] = {}  # the last warning of each kind

    async def begin(self, log: CycleLog, *, patient: bool) -> Plan:
        """Ask which learners are ready, and plan.

        A ``patient`` run lets learners sit out that cannot do ``least`` shards by the
        deadline, and waits up to `WAIT_S` for others where no plan is feasible. Where
        nobody can promise to be in time, promises are forgotten until somebody can.
        """
        crew, relaxed, waits = self._crew, 0, 0
        if self._spender:
            self._spender.state = log.state
        until_s = crew.now_s() + (WAIT_S if patient else 0.0)
        while True:
            await crew.ready()
            if patient:
                self._say("shortage", shortage(log.task, crew))
            among = None
            if self._participation:
                among = await self._participation.who(log, crew)
            # Deadlines are chosen by plans in which too slow learners sit out.
            only_able = patient or self._auto is not None
            settings: dict[str, Any] = {"only_able": only_able, "among": among}
            try:
                if self._auto and not log.state.by_hand:
                    await self._choose_deadline(self._auto, log, among)
                plan = await self._planner(log.task, crew, log.cycle, **settings)
            except InfeasibleError as error:
                if self._promises and relaxed < RELAXED:
                    relaxed += 1
                    self._promises.skip()
                    continue
                more_s = await self._more_at_s(log, settings)
                if more_s < math.inf and waits < WAITS:
                    if not waits:
                        log.waits(str(error))
                    waits += 1
                    await self._wait(log, more_s, error)
                    continue
                if crew.now_s() >= until_s:
                    raise
                self._say("waiting", f"waiting up to {WAIT_S:g} s: {error}")
                await asyncio.sleep(POLL_S)
            else:
                if self._auto is None and "spare" not in self._said:
                    self._say("spare", told_if_idle(log.task, plan), hint=True)
                log.allocated(plan)
                return plan

    async def _more_at_s(self, log: CycleLog, settings: dict[str, Any]) -> float:
        """Return when more may be planned, as far as is known; inf: never.

        Then a learner is back that was reclaimed, or batteries have filled.
        """
        crew = self._crew
        more_s = crew.returns_s() if isinstance(crew, Jumps) else math.inf
        if self._spender:
            planned = partial(self._planner, log.task, crew, log.cycle, **settings)
            more_s = min(more_s, await self._spender.affordable_s(planned, crew))
        return more_s

    async def _wait(self, log: CycleLog, until_s: float, why: InfeasibleError) -> None:
        """Wait until then; live, no longer than a while, since others may join."""
        wait_s = until_s - self._crew.now_s()
        self._say("waiting", f"cycle {log.cycle} waits {wait_s:.6g} s: {why}")
        if isinstance(self._crew, Jumps):
            self._crew.wait_until(until_s)
        else:
            await asyncio.sleep(min(max(wait_s, POLL_S), WAIT_S))

    async def _choose_deadline(
        self, auto: Auto, log: CycleLog, among: Bools | None
    ) -> None:
        """Have the deadline of this cycle chosen by what can be planned for each."""
        crew = self._crew

        async def planned(deadline_s: float) -> Plan:
            task = replace(log.task, deadline_s=deadline_s)
            return await self._planner(
                task, crew, log.cycle, only_able=True, among=among
            )

        own, shard = crew.own_samples, log.task.shard
        samples = log.task.cycle_samples(own) // shard
        there = None if own is None else np.asarray(own) // shard
        if there is not None and among is not None:
            there = there * among
        batch = log.task.training.batch / shard
        learners = len(crew.learners) if among is None else int(among.sum())
        owned = None if there is None else there.tolist()
        each = (samples * shard if own is None else sum(own)) / len(crew.learners)
        work = Work(samples, owned, batch, learners, shard, each)
        await auto.choose(log, work, planned)

    def _say(self, kind: str, warning: str, *, hint: bool = False) -> None:
        """Log a warning, unless it was the last one of its kind.

        A ``hint`` is about the job: where many runs of it are compared it is left out.
        """
        if warning and warning != self._said.get(kind):
            logger.warning("%s", warning, extra={"hint": hint})
        self._said[kind] = warning

    async def cycle(
        self, log: CycleLog, begun: Plan, parameters: Parameters
    ) -> Outcome:
        """Have the plan's orders trained, and merge the updates."""
        own, task = self._crew.own_samples, log.task
        shared = share_out(task, begun.allocation, log.cycle, own, begun.probed)
        orders = self._merger.corrected(shared, self._crew)
        updates = self._crew.train(orders, parameters, task.deadline_s)
        seen = None
        if self._promises and begun.planned_s is not None:
            seen = Observed(begun, orders, task)
            updates = seen.through(updates)
        model = await self._merger.merge(log, self._crew, parameters, updates)
        if self._promises and seen:
            names = [self._crew.learners[k] for k in seen.learners]
            self._promises.see(names, seen.took())
        excused = log.going_on > 0 or log.reclaimed > 0
        return Outcome(model, begun, idle=excused or not begun.has_work)

    def state(self) -> Parameters:
        """Return what was learnt of the learners' times, and what merging keeps."""
        state = stored(self._promises) if self._promises else {}
        return state | self._merger.state()

    def restore(self, saved: Parameters) -> None:
        """Go on with it."""
        if self._promises:
            restore(self._promises, saved)
        self._merger.restore(saved)

    def fruitless(self, log: CycleLog) -> MelismaError:
        """Return the error to raise when no update counts."""
        return log.fruitless()


def told_if_idle(task: ScheduledTask, plan: Plan) -> str:
    """Return what to do where everyone has done all epochs well before the deadline."""
    T, spare_s = task.deadline_s, plan.spare_s
    if spare_s < IDLE * T:
        return ""
    return (
        f"all {task.steps_at_most} epochs that a learner may do (epochs_at_most) are "
        f"done {T - spare_s:.3g} s into a cycle of {T:.4g} s, which could be "
        f"{spare_s:.3g} s shorter: give more samples, a shorter deadline, or deadline "
        "= 'auto'"
    )


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
    shards, options = allocation.samples, allocation.options
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
            option=0 if options is None else int(options[k]),
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
