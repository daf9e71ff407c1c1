"""Data and models on the accelerator that is to train them."""

from dataclasses import replace

import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.data import Dataset


def placed(data: Dataset, model: nn.Module, device: str) -> tuple[Dataset, nn.Module]:
    """Move both to ``device``; ConfigError if there is none of that name."""
    if device == "cpu":
        return data, model
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device {device!r} cannot be used: {reason}: use 'cpu', or 'cuda' where "
            "torch is a CUDA build and sees a GPU"
        ) from error
    # What is called fp32 is fp32: convolutions would round to ten bits.
    torch.backends.cudnn.allow_tf32 = False
    tensors = ("train_x", "train_y", "test_x", "test_y")
    moved = {name: getattr(data, name).to(device) for name in tensors}
    return replace(data, **moved), model.to(device)
