"""Memory that does not suffice to train: recognised, and what would fit in it."""

import copy

import numpy as np
import torch
from torch import nn

from melisma.learning.samples import Samples
from melisma.learning.settings import Training
from melisma.learning.training import train

#: What torch says where a device has no class of errors for it: CPUs, and MPS.
_WORDS = ("DefaultCPUAllocator: ", "out of memory")


def is_short(error: BaseException) -> bool:
    """Return whether an error says that memory, of any device, did not suffice."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in _WORDS)


def largest_batch(model: nn.Module, samples: Samples, training: Training) -> int:
    """Return how many samples of a batch fit: the half, a quarter, …; 0 if none does.

    Copies of the model take one step each. The model is left as it is, but for its
    gradients, which are dropped.
    """
    model.zero_grad(set_to_none=True)
    size = min(training.batch, len(samples)) // 2
    while size and not _fits(model, samples, training, size):
        size //= 2
    return size


def _fits(model: nn.Module, samples: Samples, training: Training, size: int) -> bool:
    release(model)
    try:
        with torch.random.fork_rng(devices=[]):
            train(copy.deepcopy(model), samples, np.arange(size)[None], training)
    except (MemoryError, RuntimeError, ValueError):  # batch norm takes no single sample
        return False
    return True


def release(model: nn.Module) -> None:
    """Give memory back that torch holds in reserve on the model's device."""
    device = next((value.device for value in model.parameters()), torch.device("cpu"))
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()
