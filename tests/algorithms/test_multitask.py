"""Several tasks on one set of learners, on a virtual clock."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tests.fleets.fleets import law, small_data, small_model

from melisma.algorithms.association import Association, Terms
from melisma.algorithms.clock import VirtualClock
from melisma.algorithms.control import Control
from melisma.algorithms.multitask import (
    DelayEstimates,
    Entry,
    TaskScheduler,
    seconds_of,
)
from melisma.algorithms.task import ScheduledTask
from melisma.errors import InfeasibleError
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Training
from melisma.maths.arrays import Floats
from melisma.runs.records import (
    Aggregated,
    Allocated,
    Evaluated,
    Record,
    Refused,
)
from melisma.runs.store import RunWriter, ignore
from melisma.schemes.multitask.exact import exact
from melisma.system.law import DelayLaw
from melisma.system.states import States

LEARNERS = 6


def delays(seed: int) -> DelayLaw:
    """Six learners, each four times as slow in its second state."""
    rng = np.random.default_rng(seed)
    step_s = rng.uniform(0.05, 0.2, LEARNERS)
    return law(
        np.stack([step_s, 4 * step_s], axis=1),
        np.full((LEARNERS, 2), 0.01),
        np.full((LEARNERS, 2), 0.2),
    )


def scheduler(
    *arrives_s: float,
    watch: Callable[[Record], None] = ignore,
    control: Control | None = None,
    cycles: int = 3,
    more: int = 0,
    deadline_s: float = 60.0,
    budget: float = np.inf,
    estimates: DelayEstimates = DelayEstimates.FIXED,
) -> TaskScheduler:
    gamma = np.tile([0.8, 0.2], (LEARNERS, 1))
    crews = [
        SimulatedLearners(
            [f"learner-{k}" for k in range(LEARNERS)],
            delays(i),
            model=small_model(),
            samples=small_data().train,
            training=Training(batch=4),
            seed=i,
            conditions=Conditions(probability=gamma),
        )
        for i in range(len(arrives_s))
    ]
    entries = [
        Entry(
            task=ScheduledTask(
                name=f"task-{i}",
                model=small_model(),
                data=small_data(),
                scheme="med",
                cycles=cycles + more * i,
                deadline_s=deadline_s,
                seed=i,
                shard=2,
                steps=1 + i % 2,
            ),
            crew=crews[i],
            run=RunWriter(watch=watch),
            arrives_s=time_s,
        )
        for i, time_s in enumerate(arrives_s)
    ]
    tasks = [entry.task for entry in entries]
    states = States.of(
        [delays(i) for i in range(len(entries))],
        gamma,
        shard=[task.shard for task in tasks],
        steps=[task.steps for task in tasks],
    )
    terms = Terms(
        names=[task.name for task in tasks],
        shards=np.array([20] * len(tasks)),
        deadline_s=np.array([task.deadline_s for task in tasks]),
        budget=budget,
    )
    price = np.linspace(0.5, 1.5, LEARNERS)

    def truth() -> tuple[Floats, Floats]:
        laws = [crew.true_law() for crew in crews]
        rows = [seconds_of(law, t) for law, t in zip(laws, tasks, strict=True)]
        return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])

    known = truth if estimates == DelayEstimates.CURRENT else states.expected
    return TaskScheduler(
        entries,
        Association(terms, price, known, lambda problem, *_: exact(problem)),
        VirtualClock(),
        estimates,
        control=control,
    )


def ran(scheduler: TaskScheduler) -> tuple[dict[str, Parameters | None], list[Record]]:
    models = asyncio.run(scheduler.run())
    records = [record for entry in scheduler.entries for record in entry.run.records]
    return models, records


def busy(happened: list[Record]) -> dict[str, list[tuple[float, float, str]]]:
    """When each learner was busy, and with which task's cycle."""
    ends = {(r.task, r.cycle): r.time_s for r in happened if isinstance(r, Aggregated)}
    spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for record in happened:
        if isinstance(record, Allocated) and record.samples:
            end_s = ends[record.task, record.cycle]
            spans[record.learner].append((record.time_s, end_s, record.task))
    return {learner: sorted(some) for learner, some in spans.items()}


@pytest.mark.parametrize(
    "arrives_s", [(0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 7.0, 9.0), (5.0, 0.0, 5.0)]
)
@pytest.mark.parametrize("estimates", DelayEstimates)
def test_a_learner_serves_one_task_at_a_time(
    arrives_s: tuple[float, ...], estimates: DelayEstimates
) -> None:
    models, happened = ran(scheduler(*arrives_s, estimates=estimates))
    assert all(model is not None for model in models.values())
    for spans in busy(happened).values():
        for (_, end_s, _), (begin_s, _, _) in pairwise(spans):
            assert end_s <= begin_s + 1e-9


def test_tasks_that_come_together_share_the_learners_from_the_start() -> None:
    _, happened = ran(scheduler(0.0, 0.0))
    first = [r for r in happened if isinstance(r, Allocated) and r.cycle == 1]
    served = [r.learner for r in first]
    assert sorted(served) == sorted(set(served))
    assert {r.time_s for r in first} == {0.0}


def test_all_shards_of_a_task_are_given_out_in_every_cycle() -> None:
    _, happened = ran(scheduler(0.0, 3.0, 11.0))
    given: dict[tuple[str, int], int] = defaultdict(int)
    for record in happened:
        if isinstance(record, Allocated):
            given[record.task, record.cycle] += record.samples
    assert set(given.values()) == {40}
    assert len(given) == 9


def test_who_is_freed_by_a_finished_task_serves_the_others() -> None:
    _, happened = ran(scheduler(0.0, 0.0, more=6))
    ends = {r.task: r.time_s for r in happened if isinstance(r, Aggregated)}
    first, last = "task-0", "task-1"
    after = [
        record.learner
        for record in happened
        if isinstance(record, Allocated)
        and record.task == last
        and record.time_s > ends[first]
        and record.samples
    ]
    assert after
    assert len(set(after)) == LEARNERS


def test_a_task_that_cannot_be_done_beside_the_others_is_refused() -> None:
    # Twenty shards of two samples in a second: not on what two tasks leave.
    crowded = scheduler(0.0, 0.0, 2.0, deadline_s=3.2)
    models, happened = ran(crowded)
    refused = [r for r in happened if isinstance(r, Refused)]
    assert {r.task for r in refused} == {"task-1"}
    assert {r.task for r in refused} == {n for n, model in models.items() if not model}
    assert all("deadline" in r.reason for r in refused)


def test_and_is_not_refused_once_it_has_begun_and_is_resumed() -> None:
    crowded = scheduler(0.0, 0.0, 2.0, deadline_s=3.2)
    name = crowded.entries[1].task.name  # as above, the one that is refused
    crowded.entries[1].run.past.append(
        Evaluated(time_s=1.0, task=name, cycle=1, metrics={"accuracy": 0.1}, loss=2.0)
    )
    models, happened = ran(crowded)
    assert models[name]
    assert name not in {r.task for r in happened if isinstance(r, Refused)}


def test_the_same_seeds_give_the_same_records() -> None:
    one, two = (ran(scheduler(0.0, 4.0, 4.0))[1] for _ in range(2))
    assert one == two


def test_costs_are_recorded_and_within_the_budget() -> None:
    _, happened = ran(scheduler(0.0, 0.0, budget=40.0))
    first = [r for r in happened if isinstance(r, Allocated) and r.cycle == 1]
    assert 0 < sum(r.cost or 0.0 for r in first) <= 40.0 + 1e-9


def test_a_budget_that_nothing_fits_refuses_everybody() -> None:
    models, happened = ran(scheduler(0.0, 0.0, budget=1.0))
    assert set(models.values()) == {None}
    assert all(isinstance(record, Refused) for record in happened)


def test_foresight_makes_predictions_come_true() -> None:
    _, happened = ran(scheduler(0.0, 0.0, estimates=DelayEstimates.CURRENT))
    slowest: dict[tuple[str, int], float] = defaultdict(float)
    for record in happened:
        if isinstance(record, Allocated):
            key = record.task, record.cycle
            slowest[key] = max(slowest[key], record.predicted_s or 0.0)
    for record in happened:
        if isinstance(record, Aggregated):
            assert record.cycle_s == pytest.approx(slowest[record.task, record.cycle])


def test_a_probe_is_nearly_as_good_as_foresight() -> None:
    seconds = {}
    for estimates in (
        DelayEstimates.FIXED,
        DelayEstimates.PROBED,
        DelayEstimates.CURRENT,
    ):
        _, happened = ran(scheduler(0.0, 0.0, cycles=12, estimates=estimates))
        times = [r.cycle_s for r in happened if isinstance(r, Aggregated)]
        seconds[estimates] = float(np.mean(times))
    assert seconds[DelayEstimates.PROBED] < 0.9 * seconds[DelayEstimates.FIXED]
    # With three learners the first shards are three of twenty: all wait for the last.
    assert seconds[DelayEstimates.PROBED] < 1.6 * seconds[DelayEstimates.CURRENT]


def test_who_waits_for_the_others_is_back_later() -> None:
    _, happened = ran(scheduler(0.0, estimates=DelayEstimates.PROBED, cycles=1))
    (merged,) = [r for r in happened if isinstance(r, Aggregated)]
    predicted = [r.predicted_s or 0.0 for r in happened if isinstance(r, Allocated)]
    assert merged.cycle_s > 0.9 * max(predicted)


def test_what_cannot_be_paid_for_is_left_out() -> None:
    terms = Terms(
        names=["a"],
        shards=np.array([10]),
        deadline_s=np.array([100.0]),
        budget=12.0,
    )
    seconds, price = (np.ones((1, 2)), np.zeros((1, 2))), np.array([1.0, 2.0])
    association = Association(terms, price, lambda: seconds, lambda p, *_: exact(p))
    association.admit(0)
    # All ten on the dearer one would cost 20: six are paid for.
    assert association.split(0, np.array([1])).tolist() == [6]


def without_a_way() -> Association:
    """Two learners that take nine times as long as the deadline for one of ten."""
    terms = Terms(
        names=["a"],
        shards=np.array([10]),
        deadline_s=np.array([1.0]),
        budget=np.inf,
    )
    slow = np.full((1, 2), 9.0), np.zeros((1, 2))
    return Association(terms, np.ones(2), lambda: slow, lambda p, *_: exact(p))


def test_an_association_without_a_way_says_so() -> None:
    with pytest.raises(InfeasibleError):
        without_a_way().admit(0)


def test_a_task_that_has_begun_is_admitted_whatever_the_deadline() -> None:
    association = without_a_way()
    association.admit(0, begun=True)
    members = association.members(0)
    assert association.split(0, members).sum() == 10
