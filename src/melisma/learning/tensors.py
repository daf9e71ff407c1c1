"""Tensors as plain memory and back, for transfer."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

#: Types that numpy lacks travel as integers of their size.
STAND_INS = {"bfloat16": torch.int16}
DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("uint16", "uint32", "uint64", "float16", "float32", "float64"),
        *("complex64", "complex128", "bfloat16"),
    )
}


def to_array(tensor: torch.Tensor) -> tuple[str, NDArray[Any]]:
    """Return a tensor's type and its memory, copied only where it is not in one piece.

    Raises TypeError for a type or layout that has no plain memory.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout != torch.strided:
        raise TypeError(f"a {tensor.layout} tensor of {tensor.dtype} cannot be sent")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return name, plain.view(STAND_INS.get(name, plain.dtype)).numpy()


def from_array(name: str, memory: NDArray[np.uint8]) -> torch.Tensor:
    """Return the flat tensor of type ``name`` that lies in ``memory``, uncopied."""
    return torch.from_numpy(memory).view(DTYPES[name])
