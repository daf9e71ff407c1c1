"""Data and models on the device that is to train them, and what it can compute."""

from dataclasses import replace

import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.data import Dataset
from melisma.learning.layers import is_chain
from melisma.learning.settings import Hardware, Precision


def placed(
    data: Dataset, model: nn.Module, hardware: Hardware
) -> tuple[Dataset, nn.Module]:
    """Move both to the device; ConfigError if it is absent or cannot train so."""
    device = _device(hardware.device)
    check_precision(hardware.precision, model, device)
    if device.type == "cpu":
        return data, model
    # What is called fp32 is fp32: convolutions would round to ten bits.
    torch.backends.cudnn.allow_tf32 = False
    tensors = ("train_x", "train_y", "test_x", "test_y")
    moved = {name: getattr(data, name).to(device) for name in tensors}
    return replace(data, **moved), model.to(device)


def check_precision(
    precision: Precision, model: nn.Module, device: torch.device
) -> None:
    """Raise ConfigError if ``device`` cannot train ``model`` in ``precision``."""
    if precision != Precision.BF16:
        return
    if not is_chain(model):
        raise ConfigError(
            "bf16 is for models that are an nn.Sequential of Conv2d, MaxPool2d, ReLU, "
            "Flatten and Linear: use fp32"
        )
    if not multiplies_bfloat16(device):
        raise ConfigError(
            f"bf16 on {device.type!r}: it has no bfloat16 products that torch can use: "
            "take --precision fp32, or a --device that has them"
        )


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether torch has fast bfloat16 products on ``device``.

    On a CPU they are oneDNN's: x86 needs AVX-512, ARM the instructions of ARMv8.6.
    Without them torch falls back to a plain loop, some hundred times as slow as
    float32. A GPU either multiplies them or raises.
    """
    if device.type == "cpu":
        onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    one = torch.ones(1, 1, device=device)
    try:
        one.bfloat16() @ one.bfloat16()
    except (RuntimeError, TypeError):
        return False
    return True


def _device(name: str) -> torch.device:
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device {name!r} cannot be used: {reason}: use 'cpu', or 'cuda' where "
            "torch is a CUDA build and sees a GPU"
        ) from error
