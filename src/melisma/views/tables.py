"""Tables stored by column that remember when each row changed.

A million rows of Python objects take about 500 MB; typed columns take a tenth of that,
and JSON of columns is a third of JSON of rows.
"""

from array import array
from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from melisma.maths.arrays import Floats

#: Kinds of column: seconds, other numbers, counts and indices, text.
SECONDS, NUMBER, COUNT, TEXT = "seconds", "number", "count", "text"
#: Significant digits of a number in JSON, and the finest step of seconds.
DIGITS, FINEST_S = 6, 1e-6
_ABSENT = {SECONDS: nan, NUMBER: nan, COUNT: -1, TEXT: None}


class Table:
    """Rows by key; a later row with the same key replaces the earlier one."""

    def __init__(self, **kinds: str) -> None:
        self._columns = {name: _empty(kind) for name, kind in kinds.items()}
        self._kinds = kinds
        self._absent = {name: _ABSENT[kind] for name, kind in kinds.items()}
        self._rows: dict[Hashable, int] = {}
        self._changed: dict[int, int] = {}  # row → position, the latest last

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the columns, in order."""
        return list(self._columns)

    def add_column(self, name: str, kind: str) -> None:
        """Add a column, unless there is one of this name; rows so far have no value."""
        if name not in self._columns:
            column = _empty(kind)
            column.extend([_ABSENT[kind]] * len(self))
            self._columns[name], self._kinds[name] = column, kind
            self._absent[name] = _ABSENT[kind]

    def put(self, position: int, key: Hashable, values: Sequence[Any]) -> None:
        """Store a row, changed at ``position``; None: not known."""
        row = self._rows.get(key)
        if row is None:
            columns = {n: [v] for n, v in zip(self._columns, values, strict=True)}
            self._append(position, [key], columns)
            return
        cells = zip(self._columns.values(), self._absent.values(), values, strict=True)
        for column, absent, value in cells:
            column[row] = absent if value is None else value
        del self._changed[row]
        self._changed[row] = position

    def put_all(
        self,
        position: int,
        keys: Sequence[Hashable],
        columns: Mapping[str, list[Any]],
    ) -> None:
        """Store many rows, given as columns."""
        if self._rows.keys().isdisjoint(keys):
            self._append(position, keys, columns)
            return
        values = (columns[name] for name in self._columns)
        for key, *row in zip(keys, *values, strict=True):
            self.put(position, key, row)

    def _append(
        self,
        position: int,
        keys: Sequence[Hashable],
        columns: Mapping[str, list[Any]],
    ) -> None:
        rows = range(len(self._rows), len(self._rows) + len(keys))
        self._rows.update(zip(keys, rows, strict=True))
        self._changed.update(dict.fromkeys(rows, position))
        for name, column in self._columns.items():
            values, absent = columns[name], self._absent[name]
            try:
                column.fromlist(values)
            except (AttributeError, TypeError):  # text, or a None among numbers
                column.extend([absent if value is None else value for value in values])

    def since(self, position: int) -> Mapping[str, list[Any]]:
        """Return the columns of rows that changed after ``position``."""
        rows = self._rows_since(position) if position else None
        if rows == []:
            return {}
        return {
            name: _plain(column, self._kinds[name], rows)
            for name, column in self._columns.items()
        }

    def _rows_since(self, position: int) -> list[int]:
        rows = []
        for row in reversed(self._changed):
            if self._changed[row] <= position:
                break
            rows.append(row)
        return sorted(rows)


def _empty(kind: str) -> Any:
    return [] if kind == TEXT else array("q" if kind == COUNT else "d")


def _plain(column: Any, kind: str, rows: list[int] | None) -> list[Any]:
    """Return a column, or the given rows of it, for JSON, where NaN becomes null."""
    values = column if rows is None else [column[row] for row in rows]
    if kind == TEXT:
        return list(values)
    # A copy, since an array cannot grow while a view of its buffer exists.
    copy = np.array(values)
    if kind == COUNT:
        counts: list[Any] = copy.tolist()
        return [None if n < 0 else n for n in counts] if (copy < 0).any() else counts
    rounded: list[Any] = _rounded(copy, kind).tolist()
    return rounded


def _rounded(values: Floats, kind: str) -> Floats:
    """Round to DIGITS significant digits; seconds to ms, below 1 s to four digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    size = np.where(np.isfinite(size), size, 0.0)
    digits = DIGITS - 1 - size
    if kind == SECONDS:
        digits = np.clip(3 - size, 3, -np.log10(FINEST_S))
    scale = 10.0 ** np.clip(digits, -300, 300)
    return np.asarray(np.round(values * scale) / scale)
