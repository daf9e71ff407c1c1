"""Codes with random coefficients: each partition at s + 1 workers, any of whom may go.

    cyclic    as many partitions as workers; partition k is at workers k, k−1, …, k−s
    hetero    loads follow speeds, laid end to end on a ring of K partitions
    assisted  each partition has an owner, who sends a plain sum, and s helpers

*Coefficients.* C is a random (s+1) × M matrix, any s + 1 columns of which are
independent. For partition k at workers S solve C[:, S]·b = 1: so C·B = 1 in all rows.

*Decoding.* Any y with y·1 = 1 gives weights a = y·C with a·B = 1. There are s free
directions, orthonormal rows N, and a shortest solution a₀ ⟂ N; weights that are zero on
the missing T solve z·N[:, T] = −a₀[T]: cost s³, not M³. Of all solutions the shortest
is taken, the one that amplifies rounding errors least, as rows of B have length 1.

Where the layout leaves more freedom than s (blocks that coincide), N spans all of it,
so that what can be decoded with more than s missing is decoded.

*Plain owners.* The owners' sums alone make up the whole: a₀ is 1 on owners, 0 on
helpers. So only N is to be drawn: s × M, any s columns independent. For a partition at
owner o and helpers S solve N[:, S]·b = −N[:, o], and the owner's coefficient is 1.
Any s missing T are decoded around, since N[:, T] can be inverted.

Papers: H. Wang, S. Guo, B. Tang, R. Li, C. Li, "Heterogeneity-aware Gradient Coding for
Straggler Tolerance", ICDCS 2019; R. Tandon et al., "Gradient Coding", ICML 2017.

Differences from the papers:
1. The cyclic code has the layout of Tandon et al. and the coefficients of Wang et al.:
   theirs, row by row from the null space of a random H, decode with larger errors.
2. C is drawn up to twenty times and the best conditioned one is kept.
3. Loads are whole numbers of least makespan, none above K.
4. Plain owners are ours: see ``two_stage`` for what they are for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from melisma.coding import loads as share
from melisma.coding.code import Code, sparse
from melisma.maths.arrays import Bools, Floats, Ints

DRAWS = 20  #: of C at most
WORK = 2e10  #: operations that drawing may take, at about 2e9 a second
CHUNK = 1 << 23  #: numbers in the systems that are solved at a time
RANK = 1e-9  #: part of the largest pivot under which one counts as 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spanning(Code):
    """Decodes by linear algebra in the space of all weights with aB = 1."""

    base: Floats  #: a₀, the shortest weights with all alive
    free: Floats  #: N, orthonormal rows, NB = 0

    def _weights(self, alive: Bools) -> Floats:
        from scipy.linalg import lstsq

        gone = ~alive & (self.loads > 0)
        weights = self.base.copy()
        if gone.any():
            z = lstsq(
                self.free[:, gone].T,
                -self.base[gone],
                cond=1e-13,
                lapack_driver="gelsy",
                check_finite=False,
            )[0]
            weights += z @ self.free
        weights[~alive] = 0.0
        return weights


def cyclic(*, workers: int, stragglers: int, seed: int = 0) -> Spanning:
    """Cyclic repetition: s + 1 neighbouring partitions for every worker."""
    share.checked(workers, stragglers, None)
    holders = (np.arange(workers)[:, None] - np.arange(stragglers + 1)) % workers
    return spanning(holders, workers, np.random.default_rng(seed))


def hetero(
    *,
    workers: int,
    stragglers: int,
    seed: int = 0,
    speeds: ArrayLike | None = None,
    partitions: int | None = None,
) -> Spanning:
    """Heterogeneity-aware: every partition at s + 1 workers, loads by speed."""
    v = share.checked(workers, stragglers, speeds, partitions)
    copies = stragglers + 1

    def time(K: int) -> float:
        return share.makespan(v, share.loads(v, copies * K, K))

    K = (
        share.fewest(time, workers, share.FINEST * workers)
        if partitions is None
        else partitions
    )
    holders = ring(share.loads(v, copies * K, K), K)
    return spanning(holders, workers, np.random.default_rng(seed))


def ring(loads: Ints, partitions: int) -> Ints:
    """Holders of each partition, partitions × copies, from loads laid end to end."""
    laid = np.repeat(np.arange(loads.size), loads)
    return laid.reshape(-1, partitions).T


def spanning(holders: Ints, workers: int, rng: np.random.Generator) -> Spanning:
    """The best conditioned of several random codes, given who holds each partition."""
    C, b = _best(holders, lambda some: _coefficients(some, workers, rng))
    B = _matrix(holders, b, workers)
    length = np.sqrt(B.multiply(B).sum(axis=1))
    scale = np.where(length > 0, length, 1.0)
    B.data /= np.repeat(scale, np.diff(B.indptr))
    C = np.where(length > 0, C * scale, 0.0)
    # Differences of the rows of C are the directions in which weights are free.
    return _spanning(B, C.mean(axis=0), C[1:] - C[0])


def assisted(
    owners: Ints, helpers: Ints, workers: int, rng: np.random.Generator
) -> Spanning:
    """The best conditioned of several random codes whose owners send plain sums.

    ``owners`` has one worker for each partition, ``helpers`` s of them.
    """
    holders = np.column_stack([owners, helpers])
    N, b = _best(holders, lambda some: _cancelling(some, workers, rng))
    B = _matrix(holders, b, workers)
    base = np.zeros(workers)
    base[owners] = 1.0
    return _spanning(B, base, np.where(np.diff(B.indptr) > 0, N, 0.0))


def _best(
    holders: Ints, draw: Callable[[Ints], tuple[Floats, Floats]]
) -> tuple[Floats, Floats]:
    """Of some draws of a matrix and each partition's b, that with the smallest b."""
    first = np.flatnonzero(
        np.diff(holders, axis=0, prepend=-1).any(axis=1)
    )  # neighbours at the same workers share their coefficients
    draws = int(np.clip(WORK / (first.size * float(holders.shape[1]) ** 3), 1, DRAWS))
    drawn = [draw(holders[first]) for _ in range(draws)]
    matrix, b = min(drawn, key=lambda one: float(np.abs(one[1]).max()))
    return matrix, np.repeat(b, np.diff(first, append=len(holders)), axis=0)


def _coefficients(
    holders: Ints, workers: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """C, and b of each partition."""
    C = rng.standard_normal((holders.shape[1], workers))
    return C, _solved(C, holders, np.ones((len(holders), len(C))))


def _cancelling(
    holders: Ints, workers: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """N, with columns of length 1, and b of each partition: its owner's is 1."""
    N = rng.standard_normal((holders.shape[1] - 1, workers))
    if len(N):
        N /= np.linalg.norm(N, axis=0)
    b = _solved(N, holders[:, 1:], -N.T[holders[:, 0]])
    return N, np.column_stack([np.ones(len(holders)), b])


def _solved(matrix: Floats, columns: Ints, wanted: Floats) -> Floats:
    """x with matrix[:, columns]·x = wanted, row by row."""
    pieces = 1 + columns.size * columns.shape[1] // CHUNK
    x = [
        np.linalg.solve(matrix.T[some].swapaxes(1, 2), right[..., None])[..., 0]
        for some, right in zip(
            np.array_split(columns, pieces), np.array_split(wanted, pieces), strict=True
        )
    ]
    return np.concatenate(x)


def _matrix(holders: Ints, b: Floats, workers: int) -> Any:
    """B, given who holds each partition, and with which coefficients."""
    K, copies = holders.shape
    held = np.repeat(np.arange(K), copies)
    return sparse(holders.ravel(), held, b.ravel(), (workers, K))


def _spanning(B: Any, base: Floats, known: Floats) -> Spanning:
    """The code, from some weights with aB = 1, and known directions with nB = 0."""
    free: Floats = np.linalg.qr(_freedom(B, known).T)[0].T
    return Spanning(
        matrix=B,
        stragglers=len(known),
        base=base - (base @ free.T) @ free,
        free=free,
    )


def _freedom(B: Any, known: Floats) -> Floats:
    """A basis of all n with nB = 0: ``known``, unless there are more."""
    from scipy.linalg import qr

    loaded = np.flatnonzero(np.diff(B.indptr))
    dense = B[loaded].toarray()
    distinct = np.flatnonzero((np.diff(dense, axis=1, prepend=np.nan) != 0).any(axis=0))
    Q, R, _ = qr(dense[:, distinct], pivoting=True)
    pivots = np.abs(np.diag(R))
    rank = int((pivots > RANK * pivots[0]).sum())
    if loaded.size - rank <= len(known):
        return known
    free = np.zeros((loaded.size - rank, B.shape[0]))
    free[:, loaded] = Q[:, rank:].T
    return free
