"""Jobs in which what travels is made smaller."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.jobs.small import small

from melisma.errors import ConfigError
from melisma.jobs.asynchronous_checks import ASYNCHRONOUS
from melisma.jobs.building import task_of, workload_of
from melisma.jobs.families import family_of
from melisma.jobs.options import wire_of
from melisma.jobs.schema import Job, WorkloadTable
from melisma.jobs.wire_table import WireTable
from melisma.launch import build
from melisma.learning.settings import Late
from melisma.runs import records
from melisma.units import Bytes, Deadline

SMALLER = WireTable(down="fp16", up="int8")
SHORT = Deadline(0.5)  #: so that some are late


def accuracy(job: Job) -> float:
    seen: list[float] = []

    def watch(record: records.Record) -> None:
        if isinstance(record, records.Evaluated):
            seen.append(record.metrics["accuracy"] or 0.0)

    build(job).run(None, watch)
    return seen[-1]


def test_a_cycle_is_planned_by_what_travels() -> None:
    plain = small(workload=WorkloadTable(model_size=Bytes(1e6)))
    task = task_of(plain)
    smaller = small(workload=plain.workload, wire=SMALLER)
    bits = [workload_of(j, task.model, task.data).model_bits for j in (plain, smaller)]
    # Two bytes down and one up, with a scale a block, in place of four and four.
    assert bits[0] == 8e6
    assert bits[1] / bits[0] == pytest.approx(3 / 8, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"late": Late.CARRY}, {"scheme": "async:fedbuff"}])
def test_an_order_takes_as_long_as_what_travels(changes: dict[str, Any]) -> None:
    jobs = (small(wire=wire, **changes) for wire in (WireTable(), SMALLER))
    plain, smaller = (asyncio.run(build(job).built.crew.law()) for job in jobs)
    assert smaller.fixed_s == pytest.approx(3 / 8 * plain.fixed_s, rel=0.02)
    assert np.array_equal(smaller.step_s, plain.step_s)


def test_models_are_made_smaller_and_still_learn() -> None:
    plain, smaller = (small(cycles=8, wire=wire) for wire in (WireTable(), SMALLER))
    assert accuracy(smaller) == pytest.approx(accuracy(plain), abs=0.1)


RESUMED: list[tuple[str, dict[str, Any]]] = [
    ("int4", {}),
    ("powersgd 2", {}),
    ("top-k 5 %", {"late": Late.CARRY, "noise": 2.0, "deadline": SHORT}),
    ("top-k 5 %", {"scheme": "async:fedbuff", "noise": 0.3}),
    *(("powersgd 2", {"scheme": scheme}) for scheme in ASYNCHRONOUS),
]


@pytest.mark.parametrize(
    ("up", "changes"),
    [
        ("top-k 5 %", {}),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in RESUMED),
    ],
)
def test_a_run_that_was_stopped_goes_on_with_what_was_left_out(
    up: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    job = small(cycles=5, wire=WireTable(down="int8", up=up), **changes)
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed
    if job.late == Late.CARRY:
        assert all(b'"carried"' in lines for lines in whole.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"late": Late.CARRY}, {"scheme": "async:fedasync"}]
)
def test_who_works_in_its_own_time_learns_from_less_too(
    changes: dict[str, Any],
) -> None:
    plain, smaller = (
        small(cycles=8, wire=w, **changes) for w in (WireTable(), SMALLER)
    )
    assert accuracy(smaller) == pytest.approx(accuracy(plain), abs=0.1)


def test_a_codec_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"int9.*int8"):
        wire_of(small(wire=WireTable(up="int9")))


def test_a_model_is_not_sent_in_parts() -> None:
    with pytest.raises(ConfigError, match="leaves out most of the model"):
        wire_of(small(wire=WireTable(down="top-k 1 %")))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job(scheme="coded", wire=SMALLER), "whose updates are averaged: leave it out"),
        (small(checks=0.1, wire=SMALLER), "leave one of them out"),
    ],
)
def test_where_models_travel_as_they_are_it_is_refused(job: Job, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        family_of(job).checked(job)
