"""Who takes part in whole runs, simulated and live."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.fleets.learners import Steady, changed, live, of
from tests.jobs.small import small

from melisma.algorithms.allocating import NOT_CHOSEN
from melisma.algorithms.state import RunState
from melisma.errors import ConfigError
from melisma.fleets.messages import TrainRequest, Update
from melisma.fleets.protocols import NOT_NEEDED
from melisma.jobs.families import family_of
from melisma.jobs.schema import DataTable, Job, ParticipationTable, Split, TaskTable
from melisma.launch.api import simulate
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.settings import Late
from melisma.runs import records
from melisma.runs.records import Record
from melisma.schemes.participation import TakesPart
from melisma.system.law import Mode
from melisma.units import Deadline

JOB = small(
    mode=Mode.FEDERATED,
    cycles=6,
    deadline=Deadline(1.0),
    noise=0.1,
    data=DataTable(split=Split.DIRICHLET, alpha=0.3),
)
RULES = [rule for rule in TakesPart if rule != TakesPart.ALL]


def with_rule(rule: TakesPart, learners: int = 3, job: Job = JOB) -> Job:
    table = ParticipationTable(rule=rule, learners=learners)
    return msgspec.structs.replace(job, participation=table)


def records_of(job: Job) -> list[Record]:
    found: list[Record] = []
    simulate(job, runs=None, watch=found.append)
    return found


@pytest.mark.parametrize("scheme", ["csa", "dab"])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("rule", RULES)
def test_so_many_are_asked_and_the_others_are_told_why(
    rule: TakesPart, mode: Mode, scheme: str
) -> None:
    job = msgspec.structs.replace(JOB, mode=mode, scheme=scheme, cycles=3)
    found = records_of(with_rule(rule, job=job))
    number = {TakesPart.OVER_COMMIT: 4, TakesPart.FIRST: 10, TakesPart.TIERS: 2}
    for cycle in (1, 2, 3):
        given = [
            r for r in found if isinstance(r, records.Allocated) and r.cycle == cycle
        ]
        assert sum(r.why != NOT_CHOSEN for r in given) == number.get(rule, 3)
        assert all(not r.samples for r in given if r.why == NOT_CHOSEN)
        assert any(r.samples for r in given)


def test_others_are_drawn_in_each_cycle() -> None:
    found = records_of(with_rule(TakesPart.RANDOM))
    drawn = {
        cycle: frozenset(
            r.learner
            for r in found
            if isinstance(r, records.Allocated) and r.cycle == cycle and r.samples
        )
        for cycle in range(1, 7)
    }
    assert len(set(drawn.values())) > 3


@pytest.mark.parametrize("rule", [TakesPart.OVER_COMMIT, TakesPart.FIRST])
def test_a_cycle_ends_with_the_last_update_that_counts(rule: TakesPart) -> None:
    found = records_of(with_rule(rule))
    ends = {r.cycle: r.time_s for r in found if isinstance(r, records.Aggregated)}
    begins = {1: 0.0} | {cycle + 1: time_s for cycle, time_s in ends.items()}
    for cycle, end_s in ends.items():
        there = [
            r.time_s
            for r in found
            if isinstance(r, records.Uploaded) and r.cycle == cycle
        ]
        lost = [r for r in found if isinstance(r, records.Dropped) and r.cycle == cycle]
        assert len(there) == 3
        assert max(there) == pytest.approx(end_s)
        assert {r.reason for r in lost} == {NOT_NEEDED}
        assert all(r.time_s == pytest.approx(end_s) and not r.late for r in lost)
        assert end_s - begins[cycle] <= 1.0 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_run_asks_whom_it_would_have_asked(
    rule: TakesPart, tmp_path: Path
) -> None:
    # After ten cycles everybody was seen, and losses decide.
    job = msgspec.structs.replace(with_rule(rule), cycles=14)
    whole, resumed = whole_and_resumed(job, tmp_path, after=10)
    assert whole == resumed


def test_records_tell_what_learners_have_shown() -> None:
    found = records_of(with_rule(TakesPart.RANDOM))
    seen = RunState(found).seen
    for name, one in seen.items():
        mine = [r for r in found if getattr(r, "learner", None) == name]
        did = [r for r in mine if isinstance(r, records.Trained | records.Halted)]
        sent = [r for r in mine if isinstance(r, records.Uploaded)][-1]
        began = [
            r
            for r in mine
            if isinstance(r, records.Allocated) and r.cycle == sent.cycle
        ][-1]
        assert (one.cycles, one.last) == (len(did), did[-1].cycle)
        assert (one.samples, one.loss) == (did[-1].samples, did[-1].loss)
        assert one.seconds == pytest.approx(sent.time_s - began.time_s)
    assert np.sum([one.cycles for one in seen.values()]) == 18


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(scheme="coded"), "is for one task whose updates are averaged"),
        (
            Job(scheme="fog", mode=Mode.FEDERATED),
            "is for one task whose updates are averaged",
        ),
        (
            Job(scheme="med", tasks=(TaskTable(name="a"),)),
            "is for one task whose updates are averaged",
        ),
        (
            Job(mode=Mode.FEDERATED, late=Late.CARRY),
            "rule = 'first' ends cycles early",
        ),
    ],
    ids=["coded", "fog", "tasks", "carry"],
)
def test_where_it_cannot_be_chosen_that_is_said(job: Job, message: str) -> None:
    wrong = with_rule(TakesPart.FIRST, job=job)
    with pytest.raises(ConfigError, match=message):
        family_of(wrong).checked(wrong)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rule": TakesPart.RANDOM}, "rule = 'random' with learners = None: give"),
        ({"learners": 3}, "rule = 'all' with learners = 3: give"),
        ({"rule": TakesPart.OORT, "learners": 0}, "learners = 0: give 1 or more"),
        (
            {"rule": TakesPart.OVER_COMMIT, "learners": 2, "over": 0.5},
            "over = 0.5: give a number from 1 up",
        ),
    ],
)
def test_a_number_and_a_rule_go_together(
    table: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ParticipationTable(**table)  # type: ignore[arg-type]


class Slow(Steady):
    """Takes far longer than it says, and keeps whether it was stopped."""

    stopped = False

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        sleep_unless(caller.gave_up, 30.0)
        self.stopped = self.stopped or caller.gave_up()
        return super().train(request, caller)


@pytest.mark.slow
@pytest.mark.alone
def test_a_live_cycle_does_not_wait_for_more_than_it_needs(tmp_path: Path) -> None:
    job = with_rule(
        TakesPart.FIRST, 2, changed(samples=150, cycles=2, deadline=Deadline(25.0))
    )
    slow = Slow(name="c")
    happened = live(job, tmp_path, [Steady(name="a"), Steady(name="b"), slow])
    counted = of(records.Aggregated, happened)
    assert [r.learners for r in counted] == [2, 2]
    lost = of(records.Dropped, happened)
    assert {(r.learner, r.reason, r.late) for r in lost} == {("c", NOT_NEEDED, False)}
    assert counted[-1].time_s < 20
    assert slow.stopped
