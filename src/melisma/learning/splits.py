"""Ways to divide the rows of a training set among learners.

Each function returns arrays of row numbers, in which no row occurs twice.

    shards        consecutive pieces of one size, as the orchestrator sends them
    iid           equal parts, drawn at random: every learner sees the same mixture
    dirichlet     each class divided in proportions drawn from Dir(α): the smaller α,
                  the greater the skew in labels and in amounts
    label_skew    a few classes per learner, evenly filled
"""

import math

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Ints


def shards(rows: Ints, size: int) -> Ints:
    """Cut ``rows`` into shards of ``size``, in order, one a line; an odd rest is left.

    >>> shards(np.arange(5), 2).tolist()
    [[0, 1], [2, 3]]
    """
    if not 1 <= size <= len(rows):
        raise ConfigError(f"a shard of {size} rows: give 1 to {len(rows)}")
    return rows[: len(rows) // size * size].reshape(-1, size)


def rows_of(places: Ints, size: int) -> Ints:
    """Return the rows of some shards, by their places, without those of all others.

    >>> rows_of(np.array([2, 0]), 3).tolist()
    [6, 7, 8, 0, 1, 2]
    """
    return (places[:, None] * size + np.arange(size)).ravel()


def iid(n: int, learners: int, rng: np.random.Generator) -> list[Ints]:
    """Deal rows 0 … n−1 at random; no learner has two rows more than another."""
    _check_enough(n, learners, least=1)
    return np.array_split(rng.permutation(n), learners)


def dirichlet(
    labels: Ints,
    learners: int,
    alpha: float,
    rng: np.random.Generator,
    least: int = 1,
) -> list[Ints]:
    """Divide each class in proportions drawn from Dir(α), α for every learner.

    A learner left with fewer than ``least`` rows gets them from those with rows to
    spare, each spare row being equally likely to move. With thousands of learners
    and a small α nearly every draw needs this, so drawing again would not end.
    """
    _check_enough(len(labels), learners, least)
    if not (alpha > 0 and math.isfinite(alpha * learners)):
        raise ConfigError(f"alpha is {alpha}: give a finite number above 0")
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        ends = rng.dirichlet(np.full(learners, alpha)).cumsum()
        at = (np.arange(len(rows)) + 0.5) / len(rows)
        # The last end may round to a little below 1.
        owner[rows] = np.minimum(np.searchsorted(ends, at), learners - 1)
    _top_up(owner, learners, least, rng)
    return _rows_of_each(owner, learners)


def label_skew(
    labels: Ints, learners: int, classes_per_learner: int, rng: np.random.Generator
) -> list[Ints]:
    """Give each learner rows of exactly ``classes_per_learner`` classes.

    Every class has the same number of holders, give or take one, who share its rows
    evenly.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    _check_enough(len(labels), learners, least=1)
    held = _held_classes(len(classes), learners, classes_per_learner, rng)
    owner = np.empty(len(labels), dtype=np.int64)
    for code, label in enumerate(classes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        holders = rng.permutation(np.flatnonzero((held == code).any(axis=1)))
        if len(rows) < len(holders):
            raise ConfigError(
                f"class {label} has {len(rows)} rows for the {len(holders)} learners "
                "that hold it: take fewer learners or fewer classes per learner"
            )
        owner[rows] = holders[np.arange(len(rows)) % len(holders)]
    return _rows_of_each(owner, learners)


def _held_classes(
    classes: int, learners: int, each: int, rng: np.random.Generator
) -> Ints:
    """Choose ``each`` distinct classes per learner, the least held ones first."""
    if not 1 <= each <= classes:
        raise ConfigError(f"{each} classes per learner: give 1 to {classes}")
    if learners * each < classes:
        raise ConfigError(
            f"{learners} learners of {each} classes leave some of the {classes} "
            f"classes to nobody: take at least {-(-classes // each)} learners"
        )
    held = np.empty((learners, each), dtype=np.int64)
    holders = np.zeros(classes, dtype=np.int64)
    for row in held:
        row[:] = np.lexsort((rng.random(classes), holders))[:each]
        holders[row] += 1
    return held


def _top_up(owner: Ints, learners: int, least: int, rng: np.random.Generator) -> None:
    """Move rows, in place, until every learner owns at least ``least``."""
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    amounts = np.bincount(owner, minlength=learners)
    # A row's place among its owner's; those from ``least`` on can be spared.
    place = np.arange(len(owner)) - np.repeat(amounts.cumsum() - amounts, amounts)
    wanted = np.maximum(least - amounts, 0)
    moved = rng.choice(order[place >= least], wanted.sum(), replace=False)
    owner[moved] = np.repeat(np.arange(learners), wanted)


def _rows_of_each(owner: Ints, learners: int) -> list[Ints]:
    amounts = np.bincount(owner, minlength=learners)
    return np.split(np.argsort(owner, kind="stable"), amounts.cumsum()[:-1])


def _check_enough(rows: int, learners: int, least: int) -> None:
    if learners < 1:
        raise ConfigError(f"{learners} learners: give at least 1")
    if least < 0:
        raise ConfigError(f"at least {least} rows per learner: give 0 or more")
    if rows < learners * least:
        raise ConfigError(
            f"{rows} rows cannot give each of {learners} learners at least {least}: "
            "take fewer learners or more data"
        )
