"""Ways to divide the rows of a training set among learners.

Each function returns arrays of row numbers, in which no row occurs twice.

    shards        consecutive pieces of one size, as the orchestrator sends them
    iid           equal parts, drawn at random: every learner sees the same mixture
    dirichlet     each class divided in proportions drawn from Dir(α): the smaller α,
                  the greater the skew in labels and in amounts
    label_skew    a few classes per learner, evenly filled, or in parts of any lengths
    uneven        parts of any lengths, drawn at random
    mixes         a mixture of classes for each learner drawn from a Dirichlet, apart
                  from how much it has: equal amounts, or in parts of any lengths
"""

import math

import numpy as np
from scipy.special import logsumexp

from melisma.errors import ConfigError
from melisma.learning.lengths import Lengths, check_alpha, cut, log_gamma
from melisma.maths.arrays import Bools, Ints
from melisma.maths.margins import with_margins


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


def uneven(
    n: int, learners: int, lengths: Lengths, rng: np.random.Generator, least: int = 1
) -> list[Ints]:
    """Deal rows 0 … n−1 at random in parts of these lengths.

    Everybody has ``least`` rows first; the rest is cut by lengths.
    """
    _check_enough(n, learners, least)
    parts = least + cut(lengths(learners, rng), np.array(n - learners * least))
    return np.split(rng.permutation(n), parts.cumsum()[:-1])


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


def mixes(
    labels: Ints,
    learners: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    lengths: Lengths | None = None,
    least: int = 1,
) -> list[Ints]:
    """Draw each learner's mixture of classes from a Dirichlet around that of all rows.

    Its parameters are α times the number of classes times their shares of the rows: α
    each where classes are equal. All rows are dealt, so mixtures give way to what there
    is of each class c, and to amounts:

        without lengths    equal amounts, give or take a row, with mixtures as near to
                           those drawn as sums allow (`with_margins`)
        with lengths w     learner k has wₖ qₖc / Σᵢ wᵢ qᵢc of class c, q the mixtures;
                           who has fewer than ``least`` rows gets them as in `dirichlet`
    """
    _check_enough(len(labels), learners, least)
    check_alpha("alpha", alpha)
    codes = np.unique(labels, return_inverse=True)[1]
    amounts = np.bincount(codes)
    parameters = alpha * amounts.size * amounts / len(labels)
    logs = log_gamma(np.tile(parameters, (learners, 1)), rng)
    logs -= logsumexp(logs, axis=1, keepdims=True)
    if lengths is None:
        fewest, odd = divmod(len(labels), learners)
        sizes = fewest + (np.arange(learners) < odd)
        counts = with_margins(logs, sizes, amounts, rng)
    else:
        counts = cut(lengths(learners, rng)[:, None] + logs, amounts)
    owner = np.empty(len(labels), dtype=np.int64)
    for code, parts in enumerate(counts.T):
        rows = rng.permutation(np.flatnonzero(codes == code))
        owner[rows] = np.repeat(np.arange(learners), parts)
    _top_up(owner, learners, least, rng)
    return _rows_of_each(owner, learners)


def label_skew(
    labels: Ints,
    learners: int,
    classes_per_learner: int | tuple[int, int],
    rng: np.random.Generator,
    *,
    lengths: Lengths | None = None,
    least: int = 1,
) -> list[Ints]:
    """Give each learner rows of exactly ``classes_per_learner`` classes.

    By a number of classes, every class has the same number of holders, give or take
    one. By the fewest and the most, each learner draws how many it has, then which.
    Holders share the rows of a class evenly, or each has enough for ``least`` in all
    its classes, and the rest is cut in parts of these lengths.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    _check_enough(len(labels), learners, least=1)
    if isinstance(classes_per_learner, tuple):
        fewest, most = classes_per_learner
        held = _drawn_classes(len(classes), learners, fewest, most, rng)
    else:
        fewest = classes_per_learner
        held = _held_classes(len(classes), learners, fewest, rng)
    each = -(-least // fewest)
    owner = np.empty(len(labels), dtype=np.int64)
    for code, label in enumerate(classes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        holders = rng.permutation(np.flatnonzero(held[:, code]))
        if len(rows) < each * len(holders):
            of_each = f", of which each needs {each}" if each > 1 else ""
            raise ConfigError(
                f"class {label} has {len(rows)} rows for the {len(holders)} learners "
                f"that hold it{of_each}: take fewer learners or fewer classes per "
                "learner"
            )
        owner[rows] = _shared(len(rows), holders, each, lengths, rng)
    return _rows_of_each(owner, learners)


def _shared(
    rows: int,
    holders: Ints,
    each: int,
    lengths: Lengths | None,
    rng: np.random.Generator,
) -> Ints:
    """Return who of its holders has each row of a class, ``each`` of them at least."""
    if lengths is None:
        return holders[np.arange(rows) % len(holders)]
    spare = np.array(rows - each * len(holders))
    return np.repeat(holders, each + cut(lengths(len(holders), rng), spare))


def _held_classes(
    classes: int, learners: int, each: int, rng: np.random.Generator
) -> Bools:
    """Choose ``each`` classes per learner (a line), the least held ones first."""
    _check_classes(classes, learners, each, each)
    held = np.zeros((learners, classes), dtype=np.bool_)
    holders = np.zeros(classes, dtype=np.int64)
    for row in held:
        chosen = np.lexsort((rng.random(classes), holders))[:each]
        row[chosen] = True
        holders[chosen] += 1
    return held


def _drawn_classes(
    classes: int, learners: int, fewest: int, most: int, rng: np.random.Generator
) -> Bools:
    """Draw how many classes a learner (a line) has, then which.

    A class that nobody drew is exchanged for one drawn twice or more. There is one,
    since learners have no fewer classes between them than there are.
    """
    _check_classes(classes, learners, fewest, most)
    numbers = rng.integers(fewest, most, learners, endpoint=True)
    ranks = rng.random((learners, classes)).argsort(axis=1).argsort(axis=1)
    held: Bools = ranks < numbers[:, None]
    for code in np.flatnonzero(~held.any(axis=0)):
        learner, spare = rng.choice(np.argwhere(held & (held.sum(axis=0) > 1)))
        held[learner, [spare, code]] = False, True
    return held


def _check_classes(classes: int, learners: int, fewest: int, most: int) -> None:
    for each in (fewest, most):
        if not 1 <= each <= classes:
            raise ConfigError(f"{each} classes per learner: give 1 to {classes}")
    if learners * fewest < classes:
        raise ConfigError(
            f"{learners} learners of {fewest} classes leave some of the {classes} "
            f"classes to nobody: take at least {-(-classes // fewest)} learners"
        )


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
