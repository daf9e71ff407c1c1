"""Energy in live runs: planned by the job's profile, measured by times or sensors."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fleets.learners import Steady, changed, live, of

from melisma.algorithms.spending import UNKNOWN
from melisma.jobs.energy_table import PowerTable
from melisma.jobs.schema import Job, LearnersTable
from melisma.runs import records
from melisma.units import (
    BytesPerSecond,
    Deadline,
    Joules,
    SamplesPerSecond,
    Seconds,
    Watts,
)


class Counter:
    """A meter that counts a joule each time it is read."""

    def __init__(self) -> None:
        self.read = 0

    def spent_j(self) -> float:
        self.read += 1
        return float(self.read)


def job(scheme: str = "energy-most", **changes: Any) -> Job:
    """Learners ``a`` and ``b``, of which the second draws a tenth."""
    learners = tuple(
        LearnersTable(
            name=name,
            rate=SamplesPerSecond(1000),
            bandwidth=BytesPerSecond(1e6),
            power=PowerTable(computing=Watts(watts), sending=Watts(1.0)),
        )
        for name, watts in (("a", 50.0), ("b", 5.0))
    )
    usual: dict[str, Any] = {
        "cycles": 1,
        "samples": 200,
        "steps": 1,
        "learners": learners,
    }
    usual |= {"deadline": Deadline(60.0), "scheme": scheme}
    return changed(**(usual | changes))


def test_the_frugal_learner_works_and_what_it_took_is_counted(tmp_path: Path) -> None:
    happened = live(job(), tmp_path, [Steady(name="a"), Steady(name="b")])
    (uploaded,) = of(records.Uploaded, happened)
    (trained,) = of(records.Trained, happened)
    (downloaded,) = of(records.Downloaded, happened)
    (order,) = [r for r in of(records.Allocated, happened) if r.samples]
    assert uploaded.learner == "b"
    computing_s = trained.time_s - downloaded.time_s
    sending_s = uploaded.time_s - order.time_s - computing_s
    assert uploaded.spent_j == pytest.approx(5.0 * computing_s + sending_s)
    assert order.predicted_j is not None


def test_a_sensor_of_the_learner_counts_in_place_of_that(tmp_path: Path) -> None:
    learners = [Steady(name=name, sensor=Counter()) for name in ("a", "b")]
    happened = live(job("csa"), tmp_path, learners)
    spent = [r.spent_j for r in of(records.Uploaded, happened)]
    assert len(spent) == 2
    # Whole readings, as the counter has it, unless they are more than is believed.
    assert any(j is not None and j >= 1 and j == int(j) for j in spent)


def test_who_is_not_in_the_job_sits_out_and_hears_why(tmp_path: Path) -> None:
    happened = live(job(), tmp_path, [Steady(name="a"), Steady(name="stranger")])
    orders = {r.learner: r for r in of(records.Allocated, happened)}
    assert orders["stranger"].samples == 0
    assert orders["stranger"].why == UNKNOWN
    assert orders["a"].samples == 200


def test_an_energy_is_kept_by_real_learners(tmp_path: Path) -> None:
    limited = job(energy=Joules(6.0))
    happened = live(limited, tmp_path, [Steady(name="a"), Steady(name="b")])
    predicted = [r.predicted_j or 0.0 for r in of(records.Allocated, happened)]
    # A shard of the frugal one takes 2.5 J and 0.05 J, the model 0.1 J: two fit.
    assert predicted == pytest.approx([0.0, 5.2])


@pytest.mark.slow
def test_a_live_cycle_waits_until_a_battery_suffices(tmp_path: Path) -> None:
    phone = PowerTable(
        computing=Watts(5.0),
        sending=Watts(1.0),
        battery=Joules(60.0),
        start=Joules(1.0),
        harvest=Watts(1.0),
        reclaim=Seconds(600.0),
    )
    powered = job("energy-least")
    one = msgspec.structs.replace(powered.learners[1], power=phone)
    alone = msgspec.structs.replace(powered, learners=(one,))
    happened = live(alone, tmp_path, [Steady(name="b")])
    (waited,) = of(records.Waited, happened)
    (order,) = of(records.Allocated, happened)
    assert "and batteries" in waited.reason
    assert order.samples == 200
    assert order.predicted_j is not None
    # It began as soon as there was enough, and looks once a second at most.
    assert waited.time_s < order.time_s
    assert -0.1 < 1.0 + order.time_s - order.predicted_j < 5.0
    assert order.risk == pytest.approx(1 - math.exp(-(order.predicted_s or 0.0) / 600))
