import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Busy cores make a second thread far slower than none."""
    torch.set_num_threads(1)
