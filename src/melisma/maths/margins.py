"""Tables of numbers whose rows and columns have given sums."""

import numpy as np
from scipy.special import logsumexp

from melisma.maths.arrays import Floats, Ints

ROUNDS = 200  #: of scaling; what is still off then is put right in whole numbers


def with_margins(
    logs: Floats, rows: Ints, columns: Ints, rng: np.random.Generator
) -> Ints:
    """Return whole numbers with these sums, in proportion to exp(``logs``).

    Rows and columns are scaled in turn until both sums are right (Sinkhorn), which
    gives the table nearest to the one given in relative entropy. Where that takes too
    long, since the table asks for something else altogether, the rest is drawn at
    random.

    >>> logs = np.log([[3.0, 1.0], [1.0, 3.0]])
    >>> sums = np.array([4, 4])
    >>> with_margins(logs, sums, sums, np.random.default_rng(0)).tolist()
    [[3, 1], [1, 3]]
    """
    if rows.sum() != columns.sum():
        raise ValueError(f"rows sum to {rows.sum()}, columns to {columns.sum()}")
    return _rounded(_scaled(logs, rows, columns), rows, columns, rng)


def _scaled(logs: Floats, rows: Ints, columns: Ints) -> Floats:
    """Scale to these sums, within half a unit if it can be done, and never above."""
    # A row or column may be empty: next to nothing then, which is rounded down.
    log_rows = np.log(np.maximum(rows, 1e-9))[:, None]
    log_columns = np.log(np.maximum(columns, 1e-9))
    for _ in range(ROUNDS):
        logs = logs + log_rows - logsumexp(logs, axis=1, keepdims=True)
        logs = logs + log_columns - logsumexp(logs, axis=0)
        sums = np.exp(logsumexp(logs, axis=1))
        if np.abs(sums - rows).max() < 0.5:
            break
    return np.asarray(np.exp(logs) * np.minimum(1.0, rows / sums)[:, None])


def _rounded(
    exact: Floats, rows: Ints, columns: Ints, rng: np.random.Generator
) -> Ints:
    """Round down, then up where most was cut off, as long as both sums allow it."""
    parts: Ints = np.floor(exact).astype(np.int64)
    room = (rows - parts.sum(axis=1)).tolist()
    left = (columns - parts.sum(axis=0)).tolist()
    for cell in np.argsort(parts - exact, axis=None, kind="stable").tolist():
        row, column = divmod(cell, len(left))
        if room[row] and left[column]:
            parts[row, column] += 1
            room[row] -= 1
            left[column] -= 1
    places = np.repeat(np.arange(len(room)), room)
    units = rng.permutation(np.repeat(np.arange(len(left)), left))
    np.add.at(parts, (places, units), 1)
    return parts
