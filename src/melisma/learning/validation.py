"""Arrays that can be trained on: types, lengths and values, told by name and place.

Mapped files are looked through part by part, and each part's memory is given back, so
that a file larger than memory can be checked.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from melisma.errors import DataError
from melisma.maths.arrays import Bools

Array = NDArray[Any] | Tensor
#: As many samples in each, along the first axis.
Arrays = dict[str, Array]

PART_BYTES = 16 * 2**20  #: looked through at once

_NUMBERS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bool"),
)
_TENSORS = {*(getattr(torch, name) for name in _NUMBERS), torch.bfloat16}


def check_arrays(arrays: Mapping[str, Array], place: object) -> None:
    """Raise DataError unless these are numbers, as many samples in each, all finite."""
    if not arrays:
        raise DataError(f"{place} holds no arrays: give x, and y if there are targets")
    for name, array in arrays.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise DataError(
                f"{place}: {name!r} is no name of an array: give letters, digits and _"
            )
        if not isinstance(array, np.ndarray | Tensor):
            raise DataError(
                f"{place}: {name} is a {type(array).__name__}: give a numpy array or "
                "a tensor"
            )
        check_type(name, array.dtype, tuple(array.shape), place)
    (first, samples), *others = ((name, len(array)) for name, array in arrays.items())
    for name, length in others:
        if length != samples:
            raise DataError(
                f"{place}: {first} has {samples} samples and {name} has {length}: give "
                "as many in each, along the first axis"
            )
    for name, array in arrays.items():
        _check_finite(name, array, place)


def check_type(
    name: str,
    dtype: np.dtype[Any] | torch.dtype,
    shape: tuple[int, ...],
    place: object,
) -> None:
    """Raise DataError unless an array of this type and shape holds samples."""
    if isinstance(dtype, np.dtype):
        if dtype.hasobject:
            raise DataError(
                f"{place}: {name} holds Python objects, which are never unpickled: "
                "save numbers, e.g. np.stack(rows)"
            )
        fits = dtype.name in _NUMBERS and dtype.isnative
    else:
        fits = dtype in _TENSORS
    if not fits:
        raise DataError(
            f"{place}: {name} is of type {dtype}: give whole numbers, bool, or floats "
            "of 16, 32 or 64 bits, in this machine's byte order"
        )
    if not shape:
        raise DataError(
            f"{place}: {name} is one number: give samples along a first axis"
        )
    if 0 in shape:
        raise DataError(
            f"{place}: {name} is empty, its shape being {shape}: give at least one "
            "sample"
        )


def first_outside(y: Array, classes: int | None) -> tuple[int, ...] | None:
    """Return the index of the first label that is not from 0 to ``classes`` − 1."""

    def outside(part: NDArray[Any]) -> Bools:
        below: Bools = part < 0
        return below if classes is None else below | (part >= classes)

    return _first(y, outside)


def release(array: Array) -> None:
    """Give back the memory of a mapped file's pages; they are read again when used.

    Pages that were looked at count as this process's memory until the system needs
    it elsewhere: whoever reads all of a file is charged with all of it.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


def _check_finite(name: str, array: Array, place: object) -> None:
    floats = (
        array.is_floating_point()
        if isinstance(array, Tensor)
        else array.dtype.kind == "f"
    )
    if not floats:
        return
    at = _first(array, lambda part: ~np.isfinite(part))
    if at is not None:
        index = ", ".join(map(str, at))
        raise DataError(
            f"{place}: {name}[{index}] is {float(array[at])}: fill in missing values, "
            "or leave their samples out"
        )


def _first(
    array: Array, faults: Callable[[NDArray[Any]], Bools]
) -> tuple[int, ...] | None:
    """Return the index of the first value, as they are stored, that has a fault."""
    turned = isinstance(array, np.ndarray) and not array.flags.c_contiguous
    for start, part in _parts(array.T if turned else array):
        wrong = faults(part)
        if wrong.any():
            row, *rest = map(int, np.unravel_index(int(wrong.argmax()), wrong.shape))
            at = (start + row, *rest)
            return at[::-1] if turned else at
    return None


def _parts(array: Array) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield an array part by part, each with the row that it begins with."""
    samples = len(array)
    rows = max(1, PART_BYTES * samples // array.nbytes)
    for start in range(0, samples, rows):
        part = array[start : start + rows]
        if isinstance(part, Tensor):
            part = part.float() if part.dtype is torch.bfloat16 else part
            part = part.detach().cpu().numpy()
        yield start, part
        release(array)
