"""Gradient codes: the shape that all of them have.

M workers, K partitions of the data, a matrix B (M × K). Worker m computes the
gradients gₖ of the partitions in its row and sends uₘ = Σₖ B[m,k]·gₖ. The
decoder looks for weights a, zero for workers that did not answer, with a·B = 1:

    Σₘ aₘ·uₘ = Σₖ gₖ                                    (the sum, not the mean)

Only additions of gradients are coded, so that nothing here knows what a gradient is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from melisma.coding.combine import combine
from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Bools, Floats, Ints

#: Largest ‖aB − 1‖ / √K that still counts as decoded.
TOLERANCE = 1e-7
LISTED = 8  #: workers or partitions that a message names at most


class NotDecodable(InfeasibleError):
    """The answers that are there do not determine the sum of all gradients."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Code(ABC):
    """Who computes what, how answers are encoded, and how they are decoded."""

    matrix: Any  #: B, workers × partitions, a scipy.sparse.csr_array
    stragglers: int  #: s: any so many workers may be missing

    @property
    def workers(self) -> int:
        """M, how many workers there are."""
        return int(self.matrix.shape[0])

    @property
    def partitions(self) -> int:
        """K, how many parts the data is cut into."""
        return int(self.matrix.shape[1])

    @property
    def loads(self) -> Ints:
        """How many partitions each worker computes."""
        held: Ints = np.diff(self.matrix.indptr).astype(np.int64)
        return held

    def work(self, worker: int) -> Ints:
        """Which partitions a worker computes."""
        return self._of(worker, self.matrix.indices).astype(np.int64)

    def row(self, worker: int) -> Floats:
        """A worker's coefficients, one for each partition of ``work``."""
        return self._of(worker, self.matrix.data)

    def _of(self, worker: int, entries: NDArray[Any]) -> NDArray[Any]:
        if not 0 <= worker < self.workers:
            raise ConfigError(f"worker {worker} of {self.workers}: they count from 0")
        low, high = self.matrix.indptr[worker : worker + 2]
        return entries[low:high]

    def answer(self, worker: int, gradients: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """uₘ from the gradients of a worker's own partitions, in the order of ``work``.

        ValueError for a worker without any, who has nothing to answer.
        """
        return combine(self.row(worker), gradients)

    def encode(self, gradients: NDArray[Any]) -> NDArray[Any]:
        """Every worker's answer, workers × anything, from partitions × anything."""
        if len(gradients) != self.partitions:
            raise ConfigError(
                f"{len(gradients)} gradients for {self.partitions} partitions: "
                "give one row each"
            )
        kind = np.result_type(gradients, np.float32)
        rows = np.zeros((self.workers, *gradients.shape[1:]), dtype=kind)
        for w in np.flatnonzero(self.loads).tolist():
            rows[w] = self.answer(w, [gradients[k] for k in self.work(w).tolist()])
        return rows

    def decode(self, alive: ArrayLike) -> Floats:
        """One weight per worker, 0 for those who are not alive; float64.

        ``alive`` is a mask over workers or their numbers. Raises NotDecodable.
        """
        mask = self.mask(alive)
        weights = self._weights(mask)
        if self.error(weights) > TOLERANCE:
            raise NotDecodable(self._lacking(mask))
        return weights

    def decodable(self, alive: ArrayLike) -> bool:
        """Whether ``decode`` would give weights."""
        mask = self.mask(alive)
        if not self.covered(mask).all():
            return False  # quick, and right: nobody knows that partition
        return self.error(self._weights(mask)) <= TOLERANCE

    @abstractmethod
    def _weights(self, alive: Bools) -> Floats:
        """Weights, 0 on those who are not alive, with aB = 1 wherever that can be."""

    def best_effort(self, alive: ArrayLike) -> tuple[Floats, float]:
        """Weights with the least ‖aB − 1‖ / √K, and that error.

        It bounds the error of the decoded sum: ‖Σ aₘuₘ − Σ gₖ‖ is at most error·√K
        times the spectral norm of the gradients (partitions × parameters).
        """
        mask = self.mask(alive)
        weights = np.zeros(self.workers)
        B = self.matrix[mask].toarray()
        # Partitions with the same column, which lie side by side, count as one.
        first = np.flatnonzero((np.diff(B, axis=1, prepend=np.nan) != 0).any(axis=0))
        share = np.sqrt(np.diff(first, append=self.partitions))
        if first.size:
            A = (B[:, first] * share).T
            weights[mask] = np.linalg.lstsq(A, share)[0]
        return weights, self.error(weights)

    def error(self, weights: Floats) -> float:
        """‖aB − 1‖ / √K: 0 where the sum is decoded exactly, 1 where nothing is."""
        return float(np.sqrt(np.mean((self.matrix.T @ weights - 1.0) ** 2)))

    def amplification(self, weights: Floats) -> float:
        """How much larger than in a plain sum rounding errors of answers become.

        √(Σ aₘ²‖Bₘ‖² / K): 1 for uncoded answers. Answers in float32 lose a digit for
        each factor of ten.
        """
        squares = self.matrix.multiply(self.matrix).sum(axis=1)
        return float(np.sqrt(weights**2 @ squares / self.partitions))

    def covered(self, alive: Bools) -> Bools:
        """Which partitions somebody alive computes."""
        known: Bools = np.zeros(self.partitions, dtype=np.bool_)
        held = np.repeat(alive, self.loads)
        known[self.matrix.indices[held]] = True
        return known

    def mask(self, alive: ArrayLike) -> Bools:
        """Who is alive, as one boolean per worker, from that or from their numbers."""
        given = np.asarray(alive)
        if given.dtype == np.bool_ and given.shape == (self.workers,):
            return given
        numbers = given.astype(np.int64) if given.size else np.zeros(0, dtype=np.int64)
        known = (given.dtype != np.bool_) & (numbers >= 0) & (numbers < self.workers)
        if given.ndim != 1 or not known.all():
            raise ConfigError(
                f"alive is {alive!r}: give {self.workers} booleans or worker numbers "
                f"below {self.workers}"
            )
        mask = np.zeros(self.workers, dtype=np.bool_)
        mask[numbers] = True
        return mask

    def _lacking(self, alive: Bools) -> str:
        missing, lost = np.flatnonzero(~alive), np.flatnonzero(~self.covered(alive))
        why = (
            f"nobody has partition {listed(lost)}"
            if lost.size
            else "their answers do not add up to every partition"
        )
        return (
            f"not yet decodable: {int(alive.sum())} of {self.workers} workers have "
            f"answered, {listed(missing)} have not, and {why}. {self._advice()}, or "
            "take best_effort"
        )

    def _advice(self) -> str:
        return f"Any {self.stragglers} may be missing: wait for more answers"


def listed(numbers: Ints) -> str:
    """The first few numbers, in words.

    >>> listed(np.array([3, 4]))
    '3, 4'
    """
    shown = ", ".join(map(str, numbers[:LISTED].tolist()))
    rest = len(numbers) - LISTED
    return f"{shown} and {rest} more" if rest > 0 else shown


def sparse(
    workers: Ints, partitions: Ints, values: Floats, shape: tuple[int, int]
) -> Any:
    """B from its entries, rows in order of partitions."""
    from scipy.sparse import csr_array

    B = csr_array((values, (workers, partitions)), shape=shape)
    B.sort_indices()
    return B
