"""Late work of real learners is carried: it counts when it comes."""

from pathlib import Path

import pytest
from tests.fleets.learners import Steady, changed, live, of

from melisma.algorithms.carrying import AT_WORK
from melisma.algorithms.promised import PREFIX
from melisma.fleets.messages import TrainRequest, Update
from melisma.fleets.protocols import NOT_THERE
from melisma.fleets.underway import TOO_OLD
from melisma.jobs.wire_table import WireTable
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.parameters import load
from melisma.learning.settings import Late
from melisma.runs import records
from melisma.runs.files import CHECKPOINT
from melisma.runs.records import Record
from melisma.units import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.alone]

#: Long enough for a steady learner on busy cores.
SHORT = Deadline(4.0)


class Hanging(Steady):
    """Hangs in its first cycle, for one and a half."""

    hangs_s = 6.0

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        if request.cycle == 1:
            sleep_unless(caller.gave_up, self.hangs_s)
        return super().train(request, caller)


@pytest.mark.parametrize("wire", [WireTable(), WireTable(down="int8", up="top-k 5 %")])
def test_an_update_counts_in_the_cycle_in_which_it_comes(
    wire: WireTable, tmp_path: Path
) -> None:
    job = changed(samples=100, deadline=SHORT, late=Late.CARRY, cycles=3, wire=wire)
    happened = live(job, tmp_path, [Steady(name="a"), Hanging(name="b")])
    on = [(r.learner, r.cycle) for r in of(records.GoesOn, happened)]
    (carried,) = [r for r in of(records.Carried, happened) if r.cycle == 2]
    assert on[0] == ("b", 1)
    assert (carried.learner, carried.age, carried.samples) == ("b", 1, 50)
    assert carried.weight == pytest.approx(2**-0.5)
    assert not of(records.Dropped, happened)
    counted = [r.learners for r in of(records.Aggregated, happened)]
    # a; then a, what b had begun, and perhaps b's own work of this cycle.
    assert counted[0] == 1
    assert counted[1] >= 2
    # It is not gone meanwhile: nobody asked it anything.
    assert not of(records.Left, happened)


class Frozen(Hanging):
    hangs_s = 60.0


def test_who_never_comes_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    job = changed(
        samples=100,
        deadline=Deadline(2.0),
        late=Late.CARRY,
        staleness_at_most=1,
        cycles=3,
    )
    happened = live(job, tmp_path, [Steady(name="a"), Frozen(name="b")])
    on = [r.cycle for r in of(records.GoesOn, happened) if r.learner == "b"]
    lost = [r for r in of(records.Dropped, happened) if r.learner == "b"]
    assert on[0] == 1
    assert lost[0].reason in (TOO_OLD, NOT_THERE)
    # It hangs with its first order only; a later one may come, and be carried.
    carried = [r for r in of(records.Carried, happened) if r.learner == "b"]
    assert all(r.cycle - r.age > 1 for r in carried)
    assert all(r.learners >= 1 for r in of(records.Aggregated, happened))


class Bidding(Steady):
    """Bids for one shard, whatever the machine could do."""

    def bid(self, name: str, deadline_s: float, steps: int) -> int:
        return 1


class HangingBidder(Hanging, Bidding):
    """The same, and hangs."""


class Paced(Bidding):
    """Takes a tenth of a second at least, so that so many cycles last so long."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        sleep_unless(caller.gave_up, 0.1)
        return super().train(request, caller)


def test_under_bids_too_nothing_is_lost(tmp_path: Path) -> None:
    # Cycles without b are short: it is done, after 2 s, some of them later.
    job = changed(
        scheme="dab", deadline=SHORT, late=Late.CARRY, staleness_at_most=200, cycles=40
    )
    happened = live(job, tmp_path, [Paced(name="a"), HangingBidder(name="b")])
    (on,) = [r for r in of(records.GoesOn, happened) if r.cycle == 1]
    carried = [r for r in of(records.Carried, happened) if r.learner == "b"]
    assert on.learner == "b"
    assert carried[0].age >= 1
    busy = [
        r for r in of(records.Allocated, happened) if (r.learner, r.cycle) == ("b", 2)
    ]
    assert [(r.samples, r.why) for r in busy] == [(0, AT_WORK)]


class Killed(BaseException):
    """As if the process were."""


def test_a_killed_orchestrator_goes_on_with_margins_and_deadlines(
    tmp_path: Path,
) -> None:
    job = changed(
        scheme="csa",
        samples=100,
        deadline=Deadline.of("auto"),
        late=Late.CARRY,
        late_at_most=0.2,
        cycles=4,
    )

    def kill(record: Record) -> None:
        if isinstance(record, records.Uploaded) and record.cycle == 3:
            raise Killed

    learners = [Steady(name="a"), Steady(name="b")]
    with pytest.raises(Killed):
        live(job, tmp_path, learners, kill)
    happened = live(job, tmp_path, [Steady(name="a"), Steady(name="b")])
    assert [r.cycle for r in of(records.Evaluated, happened)] == [1, 2, 3, 4]
    steered = of(records.Steered, happened)
    assert [r.cycle for r in steered] == [1, 2, 3, 4]
    assert [r.expected is None for r in steered] == [True, False, False, False]
    assert all(r.planned_s for r in of(records.Allocated, happened))
    saved = load(tmp_path / CHECKPOINT)
    known = [tensor for name, tensor in saved.items() if name.startswith(PREFIX)]
    assert known
