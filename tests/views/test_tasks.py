from typing import Any

import pytest

from melisma.jobs.schema import Job
from melisma.runs.records import (
    ACCURACY,
    Allocated,
    Downloaded,
    Evaluated,
    Halted,
    Metrics,
    Record,
    Trained,
    Uploaded,
)
from melisma.units import Deadline
from melisma.views.tasks import service, together


def learner_cycle(
    task: str, cycle: int, learner: str, *, back_s: float, batches: int, halted: bool
) -> list[Record]:
    """40 samples in batches of 10, two passes: 8 batches, for a price of 3."""
    at: Any = {"task": task, "cycle": cycle, "learner": learner}
    done: Any = {"samples": 40, "batches": batches, "loss": 0.0}
    kind = Halted if halted else Trained
    return [
        Allocated(time_s=0.0, samples=40, steps=2, predicted_s=1.0, cost=3.0, **at),
        Downloaded(time_s=0.5, **at),
        kind(time_s=back_s - 0.1, **done, **at),
        Uploaded(time_s=back_s, **at),
    ]


RECORDS = [
    *learner_cycle("a", 1, "x", back_s=4.0, batches=8, halted=False),
    *learner_cycle("a", 1, "y", back_s=8.0, batches=8, halted=False),
    *learner_cycle("b", 1, "z", back_s=9.5, batches=6, halted=True),
]


def test_figures_are_means_over_cycles_of_all_tasks() -> None:
    how = service(RECORDS, {"a": 20.0, "b": 10.0}, {"a": 10, "b": 10})
    # Who halts counts until its deadline of 10 s.
    assert how.time_s == pytest.approx((8.0 + 10.0) / 2)
    assert how.task_satisfaction == 0.5
    assert how.learner_satisfaction == pytest.approx(2 / 3)
    assert how.fulfilment == pytest.approx((1.0 + 6 / 8) / 2)
    assert how.drop == pytest.approx(2 / 24)
    assert how.occupancy == pytest.approx(((4 / 8 + 1) / 2 + 1) / 2)
    assert how.cost == pytest.approx(6.0 + 3.0)


@pytest.mark.parametrize(("batch", "share"), [(10, 6 / 8), (5, 6 / 16)])
def test_batches_are_of_the_size_that_the_run_says(batch: int, share: float) -> None:
    first: dict[str, Any] = {"time_s": 0.0, "task": "b", "cycle": 1}
    metrics = Metrics(metrics=(ACCURACY,), batch=batch, **first)
    last = Evaluated(metrics={"accuracy": 0.5}, loss=1.0, **first)
    job = Job(name="b", deadline=Deadline(10.0))
    how = together([job], [metrics, *RECORDS, last]).service
    assert how.fulfilment == pytest.approx(share)
