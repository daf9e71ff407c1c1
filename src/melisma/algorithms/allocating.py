"""Allocation: who does how much in a cycle, by the task's scheme.

law, with margins → who can → who takes part → the scheme
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from melisma.algorithms.task import Plan, ScheduledTask
from melisma.errors import InfeasibleError
from melisma.fleets.protocols import Spreads, Trains
from melisma.maths.arrays import Bools, Floats, Ints
from melisma.schemes import DECENTRALISED, FIXED, SPENDING, find
from melisma.schemes.choosing import chosen
from melisma.schemes.energy import capacity
from melisma.schemes.fedavg import fedavg
from melisma.system.energy import Spending
from melisma.system.law import DelayLaw
from melisma.system.problem import Allocation, Problem, learner_s
from melisma.system.promise import UNSEEN, Promises

logger = logging.getLogger("melisma.orchestrator")

#: Schemes that leave out who would hold the others back.
PICKY = frozenset({"csa", "csa-options"})
#: Why a learner sits out.
TOO_SLOW = "it cannot do its least by the deadline"
MANY, HINDRANCE = "others are faster", "it would hold the others back"
FEW, NO_TURN = "there are too few samples for all", "it has no turn in this cycle"
NOT_CHOSEN = "it was not chosen for this cycle"
DEARER = "others do the work for less, or nothing is left to spend"

Number = TypeVar("Number", np.int64, np.float64)


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
    among: Bools | None = None,
    promises: Promises | None = None,
    rest_s: Floats | None = None,
    spending: Spending | None = None,
) -> Plan:
    """Shards and steps of each learner by the task's scheme.

    Under a decentralised scheme the learners bid, and keep their speeds to themselves.
    With ``only_able``, learners that cannot do ``task.least`` shards by the deadline,
    or do not have them, get nothing, and all get less if there is less data. Nor do
    those get anything that are not ``on_air`` and ``among`` those chosen, where that is
    given, and all get less if the others cannot train on so much once. With
    ``promises``, the law is multiplied by the learners' margins, and those get nothing
    who cannot promise to be in time.
    ``rest_s`` is how long each learner is at work on an earlier order, where learners
    may be: it begins then, if that leaves it the time. ``spending`` is what a cycle
    spends and may spend, per sample, where the scheme plans by that.
    """
    if task.scheme in DECENTRALISED:
        return await _by_bids(task, crew, rest_s, among)
    if task.scheme in FIXED:
        return await _fixed(task, crew, among)
    turn = on_air if among is None else among if on_air is None else among & on_air
    told, shard = await crew.law(), task.shard
    careful = partial(_careful, crew=crew, promises=promises, rest_s=rest_s)
    menu = task.options.menu(told, lambda law: careful(law).planned.per_shard(shard))
    only_able = (
        only_able or promises is not None or rest_s is not None or among is not None
    )
    # Who can take part, and how many samples fit, is by what each does soonest.
    law = careful(told).planned.per_shard(shard)
    law = law if menu is None else menu.lightest(task.least)
    task, problem, able = _of_those_able(task, crew, law, turn, spending, only_able)
    if turn is not None or promises or rest_s is not None:
        at_most, quiet = task.learners_at_most, promises is not None or on_air is None
        problem = _fitting(task, problem, cycle, at_most, quiet=quiet)
    who = _who(task, problem)
    why = _reasons(task, problem, able, who, on_air)
    if among is not None:
        why = [w if asked else NOT_CHOSEN for w, asked in zip(why, among, strict=True)]
    able[able] = who
    problem = _of_some(task, problem, who)
    if menu is not None:
        problem = problem.with_menu(menu.only(able))
    allocation = _allocated(task, problem, cycle, uncovered=only_able)
    whole = _whole(allocation, able)
    seconds = spread(learner_s(problem, allocation), able, len(able))
    if task.scheme in SPENDING:
        idle = (whole.samples == 0).tolist()
        why = [w or DEARER * is_idle for w, is_idle in zip(why, idle, strict=True)]
    plan = Plan(whole, seconds, why=why, spare_s=_spare_s(task, whole, seconds))
    if promises is None:
        return plan
    told = task.options.law(told, whole.options)
    counted = careful(told).expected.per_shard(shard)
    predicted_s = counted.seconds(whole.samples, whole.steps)
    return replace(plan, predicted_s=predicted_s, planned_s=seconds, law=told)


def _of_those_able(
    task: ScheduledTask,
    crew: Trains,
    law: DelayLaw,
    turn: Bools | None,
    spending: Spending | None,
    only_able: bool,
) -> tuple[ScheduledTask, Problem, Bools]:
    """Return who can take part, and the task and the problem of those alone.

    All do unless ``only_able``. The law is that of shards.
    """
    own = crew.own_samples
    if only_able and own is not None:
        own = _within_reach(own, law, task)
    most = task.most_shards(len(crew.learners), own)
    able = np.ones(len(most), dtype=bool)
    if only_able:
        able = _able(task, law, most, turn)
        if own is not None:
            task = task.for_those_there(_of(own, able))
    problem = Problem.of(
        law.only(able),
        samples=task.cycle_samples(_of(own, able)) // task.shard,
        deadline_s=task.deadline_s,
        least=task.least,
        most=most[able],
        steps=task.steps,
        steps_at_most=task.steps_at_most,
        spending=spending and spending.per_shard(task.shard).only(able),
    )
    return task, problem, able


def _spare_s(task: ScheduledTask, work: Allocation, seconds: Floats) -> float:
    """Return how much sooner all are done, where they may do no more steps; else 0."""
    busy = work.samples > 0
    if not busy.any() or (work.steps[busy] < task.steps_at_most).any():
        return 0.0
    return max(0.0, task.deadline_s - float(seconds.max()))


def _able(task: ScheduledTask, law: DelayLaw, most: Ints, turn: Bools | None) -> Bools:
    """Return who has its least and can do it by the deadline, and has a turn.

    Where nobody can, all who have it, or all: then the scheme's own error says why.
    """
    least = np.full(len(most), task.least)
    has = most >= max(1, task.least)
    has = has if turn is None else has & turn
    able = has & (law.seconds(least, np.ones_like(least)) <= task.deadline_s)
    if able.any():
        return able
    return has if has.any() else ~able


def _whole(allocation: Allocation, able: Bools) -> Allocation:
    """Return the allocation of some as that of all, with nothing for the others."""
    options = allocation.options
    return Allocation(
        samples=spread(allocation.samples, able, len(able)),
        steps=spread(allocation.steps, able, len(able)),
        options=None if options is None else spread(options, able, len(able)),
    )


def _allocated(
    task: ScheduledTask, problem: Problem, cycle: int, *, uncovered: bool
) -> Allocation:
    """Return the scheme's answer; without its least coverage, if none has that.

    So a run goes on whose only learners of the whole model are away. InfeasibleError
    unless it may be ``uncovered``.
    """
    scheme, menu = find(task.scheme), problem.menu
    try:
        return scheme(problem)
    except InfeasibleError as error:
        if not uncovered or menu is None or not np.any(menu.least_coverage):
            raise
        free = replace(menu, least_coverage=0.0)
        allocation = scheme(replace(problem, menu=free))
        logger.warning("cycle %d is planned without coverage: %s", cycle, error)
        return allocation


class _Laws(NamedTuple):
    expected: DelayLaw
    planned: DelayLaw


def _careful(
    told: DelayLaw, *, crew: Trains, promises: Promises | None, rest_s: Floats | None
) -> _Laws:
    """Return a law as it is expected to hold, and as it is planned with."""
    expected = planned = told
    if promises:
        margins = promises.margins(crew.learners, spread_of(crew))
        expected, planned = margins.expect(told), margins.plan(told)
    if rest_s is not None:
        expected, planned = (w.slowed(overhead_s=rest_s) for w in (expected, planned))
    return _Laws(expected, planned)


async def _fixed(task: ScheduledTask, crew: Trains, among: Bools | None) -> Plan:
    """Shards of who takes part: all it has, or the same of what is sent."""
    most = task.most_shards(len(crew.learners), crew.own_samples)
    if among is not None:
        most = most * among
    if not most.any():
        raise InfeasibleError(
            f"none of {len(most)} learners has a shard of {task.shard} samples: use "
            "smaller shards"
        )
    task = task.for_those_there((most * task.shard).tolist())
    samples = task.there(crew.own_samples) if task.samples is None else task.samples
    given = fedavg(most, samples // task.shard) * task.shard
    some, steps = task.fixed(given)
    allocation = Allocation(samples=some // task.shard, steps=steps)
    law = (await crew.law()).per_shard(task.shard)
    seconds = law.seconds(allocation.samples, allocation.steps)
    why = [] if among is None else ["" if asked else NOT_CHOSEN for asked in among]
    return Plan(allocation, np.where(given > 0, seconds, 0.0), why=why)


async def _by_bids(
    task: ScheduledTask, crew: Trains, rest_s: Floats | None, among: Bools | None
) -> Plan:
    """Shards that each learner takes, by what it alone knows."""
    most = task.most_shards(len(crew.learners), crew.own_samples)
    bids = await crew.bids(
        deadline_s=task.deadline_s, steps=task.steps, shard=task.shard
    )
    shards = np.minimum(bids, most)
    if rest_s is not None:
        shards[rest_s > 0] = 0
    if among is not None:
        shards[~among] = 0
    if task.learners_at_most is not None:  # who takes most does most
        shards[np.argsort(-shards, kind="stable")[task.learners_at_most :]] = 0
    if not shards.any():
        raise InfeasibleError(
            f"none of {len(shards)} learners takes a shard of {task.shard} samples "
            f"with {task.steps} steps by the deadline of {task.deadline_s:.6g} s: "
            "extend it, or use smaller shards or fewer steps"
        )
    allocation = Allocation(samples=shards, steps=(shards > 0) * task.steps)
    why = [] if among is None else ["" if asked else NOT_CHOSEN for asked in among]
    return Plan(allocation, predicted_s=None, why=why)


def _who(task: ScheduledTask, problem: Problem) -> Bools:
    """Choose who takes part of those who can.

    Data that lies on learners is lost with them, and schemes but csa take everybody, so
    that these leave out no more than they have to. Where learners train on all that
    they have, the best are those who can do that most often.
    """
    at_most = task.learners_at_most
    if task.scheme in SPENDING:  # which lets those sit out that are not needed
        return np.ones(problem.learners, dtype=bool)
    if at_most is not None and task.federated and task.samples is None:
        steps, high = problem.steps_within(problem.high), problem.high
        # Of those who could do even more than they may, who has most data.
        data = np.where(steps == problem.steps_at_most, high, 0)
        who = np.zeros(problem.learners, dtype=bool)
        who[np.lexsort((-data, -steps))[:at_most]] = True
        return who
    picky = task.scheme in PICKY and not task.federated
    if _is_crowded(problem) or picky or at_most is not None:
        return chosen(problem, at_most)
    return np.ones(problem.learners, dtype=bool)


def _is_crowded(problem: Problem) -> bool:
    return int(problem.low.sum()) > problem.samples


def _of_some(task: ScheduledTask, problem: Problem, who: Bools) -> Problem:
    """Return the problem of those who take part, with the samples that they have."""
    if who.all():
        return problem
    some = problem.of_some(who)
    there = int(some.high.sum())
    return replace(some, samples=min(some.samples, there)) if task.federated else some


def _reasons(
    task: ScheduledTask,
    problem: Problem,
    able: Bools,
    who: Bools,
    on_air: Bools | None,
) -> list[str]:
    """Return why each learner sits out; empty where it does not."""
    left_out = HINDRANCE
    if who.sum() == task.learners_at_most:
        left_out = MANY
    elif _is_crowded(problem):
        left_out = FEW
    takes_part = iter(who.tolist())
    why = [("" if next(takes_part) else left_out) if can else TOO_SLOW for can in able]
    if on_air is None:
        return why
    return [w if turn else NO_TURN for w, turn in zip(why, on_air, strict=True)]


def _fitting(
    task: ScheduledTask,
    problem: Problem,
    cycle: int,
    at_most: int | None,
    *,
    quiet: bool,
) -> Problem:
    """Return the problem with no more samples than so many can train on once."""
    spends = task.scheme in SPENDING
    each = capacity(problem) if spends else problem.samples_within(1)
    fits = int(np.sort(each)[::-1][:at_most].sum())
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
