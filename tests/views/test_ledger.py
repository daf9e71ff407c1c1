"""Tables from records; the arithmetic is beside each claim."""

from collections.abc import Callable
from typing import Any

import pytest

from melisma.runs import records
from melisma.runs.records import Record
from melisma.views import ledger
from melisma.views.incidents import Incident, gravest, incidents
from melisma.views.ledger import LearnerCycle


def at(time_s: float, kind: Callable[..., Record], cycle: int = 1, **facts: Any) -> Any:
    return kind(time_s=time_s, task="t", cycle=cycle, **facts)


def order(name: str, time_s: float = 10.0, **facts: Any) -> Any:
    given: dict[str, Any] = {"samples": 80, "steps": 3, "predicted_s": 1.0, **facts}
    return at(time_s, records.Allocated, learner=name, **given)


def back(name: str, *times_s: float, halted: bool = False, cycle: int = 1) -> list[Any]:
    """A learner that downloaded, trained and uploaded at these times."""
    downloaded_s, trained_s, uploaded_s = times_s
    kind = records.Halted if halted else records.Trained
    work = {"learner": name, "samples": 60, "batches": 7, "loss": 0.5}
    return [
        at(downloaded_s, records.Downloaded, cycle, learner=name),
        at(trained_s, kind, cycle, **work),
        at(uploaded_s, records.Uploaded, cycle, learner=name),
    ]


def a_row(**facts: Any) -> LearnerCycle:
    given: dict[str, Any] = {"cycle": 1, "learner": "a", "samples": 80, "steps": 3}
    return LearnerCycle(**{**given, "predicted_s": None, **facts})


def test_times_count_from_the_order() -> None:
    # Ordered at 10 s; 10.25 − 10 = 0.25, 11 − 10 = 1, 11.25 − 10 = 1.25.
    (row,) = ledger.learner_cycles([order("a"), *back("a", 10.25, 11.0, 11.25)])
    assert (row.downloaded_s, row.trained_s, row.measured_s) == (0.25, 1.0, 1.25)
    assert (row.samples, row.trained, row.batches) == (80, 60, 7)
    assert (row.outcome, row.halted) == (ledger.COUNTED, False)


def test_who_keeps_its_times_is_measured_and_no_more() -> None:
    given = order("a", predicted_s=None)
    (row,) = ledger.learner_cycles([given, *back("a", 11.5, 11.5, 11.5, halted=True)])
    assert (row.downloaded_s, row.trained_s, row.measured_s) == (None, None, 1.5)
    assert row.halted
    assert row.off_percent is None


def test_every_outcome_has_its_words() -> None:
    happened = [
        *(order(name) for name in ("counts", "refused", "not back")),
        order("idle", samples=0, steps=0),
        *back("counts", 10.1, 10.2, 10.3),
        *back("refused", 10.1, 10.2, 10.3),
        at(10.3, records.Checked, learner="refused", distance=0.9),
        at(10.3, records.Dropped, learner="refused", reason="false", offence=True),
    ]
    rows = {row.learner: row for row in ledger.learner_cycles(happened)}
    outcomes = {name: row.outcome for name, row in rows.items()}
    assert outcomes == {
        "counts": ledger.COUNTED,
        "refused": "false",
        "not back": ledger.UNDER_WAY,
        "idle": ledger.SITS_OUT,
    }
    assert (rows["refused"].offence, rows["refused"].distance) == (True, 0.9)


def test_options_are_told_and_what_they_save_is_added() -> None:
    happened = [
        order("a", option="int8", saved_bytes=300),
        order("a", cycle=2, option="int4", saved_bytes=350),
        order("a", cycle=3, samples=0, steps=0, option="fp32"),
        order("b"),
    ]
    rows = ledger.learner_cycles(happened)
    assert [row.option for row in rows] == ["int8", "", "int4", "fp32"]
    a, b = ledger.totals(rows)
    # Of its last cycle with work.
    assert (a.option, a.saved_bytes) == ("int4", 650)
    assert (b.option, b.saved_bytes) == ("", 0)


@pytest.mark.parametrize(
    ("predicted_s", "measured_s", "off"),
    # |1.0 / 1.25 − 1| = 20 %; |1.5 / 1.25 − 1| = 20 %; the rest is not known.
    [(1.0, 1.25, 20.0), (1.5, 1.25, 20.0), (None, 1.25, None), (1.0, None, None)],
)
def test_a_prediction_is_off_by_a_share_of_the_measured_time(
    predicted_s: float | None, measured_s: float | None, off: float | None
) -> None:
    row = a_row(predicted_s=predicted_s, measured_s=measured_s)
    assert row.off_percent == pytest.approx(off)


def test_a_learners_means_are_over_cycles_in_which_it_had_work() -> None:
    # Samples (80 + 40) / 2, measured (1 + 2) / 2; off |1/1 − 1| = 0 and |1/2 − 1| = 50.
    rows = [
        a_row(predicted_s=1.0, measured_s=1.0, trained=80),
        a_row(samples=40, predicted_s=1.0, measured_s=2.0, trained=20, halted=True),
        a_row(samples=0, steps=0, outcome=ledger.SITS_OUT),
    ]
    (total,) = ledger.totals(rows)
    assert (total.cycles, total.samples, total.trained) == (2, 60.0, 50.0)
    assert (total.predicted_s, total.measured_s, total.off_percent) == (1.0, 1.5, 25.0)
    assert (total.halted, total.lost, total.checked) == (1, 0, 0)


def test_a_learner_that_never_came_back_has_no_means() -> None:
    lost = a_row(predicted_s=1.0, outcome="gone", dropped_s=2.0, offence=True)
    (total,) = ledger.totals([lost])
    assert (total.measured_s, total.off_percent, total.trained) == (None, None, None)
    assert (total.lost, total.offences) == (1, 1)


def test_a_cycle_that_was_cut_short_has_no_metrics() -> None:
    happened = [
        order("a"),
        *back("a", 10.1, 10.2, 10.5),
        at(
            12.0,
            records.Aggregated,
            learners=1,
            samples=60,
            cycle_s=0.5,
            max_staleness=0,
            mean_staleness=0.0,
            truancy=0.0,
            utilisation=0.25,
        ),
        at(12.0, records.Evaluated, metrics={"mae": 0.9}, loss=None),
        at(13.0, records.Allocated, 2, learner="a", samples=1, steps=1, predicted_s=1),
    ]
    first, second = ledger.cycles(happened, ledger.learner_cycles(happened))
    assert (first.learners, first.counted, first.samples) == (1, 1, 60)
    assert (first.metrics, first.loss, first.off_percent) == ({"mae": 0.9}, None, 100.0)
    assert (second.learners, second.counted, second.metrics) == (1, 0, {})


def test_incidents_leave_out_who_was_there_from_the_start() -> None:
    happened = [
        at(0.0, records.Joined, learner="a"),
        at(1.0, records.Joined, 2, learner="b"),
        at(1.0, records.Left, 2, learner="a"),
        at(1.5, records.Checked, 2, learner="b", distance=0.93),
        at(1.5, records.Dropped, 2, learner="b", reason="false", offence=True),
        at(2.0, records.Dropped, 2, learner="c", reason="not there"),
        at(3.0, records.Expelled, 2, learner="b", reason="3 were refused"),
    ]
    assert [(i.learner, i.what, i.detail) for i in incidents(happened)] == [
        ("b", "joined", ""),
        ("a", "left", ""),
        ("b", "checked", "distance 0.93"),
        ("b", "refused", "false"),
        ("c", "dropped", "not there"),
        ("b", "expelled", "3 were refused"),
    ]


def test_of_many_incidents_the_gravest_stay_in_order() -> None:
    kinds = ("checked", "dropped", "joined", "expelled", "checked")
    happened = [
        Incident(time_s=float(i), cycle=1, learner="a", what=what)
        for i, what in enumerate(kinds)
    ]
    shown = gravest(happened, 3)
    assert [incident.what for incident in shown] == ["dropped", "joined", "expelled"]


def test_late_is_who_halted_or_was_not_there_in_time() -> None:
    happened = [
        *(order(name) for name in ("early", "halted", "over", "gone", "false")),
        *back("early", 10.1, 10.2, 10.3),
        *back("halted", 10.1, 10.2, 10.3, halted=True),
        *back("over", 10.1, 10.2, 10.3)[:-1],
        at(12.0, records.Uploaded, learner="over", late=True),
        at(12.0, records.Dropped, learner="gone", reason="not there", late=True),
        at(12.0, records.Dropped, learner="false", reason="false"),
    ]
    rows = {row.learner: row.late for row in ledger.learner_cycles(happened)}
    assert [name for name, late in rows.items() if late] == ["halted", "over", "gone"]


def test_a_reserve_is_the_part_of_the_plan_that_is_not_expected() -> None:
    # 1 − 0.6/0.8 = 0.25 and 1 − 0.5/1 = 0.5; the third has no plan with care.
    rows = [
        a_row(predicted_s=0.6, planned_s=0.8),
        a_row(predicted_s=0.5, planned_s=1.0, late=True),
        a_row(predicted_s=0.5),
    ]
    assert [row.reserve for row in rows] == [pytest.approx(0.25), 0.5, None]
    (total,) = ledger.totals(rows)
    assert total.late == 1
    assert total.reserve == pytest.approx(0.375)
