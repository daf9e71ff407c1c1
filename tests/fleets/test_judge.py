"""What learners answer is judged before it is used."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fleets.learners import JOB, Steady, live, of

from melisma.errors import (
    CallTimeout,
    ProtocolError,
    RemoteError,
    RpcError,
    TransportError,
)
from melisma.fleets.judge import (
    MOST_SHARDS,
    accepted,
    clipped_bid,
    failed,
    is_to_blame,
    time_within,
    wrong_bid,
    wrong_gradient,
    wrong_slot,
    wrong_speeds,
)
from melisma.fleets.messages import Gradient, SlotDone, Speeds, Update
from melisma.fleets.moves import Move
from melisma.fleets.protocols import NOT_THERE
from melisma.runs import records


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (RemoteError("ValueError", "no"), True),
        (ProtocolError("nonsense"), True),
        (RemoteError("Unprepared", "restarted"), False),
        (TransportError("unplugged"), False),
        (CallTimeout("late"), False),
    ],
)
def test_who_was_there_and_failed_is_to_blame(error: RpcError, blamed: bool) -> None:
    assert is_to_blame(error) is blamed
    assert failed(0, error, 1.0).offence is blamed


def test_a_timeout_is_a_missed_deadline() -> None:
    assert failed(3, CallTimeout("train: no answer"), 2.0).reason == NOT_THERE


@pytest.mark.parametrize(
    ("speeds", "why"),
    [
        (Speeds(step_s=1e-3, sample_s=0.0, fixed_s=0.0), ""),
        (Speeds(step_s=0.0, sample_s=0.0, fixed_s=1.0), "step_s = 0.0 s cannot be"),
        (Speeds(step_s=1.0, sample_s=-1.0, fixed_s=1.0), "sample_s = -1.0 s"),
        (Speeds(step_s=1.0, sample_s=1.0, fixed_s=float("nan")), "fixed_s = nan s"),
        (Speeds(step_s=float("inf"), sample_s=1.0, fixed_s=1.0), "step_s = inf s"),
        ("fast", "not a delay law"),
    ],
)
def test_a_delay_law_that_cannot_be_is_named(speeds: object, why: str) -> None:
    assert wrong_speeds(speeds).startswith(why)
    assert bool(wrong_speeds(speeds)) is bool(why)


def test_bids_are_whole_numbers_within_reason() -> None:
    assert wrong_bid(3) == ""
    assert wrong_bid("many") == "'many' is not a number of shards"
    assert [clipped_bid(bid) for bid in (-5, 7, 1 << 62)] == [0, 7, MOST_SHARDS]


def test_times_that_cannot_be_are_taken_for_the_latest() -> None:
    reported = [None, -1.0, 0.5, 3.0, float("nan")]
    assert [time_within(0.0, t, 2.0) for t in reported] == [2.0, 2.0, 0.5, 2.0, 2.0]


def test_an_update_counts_with_its_work_and_times() -> None:
    update = Update(
        cycle=1,
        parameters={"w": torch.ones(2)},
        samples=4,
        batches=5,
        loss=0.5,
        halted=True,
        downloaded_s=0.25,
        trained_s=9.0,
    )
    (report,) = accepted(2, update, 3.0).reports
    assert report.fields() == update.fields()
    assert (report.learner, report.downloaded_s, report.trained_s) == (2, 0.25, 3.0)


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        (np.zeros(3, np.float32), ""),
        (np.zeros(2, np.float32), "a gradient of another model"),
        (np.zeros(3, np.float64), "a gradient of another model"),
        (np.full(3, np.nan, np.float32), "a gradient that is not finite"),
    ],
)
def test_a_gradient_of_something_else_is_refused(vector: Any, why: str) -> None:
    gradient = Gradient(cycle=1, vector=vector, downloaded_s=0.0, trained_s=0.0)
    assert wrong_gradient(gradient, 1, 3, wide=False) == why
    assert wrong_gradient(gradient, 2, 3, wide=False) == "a gradient of cycle 1"


def test_a_slot_is_judged_by_its_move() -> None:
    move = Move(collected=5, kept=2, sent={"b": 3}, arrived={"c": 1})
    done = SlotDone(slot=1, trained=3, delivered={"b": 3}, directly=[])
    assert wrong_slot(done, 1, move) == ""
    assert wrong_slot(done, 2, move) == "not an answer of this slot"
    many = SlotDone(slot=1, trained=4, delivered={}, directly=[])
    assert wrong_slot(many, 1, move) == "4 samples claimed of 3 given"


def test_a_learner_with_an_impossible_speed_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Impossible(Steady):
        def speeds(self, name: str, drifted: bool) -> Any:
            return Speeds(step_s=float("nan"), sample_s=0.0, fixed_s=0.0)

    learners = [Steady(name="a"), Impossible(name="b")]
    happened = live(JOB, tmp_path, learners, least=1)
    assert {record.learner for record in of(records.Joined, happened)} == {"a"}
    assert "b does not take part: step_s = nan s cannot be" in caplog.messages
