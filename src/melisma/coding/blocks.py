"""Codes of whole blocks: every coefficient is 1, and decoding adds and subtracts.

Each worker computes one block of neighbouring partitions and sends their plain sum.

    uncoded      one group of workers, whose blocks cover all partitions once
    fractional   s + 1 groups, each of which covers all of them: any s stragglers leave
                 one group whole

Loads follow speeds, by least makespan, and groups are of nearly equal speed.

*Decoding.* Let the ends of blocks be places 0 … K on a line. A block from p to q is an
edge between the places p and q, and its sum is G(q) − G(p), where G(p) sums all
partitions before p. The answers determine G(K) − G(0) just if they connect 0 with K;
the weights are +1 on the edges of a path that are walked forward and −1 backward. The
shortest path uses the fewest answers. It is exact in whole numbers and takes O(M).

Paper: R. Tandon, Q. Lei, A. Dimakis, N. Karampatziakis, "Gradient Coding: Avoiding
Stragglers in Distributed Learning", ICML 2017.

Differences from the paper:
1. Any number of workers and any speeds; the paper needs equal loads and (s+1) | M.
   Where both hold the code is the paper's.
2. Answers of different groups are combined wherever their blocks connect, not only
   where they are the same.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from melisma.coding import loads as share
from melisma.coding.code import Code, sparse
from melisma.maths.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks(Code):
    """Each worker sums the partitions from ``start`` up to ``stop``."""

    start: Ints
    stop: Ints

    @classmethod
    def of(cls, start: Ints, stop: Ints, partitions: int, stragglers: int) -> "Blocks":
        """Return the code of these blocks; ``stragglers`` is taken on trust."""
        return cls(
            matrix=block_matrix(start, stop, partitions),
            stragglers=stragglers,
            start=start,
            stop=stop,
        )

    def _weights(self, alive: Bools) -> Floats:
        edges: defaultdict[int, list[tuple[int, int, float]]] = defaultdict(list)
        for w in np.flatnonzero(alive & (self.start < self.stop)).tolist():
            p, q = int(self.start[w]), int(self.stop[w])
            edges[p].append((q, w, 1.0))
            edges[q].append((p, w, -1.0))
        reached = _breadth_first(edges, 0, self.partitions)
        weights, place = np.zeros(self.workers), self.partitions
        while place in reached and place != 0:
            place, w, sign = reached[place]
            weights[w] = sign
        return weights


def _breadth_first(
    edges: defaultdict[int, list[tuple[int, int, float]]], source: int, target: int
) -> dict[int, tuple[int, int, float]]:
    """How each place was reached: from where, by whose block, in which direction."""
    reached = {source: (source, -1, 0.0)}
    queue = deque([source])
    while queue and target not in reached:
        here = queue.popleft()
        for there, worker, sign in edges[here]:
            if there not in reached:
                reached[there] = (here, worker, sign)
                queue.append(there)
    return reached


def uncoded(
    *,
    workers: int,
    stragglers: int = 0,
    seed: int = 0,
    speeds: ArrayLike | None = None,
    partitions: int | None = None,
) -> Blocks:
    """Disjoint blocks. It tolerates nobody's absence, whatever ``stragglers`` says."""
    v = share.checked(workers, stragglers, speeds, partitions)
    return _in_groups(v, [np.arange(workers)], partitions)


def fractional(
    *,
    workers: int,
    stragglers: int,
    seed: int = 0,
    speeds: ArrayLike | None = None,
    partitions: int | None = None,
) -> Blocks:
    """Fractional repetition: s + 1 groups of workers, each covering all partitions.

    Nothing is random: ``seed`` is there since all codes have one.
    """
    v = share.checked(workers, stragglers, speeds, partitions)
    return _in_groups(v, share.groups(v, np.ones(stragglers + 1)), partitions)


def _in_groups(v: Floats, groups: Sequence[Ints], partitions: int | None) -> Blocks:
    def time(K: int) -> float:
        return max(
            share.makespan(v[group], share.loads(v[group], K, K)) for group in groups
        )

    K = (
        share.fewest(time, v.size, share.FINEST * v.size)
        if partitions is None
        else partitions
    )
    start, stop = group_blocks(v, groups, K)
    return Blocks.of(start, stop, K, len(groups) - 1)


def group_blocks(v: Floats, groups: Sequence[Ints], K: int) -> tuple[Ints, Ints]:
    """Start and stop of each worker's block; loads by speed within each group."""
    start, stop = np.zeros(v.size, dtype=np.int64), np.zeros(v.size, dtype=np.int64)
    for group in groups:
        ends = np.cumsum(share.loads(v[group], K, K))
        start[group] = np.concatenate([[0], ends[:-1]])
        stop[group] = ends
    return start, stop


def block_matrix(start: Ints, stop: Ints, partitions: int) -> object:
    """B of blocks: 1 from start to stop."""
    sizes = stop - start
    workers = np.repeat(np.arange(start.size), sizes)
    before = np.repeat(np.cumsum(sizes) - sizes, sizes)
    held = np.arange(int(sizes.sum())) - before + np.repeat(start, sizes)
    return sparse(workers, held, np.ones(held.size), (start.size, partitions))
