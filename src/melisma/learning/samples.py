"""Samples: named arrays of any type, one row a sample, and batches of them.

Values stay as they are stored (bytes of images, whole numbers of tokens, float32) on
disk, in shards and on the wire. A batch is what a task's loss is given: its rows as
tensors, after the task's transform.
"""

import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from melisma.errors import DataError
from melisma.learning.validation import release
from melisma.maths.arrays import Ints

#: Tensors by name, with as many rows each. By custom ``x`` are inputs, ``y`` targets.
Batch = dict[str, Tensor]
#: Makes a batch fit for the model: a function of each sample by itself.
Transform = Callable[[Batch], Batch]
Array = Tensor | NDArray[Any]
Rows = slice | Ints | Tensor

INPUTS, TARGETS = "x", "y"
#: Files that are mapped, and not larger than this together, are read into memory.
MAPPED_BYTES = 1 << 30
#: Bytes of larger ones that are looked at before their memory is given back.
RELEASED_BYTES = 1 << 25
#: Samples that are read at once by who goes through all of them.
_TOGETHER = 1000


class Field(NamedTuple):
    """One value of a sample."""

    dtype: str  #: as torch calls it
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of it in one sample."""
        size: int = getattr(torch, self.dtype).itemsize
        return math.prod(self.shape) * size


class Samples(Protocol):
    """Any number of samples, in memory or not."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, rows: Rows) -> Batch:
        """Return some of them as tensors in memory."""

    @property
    def in_memory(self) -> bool:
        """Whether all of them are, or fit, in memory."""


class Arrays:
    """Tensors, or numpy's arrays, by name; files may be memory-mapped.

    DataError unless all have as many rows, and types that torch has.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        lengths = {len(array) if array.ndim else None for array in arrays.values()}
        if len(lengths) != 1 or None in lengths:
            told = ", ".join(f"{n}: {tuple(a.shape)}" for n, a in arrays.items())
            raise DataError(
                f"arrays of {told or 'nothing'}: give arrays with as many samples each "
                "along the first axis"
            )
        held = {name: _writable(array) for name, array in arrays.items()}
        self.arrays = {name: _tensor(name, array) for name, array in held.items()}
        size = sum(array.nbytes for array in self.arrays.values())
        mapped = [array for array in held.values() if isinstance(array, np.memmap)]
        self.in_memory = not mapped or size <= MAPPED_BYTES
        self._mapped = [] if self.in_memory else mapped
        self._looked_at = 0  # bytes of mapped files since they were released

    def __len__(self) -> int:
        """Return the number of samples."""
        return length(self.arrays)

    def __getitem__(self, rows: Rows) -> Batch:
        """Return some samples; slices are not copied."""
        if isinstance(rows, np.ndarray):
            rows = torch.from_numpy(rows)
        batch = {name: array[rows] for name, array in self.arrays.items()}
        if self._mapped:
            self._release(sum(value.nbytes for value in batch.values()))
        return batch

    def _release(self, looked_at: int) -> None:
        """Give back the memory of pages, now and then: else all of a file is held."""
        self._looked_at += looked_at
        if self._looked_at > RELEASED_BYTES:
            self._looked_at = looked_at
            for array in self._mapped:
                release(array)


class Items:
    """A map-style data set: its items are mappings, or pairs of inputs and targets."""

    in_memory = False

    def __init__(self, items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __getitem__(self, rows: Rows) -> Batch:
        """Return some items as one batch; DataError if they do not fit together."""
        places = range(len(self))[rows] if isinstance(rows, slice) else rows.tolist()
        items = [_named(self._items[int(place)]) for place in places]
        if not items:
            whole = self[:1] if len(self) else {}
            return {name: value[:0] for name, value in whole.items()}
        try:
            return {n: torch.stack([item[n] for item in items]) for n in items[0]}
        except (RuntimeError, KeyError) as error:
            raise DataError(
                f"items of the data set differ in names, types or shapes: {error}"
            ) from error


class Part:
    """Some rows of other samples, in an order of their own."""

    def __init__(self, samples: Samples, rows: Ints) -> None:
        self.whole, self.rows = samples, rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, rows: Rows) -> Batch:
        """Return some of these rows."""
        rows = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        return self.whole[self.rows[rows]]

    @property
    def in_memory(self) -> bool:
        """Whether the others are."""
        return self.whole.in_memory


class Transformed:
    """Samples whose batches are transformed when they are asked for."""

    in_memory = False

    def __init__(self, samples: Samples, transform: Transform) -> None:
        self._samples, self._transform = samples, transform

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._samples)

    def __getitem__(self, rows: Rows) -> Batch:
        """Return some samples, transformed."""
        rows = rows.cpu() if isinstance(rows, Tensor) else rows
        return self._transform(self._samples[rows])


def pairs(x: Array, y: Array) -> Arrays:
    """Return inputs and their targets as samples."""
    return Arrays({INPUTS: x, TARGETS: y})


def transformed(samples: Samples, transform: Transform) -> Samples:
    """Return samples as a model takes them: at once if they are in memory."""
    if samples.in_memory:
        return Arrays(transform(samples[:]))
    return Transformed(samples, transform)


def samples_of(given: object) -> Samples:
    """Return arrays by name, or a map-style data set, as samples; DataError if not."""
    if isinstance(given, Mapping):
        return Arrays(given)
    if isinstance(given, Arrays | Items | Part | Transformed):
        return given
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return Items(given)
    raise DataError(
        f"samples cannot be a {type(given).__name__}: give arrays by name, or a data "
        "set with a length and items"
    )


def fields_of(samples: Samples) -> dict[str, Field]:
    """Return type and shape of each value of a sample; DataError if there is none."""
    if not len(samples):
        raise DataError("there are no samples")
    return {
        name: Field(str(value.dtype).removeprefix("torch."), tuple(value.shape[1:]))
        for name, value in samples[:1].items()
    }


def column(samples: Samples, name: str) -> Tensor:
    """Return one value of all samples, without reading the others where that can be."""
    if isinstance(samples, Arrays):
        return samples.arrays[name]
    if isinstance(samples, Part):
        return column(samples.whole, name)[torch.from_numpy(samples.rows)]
    parts = range(0, len(samples), _TOGETHER)
    return torch.cat([samples[first : first + _TOGETHER][name] for first in parts])


def joined(batches: Sequence[Batch]) -> Batch:
    """Return several batches as one."""
    return {n: torch.cat([batch[n] for batch in batches]) for n in batches[0]}


def length(batch: Batch) -> int:
    """Return the number of samples in a batch."""
    return len(next(iter(batch.values())))


def _tensor(name: str, array: Array) -> Tensor:
    """Return an array as a tensor, uncopied where it can be; DataError if not."""
    if isinstance(array, Tensor):
        return array
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name!r} is an array of {array.dtype}: {error}") from error


def _writable(array: Array) -> Array:
    """Return an array to which can be written: torch has no tensors of others.

    A copy; of a whole file, a map of which no page is written back.
    """
    if isinstance(array, Tensor) or array.flags.writeable:
        return array
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
        order: Any = "C" if array.flags.c_contiguous else "F"
        place: Any = array.filename
        kind, start, shape = array.dtype, array.offset, array.shape
        return np.memmap(place, kind, "c", offset=start, shape=shape, order=order)
    return np.array(array)


def _named(item: object) -> Batch:
    if isinstance(item, tuple | list) and len(item) == 2:
        item = dict(zip((INPUTS, TARGETS), item, strict=True))
    if not isinstance(item, Mapping):
        raise DataError(
            f"an item of the data set is a {type(item).__name__}: give a mapping of "
            "names to values, or a pair of inputs and targets"
        )
    try:
        return {str(name): torch.as_tensor(value) for name, value in item.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"an item of the data set is no numbers: {error}") from error
