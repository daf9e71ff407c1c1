"""Codes, patterns and oracles that the tests of coding share."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from melisma.coding import CODES, Code
from melisma.maths.arrays import Bools, Floats

CODED = ("fractional", "cyclic", "hetero")  #: tolerate s in one stage
TESTBED = (
    np.array([2.0, 2.0, 4.0, 4.0, 8.0, 8.0]) / 28.0
)  #: the paper's cores, as speeds


def make(name: str, workers: int, stragglers: int, seed: int = 0) -> Code:
    """A code whose loads follow random speeds where they can follow any."""
    if name == "cyclic":
        return CODES[name](workers=workers, stragglers=stragglers, seed=seed)
    speeds = np.random.default_rng([seed, workers, stragglers]).uniform(1, 5, workers)
    return CODES[name](workers=workers, stragglers=stragglers, seed=seed, speeds=speeds)


def patterns(workers: int, missing: int) -> Iterator[Bools]:
    """Who is alive, for all ways to miss at most so many."""
    for count in range(missing + 1):
        for gone in combinations(range(workers), count):
            alive = np.ones(workers, dtype=np.bool_)
            alive[list(gone)] = False
            yield alive


def sampled(workers: int, missing: int, count: int, seed: int = 0) -> Iterator[Bools]:
    """Random patterns of exactly so many missing, each fourth of them neighbours."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        gone = rng.permutation(workers)[:missing]
        if i % 4 == 0:
            gone = (rng.integers(workers) + np.arange(missing)) % workers
        alive = np.ones(workers, dtype=np.bool_)
        alive[gone] = False
        yield alive


def spans(code: Code, alive: Bools) -> bool:
    """Whether rows of B make up all ones: by rank, with nothing of the code's own."""
    rows = code.matrix.toarray()[alive]
    if not rows.any():
        return False
    ones = np.ones((1, code.partitions))
    rank = np.linalg.matrix_rank(rows, tol=1e-9)
    return bool(np.linalg.matrix_rank(np.vstack([rows, ones]), tol=1e-9) == rank)


def gradients(code: Code, parameters: int = 5, seed: int = 0) -> Floats:
    """One random gradient a partition."""
    return np.random.default_rng(seed).standard_normal((code.partitions, parameters))


def decode_error(code: Code, alive: Bools, g: Floats, answers: Floats) -> float:
    """Relative error of the decoded sum."""
    whole = g.sum(axis=0)
    found = code.decode(alive) @ answers
    return float(np.linalg.norm(found - whole) / np.linalg.norm(whole))
