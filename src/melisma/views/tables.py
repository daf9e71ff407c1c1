"""Rows kept as columns, which remember when each row changed.

A million rows of Python objects are some 500 MB; typed columns are a tenth of that, and
JSON of columns is a third of JSON of rows.
"""

from array import array
from collections.abc import Hashable, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from melisma.maths.arrays import Floats

#: Kinds of column: seconds, other numbers, counts and places, text.
SECONDS, NUMBER, COUNT, TEXT = "seconds", "number", "count", "text"
#: Digits of a number that are told, and how finely seconds are.
DIGITS, FINEST_S = 6, 1e-6
_ABSENT = {SECONDS: nan, NUMBER: nan, COUNT: -1, TEXT: None}


class Table:
    """Rows by key; a later row of a key takes the place of the one before."""

    def __init__(self, **kinds: str) -> None:
        self._columns: dict[str, Any] = {
            name: [] if kind == TEXT else array("q" if kind == COUNT else "d")
            for name, kind in kinds.items()
        }
        self._kinds = kinds
        self._absent = {name: _ABSENT[kind] for name, kind in kinds.items()}
        self._rows: dict[Hashable, int] = {}
        self._changed: dict[int, int] = {}  # row → position, the latest last

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, position: int, key: Hashable, values: Sequence[Any]) -> None:
        """Keep a row, as of ``position``; None is not known."""
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
        """Keep many rows, given by columns."""
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
            except (AttributeError, TypeError):  # text, or something is not known
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


def _plain(column: Any, kind: str, rows: list[int] | None) -> list[Any]:
    """A column, or some rows of it, as JSON knows it; NaN becomes null there."""
    values = column if rows is None else [column[row] for row in rows]
    if kind == TEXT:
        return list(values)
    # A copy: an array that is looked into cannot grow.
    copy = np.array(values)
    if kind == COUNT:
        counts: list[Any] = copy.tolist()
        return [None if n < 0 else n for n in counts] if (copy < 0).any() else counts
    rounded: list[Any] = _rounded(copy, kind).tolist()
    return rounded


def _rounded(values: Floats, kind: str) -> Floats:
    """Milliseconds, or significant digits; of few milliseconds, digits too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    size = np.where(np.isfinite(size), size, 0.0)
    digits = DIGITS - 1 - size
    if kind == SECONDS:
        digits = np.clip(3 - size, 3, -np.log10(FINEST_S))
    scale = 10.0 ** np.clip(digits, -300, 300)
    return np.asarray(np.round(values * scale) / scale)
