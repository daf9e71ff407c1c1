"""Functions of a set, as arrays over bit masks: bit j of the index is member j."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf

import numpy as np

from melisma.maths.arrays import Floats, Ints


def masks(size: int) -> Ints:
    """Members of every subset of ``size``: a row of zeros and ones for each.

    >>> masks(2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    rows: Ints = np.arange(2**size)[:, None] >> np.arange(size) & 1
    return rows


def sums(values: Floats) -> Floats:
    """Sum over every subset of the last axis.

    >>> sums(np.array([[1.0, 5.0], [2.0, 7.0]])).tolist()
    [[0.0, 1.0, 5.0, 6.0], [0.0, 2.0, 7.0, 9.0]]
    """
    total = np.zeros((*values.shape[:-1], 1))
    for member in np.moveaxis(values, -1, 0):
        total = np.concatenate([total, total + member[..., None]], axis=-1)
    return total


def split(f: Floats, g: Floats) -> Floats:
    """h(S) = min over R ⊆ S of f(R) + g(S∖R), in 3ⁿ sums and no loop over sets.

    A member is in R, in S∖R or in neither. Halving both functions by one member
    after the other makes all 3ⁿ pairs; joining them again takes the minimum.

    >>> split(np.array([0.0, 5.0, 9.0, 9.0]), np.array([0.0, 9.0, 3.0, 9.0])).tolist()
    [0.0, 5.0, 3.0, 8.0]
    """
    f, g = f[None], g[None]
    while (half := f.shape[1] // 2) > 0:
        f0, f1, g0, g1 = f[:, :half], f[:, half:], g[:, :half], g[:, half:]
        f, g = np.concatenate([f0, f1, f0]), np.concatenate([g0, g0, g1])
    h = f + g
    while (third := len(h) // 3) > 0:
        neither, first, second = h[:third], h[third : 2 * third], h[2 * third :]
        h = np.concatenate([neither, np.minimum(first, second)], axis=1)
    whole: Floats = h[0]
    return whole


class Division:
    """The best way to give members to tasks, from each task's worth of each set."""

    def __init__(self, worth: Sequence[Floats], every: bool) -> None:
        nobody = np.zeros(worth[0].size)  # of members without a task
        if every:
            nobody[1:] = inf
        last = worth[-1] if every else split(worth[-1], nobody)
        rest = accumulate(
            worth[-2:0:-1], lambda after, own: split(own, after), initial=last
        )
        self.worth = worth
        #: after[i][S]: the best of the tasks after i with the members S
        self.after = [*list(rest)[::-1], nobody][-len(worth) :]
        self.best = float((worth[0] + self.after[0][::-1]).min())

    def sets(self) -> list[int]:
        """The sets of a best division."""
        chosen, left = [], self.worth[0].size - 1
        for worth, after in zip(self.worth, self.after, strict=True):
            inside = np.arange(worth.size)
            inside = inside[inside & ~left == 0]
            chosen.append(int(inside[np.argmin(worth[inside] + after[left ^ inside])]))
            left ^= chosen[-1]
        return chosen

    def others(self) -> Iterator[Floats]:
        """For each task, by its own set: the best of all other tasks."""
        before = None
        for worth, after in zip(self.worth, self.after, strict=True):
            rest = after if before is None else split(before, after)
            yield rest[::-1]
            before = worth if before is None else split(before, worth)
