"""Tables, a sample a row: CSV and Parquet.

One column is the target, ``y``: int64 if it holds whole numbers only, else float32.
The others, or those that were chosen, are the inputs, ``x``, float32. A table is held
in memory.
"""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError, DataError, readable, unknown
from melisma.learning.validation import Arrays

PART_ROWS = 8192  #: of a table, read at once


class Row(NamedTuple):
    """A row of a CSV file."""

    line: int  #: where it begins, the first line being 1
    cells: list[str]


class Columns(NamedTuple):
    """Which columns are used, and for what."""

    features: Sequence[str]
    target: str

    @property
    def names(self) -> list[str]:
        """All of them, the target last."""
        return [*self.features, self.target]


def columns_of(
    path: Path, names: list[str], target: str | None, features: Sequence[str] | None
) -> Columns:
    """Choose columns of a table: by default the last is the target, all are used.

    Raises ConfigError for a column that is not there, DataError for a table without
    names or inputs.
    """
    if not names or not all(names) or len(set(names)) < len(names):
        raise DataError(
            f"{path}: its columns are named {readable(str(names))}: give each a name "
            "of its own"
        )
    for name in (target, *(features or ())):
        if name is not None and name not in names:
            raise unknown(f"column of {path}", name, names)
    target = names[-1] if target is None else target
    if features is None:
        features = [name for name in names if name != target]
    if target in features or len(set(features)) < len(features):
        raise ConfigError(
            f"{path}: of the target {target!r} and the features {list(features)} one "
            "is named twice: name each column once"
        )
    if not features:
        raise DataError(
            f"{path} has no column beside the target {target!r}: give the inputs too"
        )
    return Columns(features, target)


def read_csv(
    path: Path, target: str | None = None, features: Sequence[str] | None = None
) -> Arrays:
    """Read a CSV file whose first line names its columns; DataError if it is faulty."""
    parts: list[Part] = []
    with _opened(path) as file:
        lines = _Lines(file)
        names = _header(path, lines)
        columns = columns_of(path, names, target, features)
        places = [names.index(name) for name in columns.names]
        while block := lines.take(PART_ROWS):
            part = _plain_part(block, len(names), places)
            if part is None:  # not numbers alone: read it cell by cell from here on
                break
            parts.append(part)
        lines.put_back(block)
        rows = _rows(path, lines)
        while group := list(islice(rows, PART_ROWS)):
            parts.append(_part(path, names, places, group))
    if not parts:
        raise DataError(f"{path} has no row below the names of its columns: add some")
    whole = [part.whole for part in parts if part.whole is not None]
    y = whole if len(whole) == len(parts) else [part.y for part in parts]
    return {"x": np.concatenate([part.x for part in parts]), "y": np.concatenate(y)}


def csv_names(path: Path) -> list[str]:
    """Return the names of a CSV file's columns; DataError if it has none."""
    with _opened(path) as file:
        return _header(path, _Lines(file))


def line_of(path: Path, row: int) -> int:
    """Return the line of a CSV file in which a row begins, the first row being 0."""
    with _opened(path) as file:
        return next(islice(_rows(path, _Lines(file)), row + 1, None)).line


class Part(NamedTuple):
    """Some rows of a table, as numbers."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    whole: NDArray[np.int64] | None  #: the target, if all are whole numbers


class _Lines:
    """The lines of a file, counted."""

    def __init__(self, file: Iterator[str]) -> None:
        self._file = file
        self.read = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.read += 1
        return line

    def take(self, most: int) -> list[str]:
        lines = list(islice(self._file, most))
        self.read += len(lines)
        return lines

    def put_back(self, lines: list[str]) -> None:
        self._file = chain(lines, self._file)
        self.read -= len(lines)


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    """Open a text file; DataError names the line that is no text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {_undecodable(path)} is not UTF-8: save the file as UTF-8"
        ) from error


def _rows(path: Path, lines: _Lines) -> Iterator[Row]:
    """Yield the rows that begin with the next line; empty lines are none."""
    line = lines.read + 1
    try:
        for cells in csv.reader(lines, skipinitialspace=True, strict=True):
            if cells:
                yield Row(line, cells)
            line = lines.read + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {line}: {error}: is a quotation mark missing?"
        ) from error


def _plain_part(lines: list[str], columns: int, places: list[int]) -> Part | None:
    """Return lines of nothing but finite numbers as such, quickly; None for others."""
    if '"' in "".join(lines) or not all(map(str.strip, lines)):
        return None
    try:
        table = np.loadtxt(lines, delimiter=",", comments=None, encoding=None, ndmin=2)
    except ValueError:
        return None
    if table.shape != (len(lines), columns):
        return None
    numbers, fault = _float32(table[:, places])
    if fault is not None:
        return None
    whole = _whole([line.split(",")[places[-1]] for line in lines])
    return Part(numbers[:, :-1], numbers[:, -1], whole)


def _part(path: Path, names: list[str], places: list[int], rows: list[Row]) -> Part:
    """Return rows as numbers; DataError names the first cell that is none."""
    _check_lengths(path, names, rows)
    lines = [row.line for row in rows]
    cells = list(zip(*(row.cells for row in rows), strict=True))
    *inputs, targets = (
        _numbers(path, lines, names[place], cells[place]) for place in places
    )
    return Part(np.stack(inputs, axis=1), targets, _whole(cells[places[-1]]))


def _undecodable(path: Path) -> int:
    """Return the first line that is not UTF-8, 0 if there is none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _header(path: Path, lines: _Lines) -> list[str]:
    """Read the names of the columns; DataError if there are none."""
    row = next(_rows(path, lines), Row(1, []))
    names = [cell.strip() for cell in row.cells]
    if not names:
        raise DataError(f"{path} is empty: give names of columns, then rows of numbers")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise DataError(
            f"{path}, line {row.line}: {readable(names[0])!r} has no commas: separate "
            "columns by commas"
        )
    numbered = [str(n) for n in range(len(names))]  # as pandas does by itself
    if names != numbered and all(_is_number(name) for name in names):
        raise DataError(
            f"{path}, line {row.line} holds numbers: begin with a line that names the "
            "columns"
        )
    return names


def _check_lengths(path: Path, names: list[str], rows: list[Row]) -> None:
    for line, cells in rows:
        if len(cells) != len(names):
            raise DataError(
                f"{path}, line {line} has {len(cells)} cells for {len(names)} columns: "
                "give one for each"
            )


def _numbers(
    path: Path, lines: list[int], name: str, cells: Sequence[str]
) -> NDArray[np.float32]:
    """Return a column's cells as numbers; DataError names the first that is none."""
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        at = [_is_number(cell) for cell in cells].index(False)
    else:
        numbers, first = _float32(values)
        if first is None:
            return numbers
        at = first
    raise DataError(
        f'{path}, line {lines[at]}, column "{readable(name)}" {_fault(cells[at])}'
    )


def _float32(values: NDArray[Any]) -> tuple[NDArray[np.float32], int | None]:
    """Return values as float32, and the place of the first that is not finite so."""
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    finite = np.isfinite(numbers)
    return numbers, None if finite.all() else int(finite.argmin())


def _fault(cell: str) -> str:
    """Say what is wrong with a cell that is no finite float32, and what to do."""
    if not cell.strip() or (_is_number(cell) and np.isnan(float(cell))):
        kind = f"is {cell.strip()}" if cell.strip() else "is empty"
        return f"{kind}: fill in the missing value, or leave the row out"
    if _is_number(cell):
        return f"is {cell.strip()}, beyond what float32 can hold: scale the column"
    return (
        f"holds {readable(cell, 40)!r}: give a number, or leave the column out by "
        "naming others in `features`"
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole(cells: Sequence[str]) -> NDArray[np.int64] | None:
    """Return cells as whole numbers; None if they are not."""
    try:
        return np.fromiter(map(int, cells), np.int64, len(cells))
    except (ValueError, OverflowError):
        return None


def read_parquet(
    path: Path, target: str | None = None, features: Sequence[str] | None = None
) -> Arrays:
    """Read a Parquet file; DataError if it is faulty, ConfigError without pyarrow."""
    x, y, rows = [], [], 0
    with _parquet(path) as file:
        columns = columns_of(path, file.schema_arrow.names, target, features)
        kinds = {name: _kind(path, file.schema_arrow, name) for name in columns.names}
        whole = kinds[columns.target] is not np.floating
        for part in file.iter_batches(columns=columns.names):
            inputs = [
                _float_column(path, rows, name, part) for name in columns.features
            ]
            x.append(np.stack(inputs, axis=1))
            column = _whole_column if whole else _float_column
            y.append(column(path, rows, columns.target, part))
            rows += part.num_rows
    if not rows:
        raise DataError(f"{path} has no rows: add some")
    return {"x": np.concatenate(x), "y": np.concatenate(y)}


def parquet_names(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    with _parquet(path) as file:
        names: list[str] = file.schema_arrow.names
        return names


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; DataError for what pyarrow raises on damaged ones."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{path}: pyarrow is not installed: pip install 'melisma[parquet]'"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read: {readable(str(error))}: write it again"
        ) from error


def _kind(path: Path, schema: Any, name: str) -> type[np.generic]:
    """Return what kind of number a column holds; DataError if it holds none."""
    from pyarrow import types

    kind = schema.field(name).type
    if types.is_floating(kind):
        return np.floating
    if types.is_integer(kind) or types.is_boolean(kind):
        return np.integer
    raise DataError(
        f'{path}, column "{readable(name)}" is of type {kind}: give numbers, or leave '
        "the column out by naming others in `features`"
    )


def _whole_column(path: Path, start: int, name: str, part: Any) -> NDArray[np.int64]:
    """Return a column from row ``start`` on; DataError if one is empty."""
    _check_filled(path, start, name, part)
    values: NDArray[Any] = part.column(name).cast("int64").to_numpy()
    return values


def _float_column(path: Path, start: int, name: str, part: Any) -> NDArray[np.float32]:
    """Return a column from row ``start`` on; DataError if one is faulty."""
    _check_filled(path, start, name, part)
    values = part.column(name).to_numpy(zero_copy_only=False)
    numbers, at = _float32(values)
    if at is not None:
        raise DataError(
            f'{path}, row {start + at + 1}, column "{readable(name)}" '
            f"{_fault(str(values[at]))}"
        )
    return numbers


def _check_filled(path: Path, start: int, name: str, part: Any) -> None:
    empty = part.column(name).is_null().to_numpy(zero_copy_only=False)
    if empty.any():
        raise DataError(
            f"{path}, row {start + int(empty.argmax()) + 1}, column "
            f'"{readable(name)}" {_fault("")}'
        )
