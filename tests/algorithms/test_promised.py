"""Runs that limit lateness: planned with care, observed, kept through a checkpoint."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.fleets import fleet_of, law, small_model, task_of
from tests.jobs.small import small

from melisma.algorithms.allocating import allocate
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.log import CycleLog
from melisma.algorithms.promised import Observed
from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Report, Updates
from melisma.fleets.simulated import Conditions
from melisma.jobs.families import family_of
from melisma.jobs.schema import Job, LearnersTable, StateTable, TaskTable, TrainingTable
from melisma.launch.api import simulate
from melisma.learning.parameters import parameters_of
from melisma.learning.settings import Late
from melisma.maths.arrays import Floats
from melisma.runs import records
from melisma.runs.records import Record
from melisma.system.problem import Allocation
from melisma.system.promise import Promises, Took
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond

DEADLINE_S = 2.0
LAW = law([0.01, 0.02, 0.03, 0.05], [0.002] * 4, [0.1, 0.2, 0.1, 0.1])


def cycles(
    number: int,
    promises: Promises | None,
    late: Late = Late.HALT,
    scheme: str = "csa",
    late_at_most: float | None = None,
) -> list[Record]:
    """Return the records of cycles whose times have a spread of 0.3."""
    conditions = Conditions(
        noise=0.3, late=late, timing=True, late_at_most=late_at_most
    )
    crew, found = fleet_of(LAW, conditions), list[Record]()
    algorithm = Averaging(crew, partial(allocate, promises=promises), promises)
    task, state = task_of(scheme, DEADLINE_S, cycles=number, steps=2), RunState()

    async def run() -> None:
        for cycle in range(1, number + 1):
            log = CycleLog(task, crew, found.append, state, cycle)
            begun = await algorithm.begin(log, patient=False)
            await algorithm.cycle(log, begun, parameters_of(task.model))

    asyncio.run(run())
    return found


def lateness(found: list[Record]) -> float:
    work = [r for r in found if isinstance(r, records.Allocated) and r.samples]
    late = [
        r
        for r in found
        if isinstance(r, records.Halted)
        or (isinstance(r, records.Uploaded | records.Dropped) and r.late)
    ]
    return len({(r.task, r.cycle, r.learner) for r in late}) / len(work)


@pytest.mark.slow
@pytest.mark.parametrize("late", [Late.HALT, Late.DROP, Late.WAIT, Late.OVERRUN])
def test_lateness_is_limited_whatever_happens_to_who_is_late(late: Late) -> None:
    plain = lateness(cycles(40, None, late))
    kept = lateness(cycles(250, Promises(0.05), late))
    assert plain > 0.3
    assert 0.02 <= kept <= 0.075


def test_learners_that_bid_for_themselves_keep_the_promise_too() -> None:
    assert lateness(cycles(40, None, scheme="dab")) > 0.3
    kept = lateness(cycles(250, None, scheme="dab", late_at_most=0.05))
    assert 0.02 <= kept <= 0.07


def test_plans_end_by_the_deadline_and_are_expected_to_end_sooner() -> None:
    found = cycles(30, Promises(0.05))
    orders = [r for r in found if isinstance(r, records.Allocated) and r.samples]
    assert len(orders) > 60
    for order in orders:
        assert order.planned_s is not None
        assert order.predicted_s is not None
        assert order.predicted_s < order.planned_s <= DEADLINE_S


def test_without_a_promise_nothing_is_planned_with_care() -> None:
    orders = [r for r in cycles(3, None) if isinstance(r, records.Allocated)]
    assert all(order.planned_s is None for order in orders)


def test_where_nobody_can_promise_promises_are_forgotten_until_one_can() -> None:
    promises = Promises(0.05)
    names = [f"learner-{k}" for k in range(4)]
    for _ in range(12):
        promises.margins(names)
        slow = Took(
            ratio=np.full((2, 4), 60.0),
            late=np.ones(4, dtype=bool),
        )
        promises.see(names, slow)
    with pytest.raises(InfeasibleError):
        asyncio.run(
            allocate(task_of("csa", DEADLINE_S), fleet_of(LAW), promises=promises)
        )
    found = cycles(5, promises)
    arrived = {r.cycle for r in found if isinstance(r, records.Uploaded)}
    assert arrived == set(range(1, 6))


def observed(
    updates: Updates | Lost, order: Order, known_s: Floats | None = None
) -> Observed:
    nobody = Allocation(samples=np.zeros(4, dtype=int), steps=np.zeros(4, dtype=int))
    plan = Plan(nobody, None, law=LAW if known_s is None else None, known_s=known_s)
    seen = Observed(plan, [order], task_of("csa", DEADLINE_S))

    async def come() -> None:
        async def arriving() -> AsyncIterator[Updates | Lost]:
            yield updates

        async for _ in seen.through(arriving()):
            pass

    asyncio.run(come())
    return seen


def report(**facts: object) -> Report:
    given: dict[str, object] = {
        "learner": 1,
        "downloaded_s": 0.3,
        "trained_s": 1.3,
        "uploaded_s": 1.4,
        "samples": 10,
        "batches": 2,
        "loss": 0.0,
        "halted": False,
    }
    return Report(**(given | facts))  # type: ignore[arg-type]


ORDER = Order(learner=1, samples=10, steps=2)


def test_ratios_are_of_what_was_done() -> None:
    # Batches of 32 (the default): two of them are 20 samples, twice 10. Compute:
    # 1 s over 20 · 0.02 s = 2.5. Link: 0.4 s over 10 · 0.002 + 0.2 = 0.22 s.
    took = observed(Updates([report()], {}), ORDER).took()
    assert took.ratio[:, 0] == pytest.approx([2.5, 0.4 / 0.22])
    assert not took.late[0]


def test_what_was_done_of_few_samples_is_in_batches_of_so_many() -> None:
    # 36 of 4,530 batches of 9 samples: 1 s over 36·9 · 0.02 s.
    order = Order(learner=1, samples=9, steps=4530)
    few = report(samples=9, batches=36, halted=True)
    took = observed(Updates([few], {}), order).took()
    assert took.ratio[0, 0] == pytest.approx(1 / (36 * 9 * 0.02))


def test_where_no_law_is_known_the_whole_is_compared_as_if_it_was_done() -> None:
    # Halted after one of two passes: 1 s of training becomes 2; 2.4 s over 1.2 s.
    half = report(batches=1, halted=True)
    order = Order(learner=1, samples=32, steps=2)
    took = observed(Updates([half], {}), order, np.array([1.0, 1.2, 1.0, 1.0])).took()
    assert took.ratio[:, 0] == pytest.approx([2.0, 2.0])
    assert took.late[0]


@pytest.mark.parametrize(
    ("facts", "late"),
    [
        ({"halted": True}, True),
        ({"uploaded_s": 2.1}, True),
        ({"uploaded_s": 2.0}, False),
    ],
)
def test_halted_or_after_the_deadline_is_late(
    facts: dict[str, object], late: bool
) -> None:
    assert observed(Updates([report(**facts)], {}), ORDER).took().late[0] == late


def test_what_is_lost_for_want_of_time_is_late_and_for_other_reasons_not_seen() -> None:
    gone = Lost(learner=1, reason=NOT_THERE, after_s=2.0)
    took = observed(gone, ORDER).took()
    assert took.late[0]
    assert np.isnan(took.ratio).all()
    wrong = Lost(learner=1, reason="false", after_s=1.0, offence=True)
    assert observed(wrong, ORDER).learners == []


def test_margins_go_into_a_checkpoint_and_come_back() -> None:
    first, second = Promises(0.05), Promises(0.05)
    cycles(10, first)
    crew, parameters = fleet_of(LAW), parameters_of(small_model())
    saved = parameters | Averaging(crew, promises=first).state()
    Averaging(crew, promises=second).restore(saved)
    names = [f"learner-{k}" for k in range(4)]
    before, after = (p.margins(names).planned for p in (first, second))
    assert np.array_equal(before, after)
    assert not np.allclose(after, Promises(0.05).margins(names).planned)


def three_tasks(scheme: str, late_at_most: float | None) -> Job:
    states = (
        StateTable(
            probability=0.8, rate=SamplesPerSecond(2000), bandwidth=BytesPerSecond(5e6)
        ),
        StateTable(
            probability=0.2, rate=SamplesPerSecond(900), bandwidth=BytesPerSecond(4e6)
        ),
    )
    return Job(
        scheme=scheme,
        cycles=60,
        deadline=Deadline(0.22),
        samples=400,
        shard=20,
        steps=1,
        noise=0.2,
        late_at_most=late_at_most,
        training=TrainingTable(batch=400),  # the law of times knows no batches
        tasks=(TaskTable(name="one"), TaskTable(name="two")),
        learners=(LearnersTable(name="phone", count=6, states=states),),
    )


@pytest.mark.slow
def test_several_tasks_keep_a_promise() -> None:
    found, plain = list[Record](), list[Record]()
    simulate(three_tasks("med", 0.1), runs=None, watch=found.append)
    simulate(three_tasks("med", None), runs=None, watch=plain.append)
    assert lateness(plain) > 0.13
    assert lateness(found) <= 0.11
    orders = [r for r in found if isinstance(r, records.Allocated) and r.samples]
    assert {r.task for r in orders} == {"one", "two"}
    for order in orders:
        assert order.planned_s is not None
        assert order.predicted_s is not None
        if order.cycle == 1:  # later there is time to spare, and less care
            assert order.predicted_s < order.planned_s


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        small(cycles=6, noise=0.3, late_at_most=0.1),
        small(cycles=6, scheme="dab", noise=0.3, late_at_most=0.1),
        msgspec.structs.replace(three_tasks("med", 0.1), cycles=6),
    ],
    ids=["csa", "dab", "med"],
)
def test_a_run_that_was_stopped_goes_on_with_the_margins_it_had(
    job: Job, tmp_path: Path
) -> None:
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job(scheme="coded", late_at_most=0.05), "leave it out"),
        (three_tasks("rmed", 0.05), "use med, mmtt, mmtt-ideal, med-learned"),
        (three_tasks("med-probe", 0.05), "use med, mmtt"),
    ],
)
def test_schemes_that_do_not_plan_by_margins_refuse_it(job: Job, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        family_of(job).checked(job)
