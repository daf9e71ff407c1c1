"""Coded training on batteries, live: learners in this process, over real sockets."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.algorithms.test_coded_live import JOB, assert_exact
from tests.fleets.learners import Steady, live, of

from melisma.fleets.messages import Gradient, GradientRequest
from melisma.jobs.schema import Job
from melisma.jobs.transmission_table import TransmissionTable
from melisma.learner.source import Caller
from melisma.runs import records
from melisma.runs.records import Record

#: An even share of 100 samples takes a steady learner 1 s, so 5 J of 20 J.
TABLE = TransmissionTable(battery=20.0, start=12.0, harvest=40.0, slot=0.05)  # type: ignore[arg-type]


def powered(**changes: Any) -> Job:
    return msgspec.structs.replace(
        JOB, transmission=TABLE, channels=2, code="hetero", **changes
    )


def check_books(happened: list[Record], start_j: float) -> list[Any]:
    """Batteries are never below zero, and each joule is accounted for."""
    rows = of(records.Powered, happened)
    before: dict[str, float] = {}
    for row in rows:
        assert 0 <= row.lowest_j <= row.battery_j <= float(TABLE.battery) + 1e-6
        spent_j = row.computing_j + row.sending_j
        end_j = before.get(row.learner, start_j) + row.stored_j - spent_j
        assert row.battery_j == pytest.approx(end_j, abs=1e-6)
        before[row.learner] = row.battery_j
    return rows


def test_six_workers_with_batteries_take_the_steps_of_plain_descent(
    tmp_path: Path,
) -> None:
    job = powered(cycles=2)
    happened = live(job, tmp_path, [Steady(name=name) for name in "abcdef"])
    assert_exact(job, tmp_path, happened)
    rows = check_books(happened, float(TABLE.start or 0.0))
    assert len({row.learner for row in rows}) >= 5
    assert all(row.computing_j > 0 and row.sending_j > 0 for row in rows)


@pytest.mark.slow
def test_a_liar_about_its_battery_is_refused_and_decoded_around(
    tmp_path: Path,
) -> None:
    class Liar(Steady):
        def gradient(self, request: GradientRequest, caller: Caller) -> Gradient:
            told = super().gradient(request, caller)
            assert told.charge is not None
            false = msgspec.structs.replace(told.charge, battery_j=19.0)
            return msgspec.structs.replace(told, charge=false)

    job = powered(cycles=2)
    learners = [Liar(name="a"), *(Steady(name=name) for name in "bcd")]
    happened = live(job, tmp_path, learners)
    assert_exact(job, tmp_path, happened)
    assert "a" not in {row.learner for row in of(records.Powered, happened)}
    reasons = {r.reason for r in of(records.Dropped, happened) if r.offence}
    assert all("books are wrong" in reason for reason in reasons)


@pytest.mark.slow
def test_batteries_last_over_a_run_that_was_cut_short(tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def cut(record: Record) -> None:
        if isinstance(record, records.Allocated) and record.cycle == 3:
            raise Cut

    job = powered(cycles=4)
    with pytest.raises(Cut):
        live(job, tmp_path, [Steady(name=name) for name in "abcd"], cut)
    # Other processes, with batteries that know nothing of what was before.
    happened = live(job, tmp_path, [Steady(name=name) for name in "abcd"])
    assert_exact(job, tmp_path, happened)
    check_books(happened, float(TABLE.start or 0.0))
