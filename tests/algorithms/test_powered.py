"""Coded training on batteries: later, and the same steps."""

from math import log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.algorithms.test_coded import assert_same, build, plainly, ran

from melisma.errors import ConfigError
from melisma.jobs.files import job_of, load
from melisma.jobs.schema import Job
from melisma.jobs.transmission_table import TransmissionTable
from melisma.runs.records import Aggregated, Powered, Record

EXAMPLE = load(Path(__file__).parents[2] / "examples" / "transmission.toml")
TABLE = EXAMPLE.transmission or TransmissionTable()


def job(**changes: Any) -> Job:
    """The example, whose table may be changed by keys of its own."""
    own = {key: changes.pop(key) for key in TABLE.__struct_fields__ if key in changes}
    table = msgspec.structs.replace(TABLE, **own)
    return msgspec.structs.replace(EXAMPLE, transmission=table, **changes)


def seconds(happened: list[Record]) -> float:
    return sum(r.cycle_s for r in happened if isinstance(r, Aggregated))


@pytest.mark.parametrize(
    "code", ["two-stage", pytest.param("hetero", marks=pytest.mark.slow)]
)
def test_ten_workers_that_harvest_take_the_steps_of_plain_descent(code: str) -> None:
    ready = build(job(code=code, cycles=4))
    plain = plainly(ready.task, ready.job.training)
    ours, happened = ran(ready)
    assert_same(ours, plain)
    merged = [r for r in happened if isinstance(r, Aggregated)]
    assert [r.error for r in merged] == [0.0] * 4
    rows = [r for r in happened if isinstance(r, Powered)]
    assert len(rows) == 40
    battery = {name: float(TABLE.start or 0.0) for name in ready.crew.learners}
    # H ≤ Vλ/ln 2 + 2: above the first part y is 0, and it is 2 at most.
    owed = TABLE.utility * TABLE.fairness / log(2) + 2
    drawn = []
    for row in rows:
        assert 0 <= row.lowest_j <= row.battery_j <= float(TABLE.battery)
        assert row.waiting <= 2
        assert row.owed <= owed
        # What was in it, and what was stored, less what was spent.
        spent_j = row.computing_j + row.sending_j
        end_j = battery[row.learner] + row.stored_j - spent_j
        assert row.battery_j == pytest.approx(end_j, abs=1e-9)
        assert 0 <= row.stored_j <= row.harvested_j
        drawn.append(row.lowest_j < battery[row.learner])
        battery[row.learner] = row.battery_j
    assert sum(row.waited_s for row in rows) > 0
    assert any(drawn)  # some had less for a while than as a cycle began


def test_a_cycle_lasts_longer_with_less_sun_and_fewer_channels() -> None:
    def lasted(**changes: Any) -> float:
        ready = build(job(cycles=4, code="uncoded", stragglers=0, **changes))
        ready.crew.learning = False
        return seconds(ran(ready)[1])

    sunny = lasted(harvest=20.0, channels=None, start=None)
    assert lasted(harvest=20.0, channels=1, start=None) > sunny + 4 * 0.1
    assert lasted(harvest=20.0, channels=None, start=0.0) > sunny + 0.5
    assert lasted(harvest=0.5, channels=None, start=0.0) > 10 * sunny


def test_with_power_for_all_an_iteration_is_as_without_batteries() -> None:
    plenty = {"battery": 1e4, "harvest": 100.0, "start": None, "slot": 0.002}
    times = []
    for table in (None, msgspec.structs.replace(TABLE, **plenty)):
        same = msgspec.structs.replace(
            EXAMPLE, cycles=2, code="uncoded", stragglers=0, channels=None
        )
        ready = build(msgspec.structs.replace(same, transmission=table))
        ready.crew.learning = False
        times.append(seconds(ran(ready)[1]))
    # A slot to begin with, one at the end of each part of the work: 2 ms each.
    assert times[0] <= times[1] <= times[0] + 2 * 4 * 0.002


def test_answers_that_come_at_once_are_decoded_one_after_the_other() -> None:
    plenty = {"harvest": 20.0, "start": None, "channels": None}
    times = []
    for decoding in (0.0, 0.5):
        ready = build(
            job(cycles=1, code="uncoded", stragglers=0, decoding=decoding, **plenty)
        )
        ready.crew.learning = False
        times.append(seconds(ran(ready)[1]))
    # The first of ten is there less than 2 s before the last.
    assert times[1] > times[0] + 10 * 0.5 - 2


def test_the_dark_is_survived_by_a_code_and_said() -> None:
    ready = build(job(cycles=1, harvest=0.0, start=0.0, deadline=30.0))
    with pytest.raises(Exception, match=r"none of 10 workers answered by the deadline"):
        ran(ready)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"batery": 1}, "unknown key in transmission 'batery'"),
        ({"battery": "5 W"}, "transmission.battery: unknown unit 'W'"),
        ({"battery": -1}, r"\[transmission\] battery_j is -1"),
        ({"start": "60 J"}, r"\[transmission\] a battery of 50.0 J starts with 60"),
        ({"law": "rain"}, "unknown law 'rain'"),
        ({"slot": 0}, "slot_s is 0: give a finite number above 0"),
    ],
)
def test_a_table_that_cannot_be_is_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job_of({"scheme": "coded", "transmission": table}, "job.toml")


def test_a_battery_too_small_for_the_workers_is_named() -> None:
    with pytest.raises(ConfigError, match="larger battery, or shorter slots"):
        build(job(battery=0.3, start=None))


def test_who_is_expelled_is_out_of_the_batteries_too() -> None:
    ready = build(job(cycles=2))
    ready.crew.learning = False
    ready.crew.expel("slow-2", "it was told to go")
    _, happened = ran(ready)
    rows = [r for r in happened if isinstance(r, Powered)]
    assert len(rows) == 18
    assert "slow-2" not in {row.learner for row in rows}


def test_other_families_have_no_batteries() -> None:
    with pytest.raises(ConfigError, match=r"\[transmission\] is of coded training"):
        build(Job(transmission=TransmissionTable()))


def test_without_a_table_nothing_of_it_is_recorded() -> None:
    ready = build(msgspec.structs.replace(EXAMPLE, transmission=None, cycles=1))
    ready.crew.learning = False
    assert not any(isinstance(r, Powered) for r in ran(ready)[1])
    assert np.isfinite(ready.crew.now_s())
