import hypothesis
import pytest
import torch

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Busy cores make a second thread far slower than none."""
    torch.set_num_threads(1)
