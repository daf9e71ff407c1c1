"""What learners answer is judged before it is used."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import JOB, Steady, changed, live, of

from melisma.errors import (
    CallTimeout,
    DataError,
    ProtocolError,
    RemoteError,
    RpcError,
    TransportError,
)
from melisma.fleets.judge import (
    MOST_SHARDS,
    accepted,
    believed,
    clipped_bid,
    failed,
    is_to_blame,
    refused,
    time_within,
    wrong_address,
    wrong_bid,
    wrong_gradient,
    wrong_ready,
    wrong_samples,
    wrong_size,
    wrong_slot,
    wrong_slots_update,
    wrong_speeds,
    wrong_update,
)
from melisma.fleets.messages import (
    Gradient,
    Ready,
    SlotDone,
    Speeds,
    StateSpeeds,
    TaskSpec,
    TrainRequest,
    Update,
)
from melisma.fleets.moves import Move
from melisma.fleets.protocols import NOT_THERE
from melisma.learning.settings import Late, Training
from melisma.runs import records

UPDATE = Update(
    cycle=1,
    parameters={"w": torch.ones(2)},
    samples=4,
    batches=5,
    loss=0.5,
    halted=True,
)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (RemoteError("ValueError", "no"), True),
        (ProtocolError("nonsense"), True),
        (RemoteError("Unprepared", "restarted"), False),
        (RemoteError("ShortOfMemory", "out of memory"), False),
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


def test_a_speed_that_no_device_has_buys_nothing() -> None:
    # 10 µs for a batch of 32 at least.
    claimed = Speeds(step_s=1e-9, sample_s=0.0, fixed_s=0.0)
    assert believed(claimed, 32).step_s == 1e-5 / 32
    honest = Speeds(step_s=1e-4, sample_s=0.0, fixed_s=0.0)
    assert believed(honest, 32) == honest


@pytest.mark.parametrize("name", ["step_s", "sample_s", "fixed_s"])
@pytest.mark.parametrize("value", [None, "x", True, -1.0, 1e308, float("nan")])
def test_no_field_of_a_delay_law_is_believed_blindly(name: str, value: Any) -> None:
    speeds = Speeds(step_s=1e-3, sample_s=0.0, fixed_s=0.0)
    msgspec.structs.force_setattr(speeds, name, value)
    assert f"{name} = {value!r} s cannot be" == wrong_speeds(speeds)


def test_bids_are_whole_numbers_within_reason() -> None:
    assert wrong_bid(3) == ""
    assert wrong_bid("many") == "'many' is not a number of shards"
    for bid in (True, -1, 2.0, None, float("nan")):
        assert wrong_bid(bid)
    assert [clipped_bid(bid) for bid in (-5, 7, 1 << 62)] == [0, 7, MOST_SHARDS]


def test_times_that_cannot_be_are_taken_for_the_latest() -> None:
    reported = [None, -1.0, 0.5, 3.0, float("nan")]
    assert [time_within(0.0, t, 2.0) for t in reported] == [2.0, 2.0, 0.5, 2.0, 2.0]


@pytest.mark.parametrize(
    ("downloaded_s", "trained_s", "ordered"),
    [
        (0.5, 1.0, (0.5, 1.0)),
        (1.0, 0.5, (1.0, 2.0)),
        (-1.0, 0.5, (2.0, 2.0)),
        (5.0, 1.0, (2.0, 2.0)),
        (None, None, (2.0, 2.0)),
    ],
)
def test_times_of_a_report_are_in_order(
    downloaded_s: float | None, trained_s: float | None, ordered: tuple[float, float]
) -> None:
    update = msgspec.structs.replace(
        UPDATE, downloaded_s=downloaded_s, trained_s=trained_s
    )
    (report,) = accepted(0, update, 2.0).reports
    assert (report.downloaded_s, report.trained_s) == ordered
    assert 0 <= report.downloaded_s <= report.trained_s <= report.uploaded_s


WRONG: dict[str, list[Any]] = {
    "samples": [True, 1.0, None, -1, 5, 2**63],
    "batches": [True, 1.0, None, -1, 0, 9, 2**63],
    "halted": [None, 1, "yes"],
    "loss": [None, "x", []],
    "trained_s": ["x", float("nan"), float("inf"), True],
    "spent_j": ["x", float("nan"), float("inf"), True, -1.0, 1e300, 2**2000],
    "parameters": [None, [], {"w": 1}, {"w": "x"}],
    "cycle": [None, 2, "1"],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]]
)
def test_no_field_of_an_update_is_believed_blindly(field: str, value: Any) -> None:
    request = TrainRequest(
        task="t",
        cycle=1,
        keys=[],
        samples=4,
        steps=2,
        deadline_s=1.0,
        late=Late.HALT,
    )
    wrong = msgspec.structs.replace(UPDATE)
    assert wrong_update(wrong, request, UPDATE.parameters) == ""
    assert wrong_slots_update(wrong, 1, 4, UPDATE.parameters, steps=2) == ""
    msgspec.structs.force_setattr(wrong, field, value)
    assert wrong_update(wrong, request, UPDATE.parameters)
    assert wrong_slots_update(wrong, 1, 4, UPDATE.parameters, steps=2)


def spec(*, federated: bool = False, private: bool = False) -> TaskSpec:
    return TaskSpec(
        task="t",
        model="m",
        seed=0,
        training=Training(),
        shard=1,
        federated=federated,
        private=private,
    )


@pytest.mark.parametrize("federated", [True, False])
@pytest.mark.parametrize("samples", [True, 0, -1, 2**63, 1.0, "x", 7, None])
def test_own_samples_are_counted_where_they_matter(
    federated: bool, samples: Any
) -> None:
    right = samples == 7 if federated else samples is None
    task = spec(federated=federated)
    assert (wrong_samples(samples, task) == "") is right
    assert (wrong_ready(Ready(measured=True, samples=samples), task) == "") is right


def test_speeds_are_told_where_they_are_asked_for_and_were_measured() -> None:
    speeds = Speeds(step_s=1e-3, sample_s=0.0, fixed_s=0.0)
    told, early = (Ready(measured=m, speeds=speeds) for m in (True, False))
    assert wrong_ready(told, spec()) == ""
    for answer, task in ((told, spec(private=True)), (early, spec())):
        assert wrong_ready(answer, task) == "speeds that nobody asked for"


@pytest.mark.parametrize(
    "address", [b"x", 7, True, "x" * 1001, "melisma://\x1b[31m", "a\u202eb", ["x"]]
)
def test_an_address_is_a_short_plain_text(address: object) -> None:
    assert wrong_address(address) == "not an address"
    assert wrong_address(None) == wrong_address("melisma://TOKEN@host:1#f") == ""


def test_what_learners_say_is_one_short_line() -> None:
    odd = "\x1b]0;owned\x07\u202e\r\n" * 1000
    error = RemoteError("ValueError", odd)
    for lost in (failed(0, error, 1.0), refused(0, odd, 1.0)):
        assert lost.reason.isprintable()
        assert len(lost.reason) <= 200


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
        ([0.0, 0.0, 0.0], "not a gradient"),
    ],
)
def test_a_gradient_of_something_else_is_refused(vector: Any, why: str) -> None:
    gradient = Gradient(cycle=1, vector=vector, downloaded_s=0.0, trained_s=0.0)
    assert wrong_gradient(gradient, 1, 3, wide=False) == why
    assert wrong_gradient(gradient, 2, 3, wide=False) == "a gradient of cycle 1"


@pytest.mark.parametrize("name", ["downloaded_s", "trained_s"])
@pytest.mark.parametrize("value", [None, "x", True, float("nan"), float("inf")])
def test_no_time_of_a_gradient_is_believed_blindly(name: str, value: Any) -> None:
    gradient = Gradient(
        cycle=1, vector=np.zeros(3, np.float32), downloaded_s=0.0, trained_s=0.0
    )
    msgspec.structs.force_setattr(gradient, name, value)
    assert wrong_gradient(gradient, 1, 3, wide=False) == f"a time of {value} s"


def test_a_slot_is_judged_by_its_move() -> None:
    move = Move(collected=5, kept=2, sent={"b": 3}, arrived={"c": 1})
    done = SlotDone(slot=1, trained=3, delivered={"b": 3}, directly=[])
    assert wrong_slot(done, 1, move) == ""
    assert wrong_slot(done, 2, move) == "not an answer of this slot"
    many = SlotDone(slot=1, trained=4, delivered={}, directly=[])
    assert wrong_slot(many, 1, move) == "4 samples claimed of 3 given"
    wrong: dict[str, list[Any]] = {
        "delivered": [{"b": True}, {"x": 1}, {"b": -3}, None],
        "directly": [["x"], [None], [[]], "b", None],
        "trained": [True, 1.0, None, "x"],
    }
    for field, values in wrong.items():
        for value in values:
            other = msgspec.structs.replace(done)
            msgspec.structs.force_setattr(other, field, value)
            assert wrong_slot(other, 1, move)


def test_a_gradient_is_no_larger_than_its_samples_explain() -> None:
    vector = np.full(3, 1e9)
    gradient = Gradient(cycle=1, vector=vector, downloaded_s=0.0, trained_s=0.0)
    why = wrong_gradient(gradient, 1, 3, wide=True, weight=10.0)
    assert why == "a gradient too large for any model"
    assert wrong_gradient(gradient, 1, 3, wide=True, weight=1e4) == ""


@pytest.mark.parametrize(
    ("value", "why"),
    [(2e6, ""), (3.1e6, "parameters of up to 3.1e+06"), (3e38, "parameters of up to")],
)
def test_an_update_leads_to_no_other_world(value: float, why: str) -> None:
    sent = {"w": torch.tensor([-3.0, 0.0]), "v": torch.zeros(0)}
    update = {"w": torch.tensor([0.0, -value]), "v": torch.zeros(0)}
    assert wrong_size(update, sent).startswith(why)
    assert bool(wrong_size(update, sent)) is bool(why)
    assert wrong_size({"w": torch.tensor([torch.nan, 1e9])}, sent) == ""


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


def test_an_error_of_a_learner_is_one_short_line_in_log_and_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Shouting(Steady):
        def bid(self, task: str, deadline_s: float, steps: int) -> int:
            raise DataError("\x1b]0;owned\x07\u202e\r\n" * 1000)

    job = changed(scheme="dab", cycles=1)
    happened = live(job, tmp_path, [Steady(name="a"), Shouting(name="b")])
    (dropped,) = of(records.Dropped, happened)
    (said,) = (text for text in caplog.messages if text.startswith("b does not bid"))
    for text in (dropped.reason, said):
        assert "owned" in text
        assert text.isprintable()
        assert len(text) <= 202  # its name before 200 characters


STATE: dict[str, Any] = {"step_s": 1.0, "sample_s": 0.0, "fixed_s": 0.0}


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ([StateSpeeds(probability=1.0, **STATE)], ""),
        ([StateSpeeds(probability=0.5, **STATE)], "that sum to 0.5"),
        ([StateSpeeds(probability=float("nan"), **STATE)], "of probability nan"),
        ([StateSpeeds(probability=1.0, **STATE | {"step_s": 0.0})], "step_s = 0.0 s"),
        (["idle"], "not the delay law of a state"),
        ("idle", "not a list of up to 64 states"),
        ([StateSpeeds(probability=1 / 65, **STATE)] * 65, "not a list of up to 64"),
    ],
)
def test_states_that_cannot_be_are_named(states: Any, reason: str) -> None:
    found = wrong_speeds(Speeds(**STATE, states=states))
    assert (reason in found) if reason else not found
    assert "is no seed" in wrong_speeds(Speeds(**STATE, owner=-1))


@pytest.mark.parametrize("spread", [-0.1, 10.1, float("nan"), float("inf"), "wide"])
@pytest.mark.parametrize("which", ["compute_spread", "link_spread"])
def test_a_spread_that_cannot_be_is_named(which: str, spread: Any) -> None:
    assert "a spread of" in wrong_speeds(Speeds(**STATE, **{which: spread}))
    fine: dict[str, Any] = {which: 0.3}
    assert not wrong_speeds(Speeds(**STATE, **fine))
