"""Late work that is carried: it goes on, and counts when it comes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.fleets import law, small_data, small_model, task_of
from tests.fleets.learners import changed

from melisma.algorithms import standins
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.carrying import AT_WORK, Carrying
from melisma.algorithms.log import CycleLog
from melisma.algorithms.merging import Merger
from melisma.algorithms.standins import StandIns
from melisma.algorithms.state import RunState
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets import underway
from melisma.fleets.carrying import CarryingLearners
from melisma.fleets.protocols import Lost, Order, Report, Updates
from melisma.fleets.simulated import Conditions, SimulatedLearners
from melisma.fleets.underway import TOO_OLD, UnderWay
from melisma.fleets.ways import Ways
from melisma.jobs.families import family_of
from melisma.jobs.schema import DataTable, Job, LearnersTable, Split, TaskTable
from melisma.launch.api import simulate
from melisma.learning.aggregation import of_age
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.settings import Late, Merging, Training
from melisma.learning.way import Way
from melisma.learning.wire import Wire
from melisma.maths.arrays import Floats, Ints
from melisma.runs import records
from melisma.runs.records import Record
from melisma.system.law import DelayLaw, Mode
from melisma.units import BytesPerSecond, SamplesPerSecond

#: Learner 1 takes five times as long as learner 0.
LAW = law([0.1, 0.5], [0.0, 0.0], [0.5, 0.5])
OWN = [np.arange(0, 20), np.arange(20, 40)]


def crew_of(
    kind: type[SimulatedLearners] = CarryingLearners,
    delays: DelayLaw = LAW,
    *,
    late: Late = Late.CARRY,
    own_rows: Sequence[Ints] | None = OWN,
    staleness_at_most: int = 5,
    wire: Wire | None = None,
) -> SimulatedLearners:
    return kind(
        ["a", "b"],
        delays,
        model=small_model(),
        samples=small_data().train,
        training=Training(batch=4, rate=0.1),
        seed=0,
        conditions=Conditions(late=late, staleness_at_most=staleness_at_most),
        own_rows=own_rows,
        ways=Ways(each=[Way(wire or Wire())]),
    )


def orders(*samples: int, rows: bool = False) -> list[Order]:
    return [
        Order(
            learner=k,
            samples=n,
            steps=1,
            rows=np.arange(n) if rows else None,
        )
        for k, n in enumerate(samples)
    ]


def cycle(
    crew: SimulatedLearners, work: Sequence[Order], model: Parameters, deadline_s: float
) -> list[Updates | Lost]:
    async def gathered() -> list[Updates | Lost]:
        return [item async for item in crew.train(work, model, deadline_s)]

    return asyncio.run(gathered())


def reports(came: Sequence[Updates | Lost]) -> list[Report]:
    return [r for item in came if isinstance(item, Updates) for r in item.reports]


@pytest.mark.parametrize("wire", [None, Wire.of("int8", "int8")])
def test_an_update_comes_later_as_what_it_changes(wire: Wire | None) -> None:
    first = parameters_of(small_model())
    second = {name: tensor + 1.0 for name, tensor in first.items()}
    # Four samples, one batch: 2.5 s for b. What it sends is the same as if the cycle
    # had waited for it.
    patient = crew_of(SimulatedLearners, late=Late.WAIT, wire=wire)
    (waited,) = [
        item.parameters
        for item in cycle(patient, orders(10, 4), first, 2.0)
        if isinstance(item, Updates)
    ]
    crew = crew_of(wire=wire)
    came = cycle(crew, orders(10, 4), first, 2.0)
    assert [r.learner for r in reports(came)] == [0]
    assert [(i.learner, i.goes_on) for i in came if isinstance(i, Lost)] == [(1, True)]
    assert crew.now_s() == 2.0
    came = cycle(crew, orders(10), second, 2.0)
    carried, fresh = reports(came)
    assert (carried.learner, carried.age, carried.samples) == (1, 1, 4)
    assert carried.uploaded_s == pytest.approx(0.5)
    assert (fresh.learner, fresh.age) == (0, 0)
    (item, _) = [item for item in came if isinstance(item, Updates)]
    for name, (values,) in item.parameters.items():
        change = waited[name][1] - first[name]
        assert change.any()
        assert torch.allclose(values, second[name] + change, atol=1e-6)


def test_an_order_begins_when_the_earlier_one_is_done() -> None:
    crew, model = crew_of(), parameters_of(small_model())
    cycle(crew, orders(10, 4), model, 2.0)  # b needs 2.5 s
    came = cycle(crew, orders(10, 2), model, 2.0)  # 0.5 s, then 1.5 s
    times = {(r.learner, r.age): (r.waited_s, r.uploaded_s) for r in reports(came)}
    assert set(times) == {(0, 0), (1, 0), (1, 1)}
    assert times[1, 1] == pytest.approx((0.0, 0.5))
    assert times[1, 0] == pytest.approx((0.5, 2.0))


def test_an_order_goes_on_as_fast_as_its_learner_is_by_then() -> None:
    crew, model = crew_of(), parameters_of(small_model())

    def slower(cycle: int) -> Floats:
        return np.full((2, 2), 4.0 if cycle == 1 else 1.0)

    crew._conditions = replace(crew._conditions, slower=slower)
    # Four times as slow b downloads for 1 s, and trains for 1.2 of 8 s.
    (lost,) = cycle(crew, orders(0, 4), model, 2.2)
    assert isinstance(lost, Lost)
    # Then 0.85 of 2 s are left, and 0.25 s of upload.
    (report,) = reports(cycle(crew, orders(0, 0), model, 2.2))
    assert report.uploaded_s == pytest.approx(0.85 * 2 + 0.25)


def test_an_order_that_could_not_begin_is_taken_back() -> None:
    crew, model = crew_of(), parameters_of(small_model())
    cycle(crew, orders(4, 4), model, 1.0)  # b needs 2.5 s
    (lost,) = [i for i in cycle(crew, orders(4, 1), model, 1.0) if isinstance(i, Lost)]
    assert (lost.learner, lost.reason, lost.goes_on) == (1, underway.NOT_BEGUN, False)


def test_what_is_too_old_is_not_waited_for() -> None:
    crew, model = crew_of(staleness_at_most=2), parameters_of(small_model())
    found = [cycle(crew, orders(1, 4), model, 0.6)]  # b needs 2.5 s
    found += [cycle(crew, orders(1), model, 0.6) for _ in range(4)]
    reasons = [[i.reason for i in came if isinstance(i, Lost)] for came in found]
    assert reasons[1:] == [[], [TOO_OLD], [], []]
    assert all(r.learner == 0 for came in found for r in reports(came))


@pytest.mark.parametrize("own_rows", [None, OWN], ids=["sent", "own"])
def test_who_has_something_by_the_deadline_sends_it(
    own_rows: Sequence[Ints] | None,
) -> None:
    crew, model = crew_of(own_rows=own_rows), parameters_of(small_model())
    came = cycle(crew, orders(20, 20, rows=own_rows is None), model, 4.0)
    (a, b) = sorted(reports(came), key=lambda r: r.learner)
    # 3.5 s for training leave b a batch of four, not two.
    assert (a.samples, a.halted, b.samples, b.halted) == (20, False, 4, True)
    halting = crew_of(SimulatedLearners, late=Late.HALT, own_rows=own_rows)
    same = cycle(halting, orders(20, 20, rows=own_rows is None), model, 4.0)
    for mine, other in zip(came, same, strict=True):
        assert isinstance(mine, Updates)
        assert isinstance(other, Updates)
        assert [r.learner for r in mine.reports] == [r.learner for r in other.reports]
        for name, values in mine.parameters.items():
            assert torch.equal(values, other.parameters[name])


@pytest.mark.parametrize("own_rows", [None, OWN], ids=["sent", "own"])
def test_who_has_nothing_goes_on_until_it_has(own_rows: Sequence[Ints] | None) -> None:
    crew, model = crew_of(own_rows=own_rows), parameters_of(small_model())
    rows = own_rows is None
    came = cycle(crew, orders(10, 20, rows=rows), model, 2.0)
    assert [i.goes_on for i in came if isinstance(i, Lost)] == [True]
    came = cycle(crew, orders(10, rows=rows), model, 2.0)
    (b,) = [r for r in reports(came) if r.age]
    # By 4 s it has done one batch of four, in 2 s.
    assert (b.learner, b.age, b.samples, b.halted) == (1, 1, 4, True)


@pytest.mark.parametrize(("now_s", "rest_s"), [(1.0, 4.5), (5.0, 0.5), (8.0, 3.5)])
def test_who_is_overdue_is_expected_to_need_as_long_again(
    now_s: float, rest_s: float
) -> None:
    order = UnderWay(cycle=1, began_s=0.0, expected_s=5.0)
    assert order.rest_s(now_s) == pytest.approx(rest_s)


def ran(crew: SimulatedLearners, cycles: int, deadline_s: float) -> list[Record]:
    """Return the records of an averaging run that carries."""
    task = task_of("csa", deadline_s, cycles=cycles, federated=True, samples=None)
    algorithm = Averaging(crew, Carrying(), merger=Merger(stand_ins=StandIns(5)))
    found, state = list[Record](), RunState()

    async def run() -> None:
        parameters = parameters_of(task.model)
        for number in range(1, cycles + 1):
            log = CycleLog(task, crew, found.append, state, number)
            begun = await algorithm.begin(log, patient=False)
            outcome = await algorithm.cycle(log, begun, parameters)
            parameters = outcome.parameters or parameters

    asyncio.run(run())
    return found


def test_a_learner_too_slow_for_the_deadline_takes_part() -> None:
    # One sample takes b 1 s, and the deadline is 0.8 s.
    found = ran(crew_of(), 6, 0.8)
    given = [r for r in found if isinstance(r, records.Allocated) and r.learner == "b"]
    carried = [r for r in found if isinstance(r, records.Carried)]
    assert {r.learner for r in carried} == {"b"}
    assert {r.age for r in carried} == {1}
    assert [r.samples for r in given] == [2, 0, 2, 0, 2, 0]  # 1.5 s, then 0.1 s of rest
    assert {r.why for r in given if not r.samples} == {AT_WORK}
    assert {round(r.weight, 4) for r in carried} == {0.7071}


def test_which_it_does_not_where_late_work_is_not_carried() -> None:
    crew = crew_of(SimulatedLearners, late=Late.HALT)
    task = task_of("csa", 0.8, federated=True, samples=None)
    state = RunState()
    log = CycleLog(task, crew, lambda record: None, state, 1)
    with pytest.raises(InfeasibleError):
        asyncio.run(Averaging(crew).begin(log, patient=False))


def test_where_nobody_ever_can_there_is_no_plan() -> None:
    with pytest.raises(InfeasibleError):
        ran(crew_of(staleness_at_most=1), 2, 0.05)


UNEVEN = Job(
    name="uneven",
    mode=Mode.FEDERATED,
    cycles=12,
    noise=2.0,
    late=Late.CARRY,
    samples=600,
    data=DataTable(split=Split.DIRICHLET),
    learners=(
        LearnersTable(
            name="x",
            count=6,
            rate=SamplesPerSecond(400),
            bandwidth=BytesPerSecond(2e6),
        ),
    ),
)


@pytest.mark.parametrize(
    "job",
    [
        UNEVEN,
        changed(UNEVEN, scheme="dab", steps=2),
        changed(UNEVEN, mode=Mode.PARALLEL),
        changed(UNEVEN, late_at_most=0.3),
    ],
    ids=["federated", "dab", "parallel", "promised"],
)
def test_nothing_is_lost(job: Job) -> None:
    found = list[Record]()
    simulate(job, runs=None, watch=found.append)
    on = [r for r in found if isinstance(r, records.GoesOn)]
    came = [r for r in found if isinstance(r, records.Carried)]
    lost = [r for r in found if isinstance(r, records.Dropped)]
    assert on
    for name in {r.learner for r in on}:
        went = Counter(r.cycle for r in on if r.learner == name)
        back = Counter(r.cycle - r.age for r in came if r.learner == name)
        old = [r for r in lost if r.learner == name and r.reason == TOO_OLD]
        # All but the one that was under way as the run ended.
        assert set(went.values()) == {1}
        assert back <= went
        assert went.total() - back.total() - len(old) in (0, 1)
    assert all(1 <= r.age <= job.staleness_at_most for r in came)
    assert all(r.weight == pytest.approx((1 + r.age) ** -0.5) for r in came)
    assert {r.reason for r in lost} <= {underway.NOT_BEGUN, TOO_OLD}


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [UNEVEN, changed(UNEVEN, mode=Mode.PARALLEL)],
    ids=["federated", "parallel"],
)
def test_a_resumed_run_goes_on_with_what_was_under_way(
    job: Job, tmp_path: Path
) -> None:
    whole, resumed = whole_and_resumed(job, tmp_path, after=5)
    assert all(b'"carried"' in lines for lines in whole.values())
    assert resumed == whole


def one(value: float, samples: int = 10) -> Updates:
    report = Report(
        learner=0,
        samples=samples,
        batches=1,
        loss=0.0,
        halted=False,
        downloaded_s=0.0,
        trained_s=0.0,
        uploaded_s=0.0,
    )
    return Updates([report], {"w": torch.tensor([[value]])})


ZERO = {"w": torch.tensor([0.0])}


def test_the_last_change_stands_in_with_less_weight_as_it_ages() -> None:
    kept = StandIns(staleness_at_most=3)
    kept.see(["a"], one(2.0), 1, ZERO)
    kept.see(["a"], one(3.0), 2, {"w": torch.tensor([1.0])})
    (update,) = kept.of({4: "a", 5: "b"}, 3, {"w": torch.tensor([5.0])})
    (report,) = update.reports
    assert update.parameters["w"].tolist() == [[7.0]]
    assert (report.learner, report.samples, report.batches) == (4, 10, 1)
    assert of_age(report.age) == pytest.approx(1 / 2**0.5)
    assert list(kept.of({0: "a"}, 6, ZERO)) == []


def test_stand_ins_go_into_a_checkpoint_and_come_back() -> None:
    kept, again = StandIns(3), StandIns(3)
    kept.see(["a"], one(2.0), 4, ZERO)
    kept.see(["a:b"], one(3.0, samples=7), 5, ZERO)
    again.restore({"w": torch.zeros(1)} | kept.state())
    for name in ("a", "a:b"):
        (mine,), (same,) = (k.of({0: name}, 6, ZERO) for k in (kept, again))
        assert mine.reports == same.reports
        assert torch.equal(mine.parameters["w"], same.parameters["w"])


def test_what_does_not_count_does_not_stand_in_either() -> None:
    kept = StandIns(3)
    kept.see(["a"], one(2.0), 1, ZERO)
    kept.see(["a"], one(float("nan")), 2, ZERO)
    kept.see(["a"], one(3.0, samples=0), 2, ZERO)
    (update,) = kept.of({0: "a"}, 2, ZERO)
    assert update.parameters["w"].tolist() == [[2.0]]


class Watched(CarryingLearners):
    """Keeps what arrives."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.came: list[tuple[Parameters, Report, Parameters]] = []

    async def train(
        self, orders: Sequence[Order], parameters: Parameters, deadline_s: float
    ) -> AsyncIterator[Updates | Lost]:
        async for item in super().train(orders, parameters, deadline_s):
            if isinstance(item, Updates):
                for row, report in enumerate(item.reports):
                    update = {n: v[row] for n, v in item.parameters.items()}
                    self.came.append((parameters, report, update))
            yield item


@pytest.mark.parametrize("most", [None, 0.01])
def test_a_learner_at_work_is_stood_in_for(most: float | None) -> None:
    # Alike, but that b hangs in its second cycle.
    crew = crew_of(Watched, law([0.05, 0.05], [0.0, 0.0], [0.2, 0.2]))
    assert isinstance(crew, Watched)
    hangs = np.array([[1.0, 100.0]] * 2)
    crew._conditions = replace(
        crew._conditions, slower=lambda n: hangs if n == 2 else np.ones((2, 2))
    )
    merging = Merging(clip=most)
    task = task_of("csa", 2.5, federated=True, samples=None, merging=merging)
    algorithm = Averaging(crew, Carrying(), merger=Merger(stand_ins=StandIns(5)))
    state, models = RunState(), [parameters_of(task.model)]

    async def run() -> None:
        for number in (1, 2):
            log = CycleLog(task, crew, lambda record: None, state, number)
            begun = await algorithm.begin(log, patient=False)
            outcome = await algorithm.cycle(log, begun, models[-1])
            assert outcome.parameters is not None
            models.append(outcome.parameters)

    asyncio.run(run())
    (_, first), (start, second) = crew.came[:2], crew.came[2][::2]
    assert [r.learner for _, r, _ in crew.came] == [0, 1, 0]
    (before, report, update) = first
    assert report.learner == 1
    weight = report.samples / 2**0.5
    fresh = crew.came[2][1].samples
    changes = [
        {n: second[n] - start[n] for n in start},
        {n: update[n] - before[n] for n in start},
    ]
    if most is not None:
        changes = [shortened(change, most) for change in changes]
    for n, tensor in models[2].items():
        mean = (fresh * changes[0][n] + weight * changes[1][n]) / (fresh + weight)
        assert torch.allclose(tensor, start[n] + mean, atol=1e-6)


def shortened(change: Parameters, most: float) -> Parameters:
    norm = sum(float(t.double().square().sum()) for t in change.values()) ** 0.5
    assert norm > most
    return {n: t * most / norm for n, t in change.items()}


def test_there_is_a_limit_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standins, "MOST_BYTES", 9)
    kept = StandIns(3)
    for name in ("a", "b", "c"):
        kept.see([name], one(1.0), 1, ZERO)
    assert len(list(kept.of(dict(enumerate("abc")), 2, ZERO))) == 2


@pytest.mark.parametrize(
    "job",
    [
        Job(scheme="coded", late=Late.CARRY),
        Job(scheme="fog", mode=Mode.FEDERATED, late=Late.CARRY),
        Job(
            scheme="med",
            late=Late.CARRY,
            tasks=(TaskTable(name="a"), TaskTable(name="b")),
        ),
    ],
)
def test_only_averaged_updates_are_carried(job: Job) -> None:
    with pytest.raises(ConfigError, match="late = 'carry' is for one task"):
        family_of(job).checked(job)


def test_an_update_has_to_be_waited_for() -> None:
    with pytest.raises(ConfigError, match="staleness_at_most is 0: give at least 1"):
        Job(staleness_at_most=0)
