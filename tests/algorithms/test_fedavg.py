"""Fixed work: as much for everyone, whatever the deadline."""

import msgspec
import pytest

from melisma.algorithms.allocating import NOT_CHOSEN
from melisma.errors import ConfigError
from melisma.jobs.families import family_of
from melisma.jobs.schema import DataTable, Job, ParticipationTable, Split
from melisma.launch.api import simulate
from melisma.learning.settings import Late
from melisma.runs import records
from melisma.runs.records import Record
from melisma.schemes.participation import TakesPart
from melisma.system.law import Mode
from melisma.units import Deadline

JOB = Job(
    scheme="fedavg",
    mode=Mode.FEDERATED,
    cycles=2,
    steps=3,
    deadline=Deadline(1.0),
    late=Late.WAIT,
    data=DataTable(split=Split.DIRICHLET, alpha=0.3),
)


def records_of(job: Job) -> list[Record]:
    found: list[Record] = []
    simulate(job, runs=None, watch=found.append)
    return found


def test_all_train_on_all_they_have_and_the_slowest_is_waited_for() -> None:
    found = records_of(JOB)
    given = [r for r in found if isinstance(r, records.Allocated) and r.cycle == 1]
    assert sum(r.samples for r in given) == 4000
    assert {r.steps for r in given} == {3}
    slowest = max(r.predicted_s or 0.0 for r in given)
    assert slowest > 1.0
    (first, _) = [r for r in found if isinstance(r, records.Aggregated)]
    assert first.learners == 10
    assert first.cycle_s == pytest.approx(slowest)


def test_samples_that_are_sent_are_shared_evenly() -> None:
    job = msgspec.structs.replace(
        JOB, mode=Mode.PARALLEL, samples=1000, data=DataTable()
    )
    given = [r.samples for r in records_of(job) if isinstance(r, records.Allocated)]
    assert given == [100] * 20


@pytest.mark.parametrize("late", [Late.DROP, Late.HALT])
def test_who_is_late_is_dropped_or_counts_in_part(late: Late) -> None:
    found = records_of(msgspec.structs.replace(JOB, late=late))
    merged = [r.learners for r in found if isinstance(r, records.Aggregated)]
    lost = [r for r in found if isinstance(r, records.Dropped)]
    halted = [r for r in found if isinstance(r, records.Halted)]
    slow = {
        r.learner
        for r in found
        if isinstance(r, records.Allocated) and (r.predicted_s or 0.0) > 1.0
    }
    assert 0 < len(slow) < 10
    if late == Late.DROP:
        assert merged == [10 - len(slow)] * 2
        assert {r.learner for r in lost} == slow
    else:
        assert merged == [10, 10]
        assert {r.learner for r in halted} == slow


def test_some_may_be_drawn() -> None:
    table = ParticipationTable(rule=TakesPart.RANDOM, learners=4)
    found = records_of(msgspec.structs.replace(JOB, participation=table))
    given = [r for r in found if isinstance(r, records.Allocated)]
    assert [sum(r.samples > 0 for r in given if r.cycle == n) for n in (1, 2)] == [4, 4]
    assert all((r.why == NOT_CHOSEN) == (r.samples == 0) for r in given)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"late_at_most": 0.1}, "late_at_most"),
        ({"deadline": Deadline.of("auto")}, "deadline = 'auto'"),
        ({"late": Late.CARRY}, "late = 'carry'"),
        ({"learners_at_most": 3}, "learners_at_most"),
    ],
)
def test_what_plans_work_is_refused(changes: dict[str, object], key: str) -> None:
    job = msgspec.structs.replace(JOB, **changes)
    with pytest.raises(ConfigError, match=f"{key} under 'fedavg'"):
        family_of(job).checked(job)


@pytest.mark.parametrize("scheme", ["fedavg", "async:fedbuff"])
def test_batches_are_the_same_for_all_however_much_each_has(scheme: str) -> None:
    late = Late.WAIT if scheme == "fedavg" else Late.HALT
    job = msgspec.structs.replace(JOB, scheme=scheme, batches=30, late=late)
    found = records_of(job)
    trained = [r for r in found if isinstance(r, records.Trained)]
    assert len({r.samples for r in trained}) > 2
    # Whole batches in each of its epochs: one less in each at most.
    given = [r for r in found if isinstance(r, records.Allocated)]
    epochs = {(r.learner, r.cycle): r.steps for r in given}
    for r in trained:
        assert 30 - epochs[r.learner, r.cycle] < r.batches <= 30


def test_batches_are_for_fixed_work_alone() -> None:
    job = msgspec.structs.replace(JOB, scheme="csa", batches=30, late=Late.HALT)
    with pytest.raises(ConfigError, match="batches under 'csa'"):
        family_of(job).checked(job)
