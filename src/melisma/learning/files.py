"""One's own data, read by what the place is, and checked before it is used.

    NAME.npz            arrays by name
    NAME.npy            one array, ``x``
    NAME.csv            a table: ``y`` is the target's column, ``x`` the others
    NAME.parquet        the same
    a folder            of .npy files by name, or of images by class
    module:function     returns arrays by name, or a map-style data set

Nothing is unpickled. What is wrong is told with the file, the row and the fix.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from melisma.errors import ConfigError, DataError
from melisma.learning.images import holds_images, read_images
from melisma.learning.mapped import arrays_in, read_folder, read_npy, read_npz
from melisma.learning.tables import (
    Columns,
    columns_of,
    csv_names,
    line_of,
    parquet_names,
    read_csv,
    read_parquet,
)
from melisma.learning.validation import Array, Arrays, check_arrays, first_outside
from melisma.maths.arrays import Ints
from melisma.registry import imported, own_code

FORMS = (
    ".npz, .npy, .csv or .parquet, a folder of .npy files, a folder of images by "
    "class, or module:function"
)

_ARRAYS: Mapping[str, Callable[[Path], Arrays]] = {
    ".npz": read_npz,
    ".npy": lambda path: {"x": read_npy(path)},
}
_TABLES = {".csv": read_csv, ".parquet": read_parquet}
_NAMES = {".csv": csv_names, ".parquet": parquet_names}


class MapStyle(Protocol):
    """A data set of PyTorch's kind: a length, and items by number."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, row: int, /) -> Any:
        """Return a sample."""


def read(
    place: str | Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
) -> Arrays | MapStyle:
    """Read data: arrays by name, in the order of the file, or a map-style data set.

    Arrays of .npy and .npz files are mapped, not read into memory. ``target`` and
    ``features`` name columns of tables. Raises DataError if the data are missing or
    faulty, ConfigError if the place cannot be read in this way.
    """
    path = Path(place).expanduser()
    with _readable(place):
        if ":" in str(place) and not path.exists():
            return _function(str(place), target, features)
        arrays = _arrays(path, target, features)
    check_arrays(arrays, place)
    return arrays


def columns(
    place: str | Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
) -> Columns | None:
    """Return which columns of a table are ``read``, and in which order; else None.

    With these as ``target`` and ``features``, another table is read alike, whatever
    the order of its columns.
    """
    path = Path(place).expanduser()
    names = _NAMES.get(path.suffix.lower())
    with _readable(place):
        if names is None or not path.is_file():
            return None
        return columns_of(path, names(path), target, features)


@contextmanager
def _readable(place: str | Path) -> Iterator[None]:
    """Raise DataError, with the file's name, if the system does not let it be read."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or place} cannot be read: {error.strerror or error}"
        ) from error


def _arrays(path: Path, target: str | None, features: Sequence[str] | None) -> Arrays:
    suffix = "" if path.is_dir() else path.suffix.lower()
    if not path.exists():
        raise DataError(f"there is no {path}: give {FORMS}")
    if suffix in _TABLES:
        return _TABLES[suffix](path, target, features)
    _check_no_columns(path, target, features)
    if suffix in _ARRAYS:
        return _ARRAYS[suffix](path)
    if path.is_dir():
        return _folder(path)
    raise ConfigError(f"{path} is of no known form: give {FORMS}")


def _check_no_columns(
    place: object, target: str | None, features: Sequence[str] | None
) -> None:
    if target is not None or features is not None:
        raise ConfigError(
            f"{place} is no table: `target` and `features` name columns of .csv and "
            ".parquet files; leave them out"
        )


def check_labels(y: Array, classes: int | None, place: object) -> None:
    """Raise DataError unless ``y`` are classes: whole numbers, 0 to ``classes`` − 1.

    If the number of classes is None, any from 0 up will do. ``place`` is what was read.
    """
    whole = (
        not (y.is_floating_point() or y.is_complex())
        if isinstance(y, Tensor)
        else y.dtype.kind in "biu"
    )
    if not whole:
        raise DataError(
            f"{place}: y is of type {y.dtype}: give classes as whole numbers"
        )
    at = first_outside(y, classes)
    if at is not None:
        expected = "0 up" if classes is None else f"0 to {classes - 1}"
        raise DataError(
            f"{_where(place, at)} is class {int(y[at])}: give classes from {expected}"
        )


def split(
    samples: Sized | Mapping[str, Array], share: float, seed: int
) -> tuple[Ints, Ints]:
    """Draw rows to train on and a ``share`` to test with: each row in one part.

    Rows are in order, and the same for a seed on every machine. Each part has at
    least one; raises ConfigError for a share that is none, DataError for one sample.
    """
    total = _length(samples)
    if not 0 < share < 1:
        raise ConfigError(
            f"a test share of {share}: give one between 0 and 1, e.g. 0.2"
        )
    if total < 2:
        raise DataError(f"{total} sample cannot be split: give at least 2")
    tests = min(max(round(share * total), 1), total - 1)
    order = mixed(np.arange(total), seed)
    return np.sort(order[tests:]), np.sort(order[:tests])


def mixed(rows: Ints, seed: int) -> Ints:
    """Return rows in an order that is the same for a seed on every machine."""
    # A generator's raw bits are the same in every version of numpy; what is drawn
    # from them (a permutation) need not be.
    draws = np.random.PCG64(seed).random_raw(len(rows))
    return rows[np.argsort(draws, kind="stable")]


def _folder(folder: Path) -> Arrays:
    if arrays_in(folder):
        return read_folder(folder)
    if holds_images(folder):
        return read_images(folder)
    raise DataError(
        f"{folder} holds no data: put x.npy and y.npy there, or a folder of images for "
        "each class"
    )


def _function(
    reference: str, target: str | None, features: Sequence[str] | None
) -> Arrays | MapStyle:
    """Return what a function of the user's own returns, checked if it is arrays."""
    function = imported("data", reference)
    _check_no_columns(reference, target, features)
    with own_code("data", reference):
        found = function()
    if isinstance(found, Mapping):
        arrays = dict(found)
        check_arrays(arrays, reference)
        return arrays
    if isinstance(found, np.ndarray | Tensor | tuple | str | bytes) or not (
        hasattr(found, "__len__") and hasattr(found, "__getitem__")
    ):
        raise DataError(
            f"{reference} returns a {type(found).__name__}: return arrays by name, "
            'e.g. {"x": x, "y": y}, or a map-style data set'
        )
    if not len(found):
        raise DataError(f"{reference} returns a data set without samples: add some")
    items: MapStyle = found
    return items


def _length(samples: Any) -> int:
    return len(
        next(iter(samples.values())) if isinstance(samples, Mapping) else samples
    )


def _where(place: object, at: tuple[int, ...]) -> str:
    """Say where a label is: its line or row in a table, else its index."""
    suffix = Path(str(place)).suffix.lower()
    if suffix == ".csv":
        return f"{place}, line {line_of(Path(str(place)).expanduser(), at[0])}: y"
    if suffix == ".parquet":
        return f"{place}, row {at[0] + 1}: y"
    return f"{place}: y[{', '.join(map(str, at))}]"
