"""What learners claim is held against what they did."""

from pathlib import Path

import numpy as np
import pytest
from tests.fleets.fleets import law
from tests.fleets.learners import Steady, changed, live, of

from melisma.fleets.claims import GROWTH, NEWCOMER, Claims, Done
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.jobs.schema import Job
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.learning.parameters import load
from melisma.learning.settings import Late
from melisma.runs import records
from melisma.runs.store import MODEL
from melisma.system.options import Options
from melisma.units import Deadline

NAMES = ["a", "b", "c"]
EQUAL = law([1.0] * 3, [0.0] * 3, [0.0] * 3)


def work(took_s: float, samples: int = 4) -> Done:
    return Done(given=8, samples=samples, passes=samples, took_s=took_s)


def test_a_newcomer_is_not_much_faster_than_the_median() -> None:
    boasting = law([1e-6, 1.0, 1.0], [0.0] * 3, [0.1] * 3)
    believed = Claims().law(NAMES, boasting, 10.0)
    assert believed.step_s.tolist() == [1 / NEWCOMER, 1.0, 1.0]
    assert believed.fixed_s.tolist() == [0.1] * 3
    assert Claims().bids(NAMES, np.array([10**9, 2, 3]), 5).tolist() == [48, 2, 3]


def test_unlike_devices_are_believed() -> None:
    unlike = law([1 / 8000, 1 / 2500, 1 / 600], [0.0] * 3, [0.1] * 3)
    assert np.array_equal(Claims().law(NAMES, unlike, 1.0).step_s, unlike.step_s)


def test_who_takes_far_longer_than_it_claims_counts_as_that_slow() -> None:
    claims = Claims()
    # It says 1 s a sample. Four samples took 12 s of 20: it is three times slower.
    for took_s in (16.0, 12.0):
        claims.see("a", work(took_s))
        claims.see("b", work(took_s=7.0))  # under twice what it says
    claims.see("c", work(took_s=12.0))  # once is no habit
    assert claims.law(NAMES, EQUAL, 20.0).step_s.tolist() == [3.0, 1.0, 1.0]


def test_who_corrects_its_claim_is_not_corrected_twice() -> None:
    claims = Claims()
    claims.see("a", work(took_s=12.0))
    claims.see("a", work(took_s=12.0))
    drifted = law([3.0, 1.0, 1.0], [0.0] * 3, [0.0] * 3)
    assert claims.law(NAMES, drifted, 20.0).step_s.tolist() == [3.0, 1.0, 1.0]


def test_a_short_cycle_proves_nothing() -> None:
    claims = Claims()
    claims.see("a", work(took_s=9.0))  # under half of the deadline
    claims.see("a", work(took_s=9.0))
    assert claims.law(NAMES, EQUAL, 20.0).step_s.tolist() == [1.0] * 3


def test_one_absence_costs_nothing_more_and_each_further_one_half() -> None:
    claims, slower = Claims(), []
    for _ in range(4):
        claims.miss("a")
        slower.append(claims.law(NAMES, EQUAL, 20.0).step_s[0])
    assert slower == [1.0, 2.0, 4.0, 8.0]
    claims.see("a", work(took_s=4.0))
    assert claims.law(NAMES, EQUAL, 20.0).step_s[0] == 1.0


def test_what_is_held_against_who_has_no_work_fades() -> None:
    claims = Claims()
    for _ in range(3):
        claims.miss("a")
    slower = [claims.law(NAMES, EQUAL, 20.0).step_s[0] for _ in range(4)]
    assert slower == [4.0, 2.0, 1.0, 1.0]
    claims.see("a", work(took_s=18.0))
    claims.see("a", work(took_s=18.0))
    slower = [claims.law(NAMES, EQUAL, 20.0).step_s[0] for _ in range(3)]
    assert slower == [4.5, 1.0, 1.0]  # 18 s, then 9 s, which is not long


def test_a_bid_grows_from_what_was_done() -> None:
    claims, bids = Claims(), np.array([1000, 1000, 1000])
    claims.see("a", Done(given=40, samples=40, passes=40, took_s=1.0))
    claims.see("b", Done(given=40, samples=25, passes=25, took_s=1.0))  # halted
    claims.see("c", Done(given=40, samples=40, passes=40, took_s=1.0))
    claims.miss("c")
    claims.miss("c")
    # Eight shards were done: four times that, the five that were, half of four times.
    assert claims.bids(NAMES, bids, 5).tolist() == [8 * GROWTH, 5, 4 * GROWTH]


class Boastful(Steady):
    """Says that it is ten thousand times as fast as it is."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=1e-9, sample_s=0.0, fixed_s=0.0)

    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        return 10**12


class Modest(Steady):
    def bid(self, task: str, deadline_s: float, steps: int) -> int:
        return 2


def given_to_boastful(job: Job, folder: Path, kind: type[Boastful]) -> list[int]:
    """Shards of five samples that one gets in each cycle, beside two that bid two."""
    job = changed(job, scheme="dab", shard=5)
    learners = [Modest(name="a"), Modest(name="b"), kind(name="c")]
    given = of(records.Allocated, live(job, folder, learners))
    return [r.samples // 5 for r in given if r.learner == "c"]


def test_a_live_bid_counts_as_far_as_work_was_done(tmp_path: Path) -> None:
    given = given_to_boastful(changed(cycles=2), tmp_path, Boastful)
    assert given == [2 * NEWCOMER, 2 * NEWCOMER * GROWTH]


class Asleep(Boastful):
    def train(self, request: TrainRequest, caller: Caller) -> Update:
        sleep_unless(caller.gave_up, 120.0)
        return super().train(request, caller)


@pytest.mark.slow
def test_who_is_not_there_in_time_is_given_less(tmp_path: Path) -> None:
    job = changed(cycles=4, deadline=Deadline(0.4))
    given = given_to_boastful(job, tmp_path, Asleep)
    assert given == [2 * NEWCOMER, 2 * NEWCOMER, NEWCOMER, NEWCOMER // 2]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["csa", pytest.param("dab", marks=pytest.mark.slow)])
def test_a_boast_buys_no_more_than_half_of_the_model(
    tmp_path: Path, scheme: str
) -> None:
    class Poisoning(Boastful):
        def train(self, request: TrainRequest, caller: Caller) -> Update:
            update = super().train(request, caller)
            for tensor in update.parameters.values():
                tensor.fill_(1.0)
            return update

    class Still(Steady):
        """Sends zeros, so that the model shows everybody's share."""

        def train(self, request: TrainRequest, caller: Caller) -> Update:
            update = super().train(request, caller)
            for tensor in update.parameters.values():
                tensor.zero_()
            return update

        def bid(self, task: str, deadline_s: float, steps: int) -> int:
            return 1

    job = changed(scheme=scheme, cycles=1, samples=900, shard=20, late=Late.WAIT)
    happened = live(
        job, tmp_path, [Still(name="a"), Still(name="b"), Poisoning(name="c")]
    )
    shares = [float(t.max()) for t in load(tmp_path / MODEL).values()]
    assert of(records.Aggregated, happened)[0].learners == 3
    assert max(shares) == pytest.approx(0.5)


@pytest.mark.slow
def test_a_cycle_that_waits_for_the_late_ends_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("melisma.fleets.live.LONGEST_WAIT", 2)

    job = changed(cycles=1, samples=100, deadline=Deadline(1.5), late=Late.WAIT)
    happened = live(job, tmp_path, [Steady(name="a"), Asleep(name="b")])
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.offence) == ("b", False)
    assert len(of(records.Evaluated, happened)) == 1


def test_work_by_an_option_is_held_against_the_law_of_that() -> None:
    options = Options(
        names=("whole", "part"),
        size_bytes=np.array([4.0, 1.0]),
        value=np.ones(2),
        compute=np.array([1.0, 0.25]),
    )
    claims, claimed = Claims(options), law([1.0] * 3, [0.0] * 3, [4.0] * 3)
    for name, option in (("a", 1), ("b", 0)):
        for _ in range(2):
            done = Done(given=8, samples=4, passes=4, took_s=12.0, option=option)
            claims.see(name, done)
    # A quarter of 4 + 4 s took 12 s, and 8 s took 12 s.
    assert claims.law(NAMES, claimed, 20.0).step_s.tolist() == [6.0, 1.0, 1.0]
