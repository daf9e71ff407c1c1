import numpy as np
import pytest
import torch
from tests.fleets.fleets import fleet_of, law, task_of

from melisma.algorithms.log import OFFENCES, CycleLog
from melisma.algorithms.state import RunState
from melisma.algorithms.task import Plan
from melisma.fleets.protocols import Report, Updates
from melisma.runs.records import Dropped, Evaluated, Expelled, Record
from melisma.system.problem import Allocation


def test_who_takes_over_the_name_of_an_expelled_learner_starts_anew() -> None:
    offence = Dropped(
        time_s=1.0, task="t", cycle=1, learner="pi", reason="NaN", offence=True
    )
    expelled = Expelled(time_s=1.0, task="t", cycle=1, learner="pi", reason="NaN")
    past: list[Record] = [*[offence] * OFFENCES, expelled, offence]
    state = RunState(past)
    assert state.offences["pi"] == 1
    assert state.expelled == {"pi": "NaN"}


@pytest.mark.parametrize("loss", [2.0, None])
def test_nobody_is_charged_for_training_a_broken_model(loss: float | None) -> None:
    before = Evaluated(
        time_s=1.0, task="t", cycle=1, metrics={"accuracy": 0.1}, loss=loss
    )
    noted: list[Record] = []
    one = fleet_of(law([0.1], [0.0], [0.0]))
    log = CycleLog(task_of("eta", 10.0), one, noted.append, RunState([before]), 2)
    allocation = Allocation(samples=np.array([4]), steps=np.array([1]))
    log.allocated(Plan(allocation, predicted_s=None))
    report = Report(
        learner=0,
        downloaded_s=0.1,
        trained_s=0.2,
        uploaded_s=0.3,
        samples=4,
        batches=1,
        loss=0.5,
        halted=False,
    )
    log.arrived(Updates([report], {"w": torch.full((1, 2), torch.nan)}), [0])
    (dropped,) = [record for record in noted if isinstance(record, Dropped)]
    assert dropped.reason == "parameters are not finite"
    assert dropped.offence is (loss is not None)
