"""Learners that say when they go: nobody waits in vain, and none is blamed."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fleets.learners import Steady, changed, joined, live, of

from melisma import rpc
from melisma.errors import TrainingError
from melisma.fleets import attendance
from melisma.fleets.attendance import MOST_CHARACTERS, MOST_NAMES, Attendance
from melisma.fleets.messages import TrainRequest, Update
from melisma.launch.serve import orchestrate
from melisma.learner.source import Caller
from melisma.runs import records
from melisma.units import Deadline


class Phone(Steady):
    """Goes in the middle of its first order; ``returns`` if it comes back."""

    def __init__(self, *, returns: bool) -> None:
        super().__init__(name="phone")
        self._returns, self.orders = returns, 0

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        orchestrator: Any = rpc.current().peer
        self.orders += 1
        if self.orders == 1:
            orchestrator.away("screen locked")
            if not self._returns:
                while not caller.gave_up():
                    time.sleep(0.01)
                raise TrainingError("nobody waits")
            orchestrator.back()
        return super().train(request, caller)


@pytest.mark.slow
def test_a_cycle_goes_on_without_who_is_away_and_blames_it_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "AWAY_S", 0.1)
    phone, began = Phone(returns=False), time.monotonic()
    job = changed(cycles=3, deadline=Deadline(600.0))
    happened = live(job, tmp_path, [phone, Steady(name="pi")])
    assert time.monotonic() - began < 600  # it waits for no deadline
    (lost,) = of(records.Dropped, happened)
    assert (lost.learner, lost.reason) == ("phone", "away: screen locked")
    assert not lost.offence
    assert phone.orders == 1  # then it is asked for nothing
    assert len(of(records.Evaluated, happened)) == 3


def test_who_is_back_in_time_counts(tmp_path: Path) -> None:
    phone = Phone(returns=True)
    happened = live(changed(cycles=2), tmp_path, [phone, Steady(name="pi")])
    assert not of(records.Dropped, happened)
    uploaded = [record.learner for record in of(records.Uploaded, happened)]
    assert sorted(uploaded) == ["phone", "phone", "pi", "pi"]


def test_who_joins_by_the_name_of_one_that_went_takes_part(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def start(server: rpc.Server) -> None:
            with rpc.connect(server.address, name="phone") as tab:
                tab.away("closed")
            learners = [Steady(name="phone"), Steady(name="pi")]
            stack.enter_context(joined(server, learners))

        happened = orchestrate(
            changed(cycles=1), tmp_path, learners=2, ready=start, port=0
        )
    uploaded = [record.learner for record in of(records.Uploaded, happened)]
    assert sorted(uploaded) == ["phone", "pi"]


def test_what_is_kept_of_who_is_away_is_bounded() -> None:
    register = Attendance()
    for i in range(MOST_NAMES + 10):
        register.note(f"phone-{i}", "x" * 10_000)
    assert len(register.absent) == MOST_NAMES
    assert register.reason("phone-0") is None
    last = register.reason(f"phone-{MOST_NAMES + 9}")
    assert last is not None
    assert len(last) <= MOST_CHARACTERS + len("away: ")
