"""Data and models on the device that is to train them, and what it can compute."""

from dataclasses import replace

import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.data import Dataset
from melisma.learning.samples import Transform, transformed
from melisma.learning.settings import Hardware, Precision

TorchDevice = torch.device
CPU = TorchDevice("cpu")


def placed(
    data: Dataset, model: nn.Module, transform: Transform, hardware: Hardware
) -> tuple[Dataset, nn.Module]:
    """Return data as the model takes it, and the model, both on the device.

    ConfigError if the device is absent or cannot train so.
    """
    device = ready(hardware)
    take = onto(device, transform)
    train, test = transformed(data.train, take), transformed(data.test, take)
    data = replace(data, train=train, test=test)
    return data, model.to(device)


def ready(hardware: Hardware) -> torch.device:
    """Return the device to train on; ConfigError if it is absent or cannot train so."""
    device = device_of(hardware.device)
    check_precision(hardware.precision, device)
    # What is called fp32 is fp32: a GPU's convolutions would round to ten bits.
    torch.backends.cudnn.allow_tf32 = False
    return device


def onto(device: torch.device, transform: Transform) -> Transform:
    """Return a transform whose result lies on a device."""
    if device.type == "cpu":
        return transform
    return lambda batch: {n: v.to(device) for n, v in transform(batch).items()}


def synchronise(device: torch.device) -> None:
    """Wait until a device has done what it was told, so that it can be timed."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise ConfigError if ``device`` cannot train in ``precision``."""
    if precision == Precision.BF16 and not multiplies_bfloat16(device):
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


def device_of(name: str) -> torch.device:
    """Return the device that torch calls so, or with "auto" the best there is.

    ConfigError if it is absent.
    """
    if name == "auto":
        best = torch.accelerator.current_accelerator(check_available=True)
        return best or torch.device("cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device {name!r} cannot be used: {reason}: use 'auto' or 'cpu', or "
            "'cuda' where torch is a CUDA build and sees a GPU"
        ) from error
