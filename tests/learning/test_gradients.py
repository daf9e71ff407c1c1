import pytest
import torch

from melisma.errors import DataError
from melisma.learning.gradients import Descent


def test_a_checkpoint_without_the_velocity_is_of_another_job() -> None:
    descent = Descent(torch.nn.Linear(2, 1), rate=0.1, momentum=0.5)
    descent.restore(descent.state())
    wrong = descent.state() | {"velocity/bias": torch.zeros(2)}
    for state in ({}, wrong):
        with pytest.raises(DataError, match="it is of another job"):
            descent.restore(state)
