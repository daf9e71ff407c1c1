"""PowerSGD: a matrix as the product of two thin ones.

    minimise    ‖M − P·Qᵀ‖        P: m × r, Q: n × r

by one step of subspace iteration from a Q of before:

    P = orthonormal(M·Q),   Q = Mᵀ·P

so that P·Qᵀ = P·Pᵀ·M is a projection of M: never farther from it than 0 is. With the Q
of the cycle before (`Feedback` keeps it), steps add up where changes are alike; the
first Q is drawn by the seed. Tensors of more dimensions are matrices of their first and
all others; vectors, and matrices that would not become smaller, are sent as float32.

Ideal: 32·r·(m + n) bits a matrix, which is what is sent. What is drawn is the same on
every machine; products of matrices are not, to the last bit.

Paper: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank Gradient
Compression for Distributed Optimization", arXiv:1905.13727.

Differences from the paper:
1. P is each learner's own, not the mean of all: one message, and no second one in
   between.
2. P is orthonormal by Householder's QR in float64, not by Gram and Schmidt.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from melisma.errors import ConfigError, DataError
from melisma.learning.codecs.codec import (
    Bytes,
    Codec,
    Encoded,
    Shapes,
    Vector,
    check_finite,
    cut,
    is_finite,
    shapes_of,
    values_of,
)
from melisma.learning.codecs.draws import Draws
from melisma.learning.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSGD(Codec):
    """Matrices by products of low rank."""

    rank: int  #: r

    example: ClassVar[str] = "powersgd 4"
    feeds_back: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"{self} has no rank of 1 or more")

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it for a rank."""
        if not setting.isdecimal():
            raise ConfigError(
                f"{'powersgd ' + setting!r} has no rank: write for example 'powersgd 4'"
            )
        return cls(rank=int(setting))

    def __str__(self) -> str:
        return f"powersgd {self.rank}"

    def contraction(self, values: int) -> float:
        """Return 0: it is a projection, and how much of M it has depends on M."""
        return 0.0

    def packed_bytes(self, shapes: Shapes) -> int:
        """Return 4 bytes for each number of P, Q and what has none."""
        return 4 * sum(
            self.rank * (m + n) if self._is_thin(m, n) else m * n
            for m, n in map(_sides, shapes.values())
        )

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Write P and Q of each matrix, one after the other."""
        check_finite(vector, str(self))
        numbers, draws = out.view("<f4"), Draws(seed)
        for name, m, n, packed, part in self._parts(numbers, vector, shapes):
            if not self._is_thin(m, n):
                packed[:] = part
                continue
            matrix = torch.from_numpy(part).view(m, n)
            p, q = self._factors(matrix, self._first(start.get(name), n, draws))
            packed[: p.numel()] = p.reshape(-1).numpy()
            packed[p.numel() :] = q.reshape(-1).numpy()
        # What overflows in a product is not finite here.
        check_finite(np.ascontiguousarray(numbers), str(self))

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return P·Qᵀ of each matrix."""
        numbers = packed.view("<f4").astype(np.float32)
        vector = np.empty(values_of(shapes), np.float32)
        for _, m, n, found, part in self._parts(numbers, vector, shapes):
            if not self._is_thin(m, n):
                part[:] = found
                continue
            p, q = (torch.from_numpy(f) for f in cut(found, m * self.rank))
            product = torch.from_numpy(part).view(m, n)
            torch.mm(p.view(m, -1), q.view(n, -1).T, out=product)
        if not is_finite(numbers) or not is_finite(vector):
            raise DataError(f"{self} came with values that are not finite")
        return vector

    def next_start(self, encoded: Encoded, like: Parameters) -> Parameters:
        """Return Q of each matrix."""
        shapes = shapes_of(like)
        packed = encoded.payload[: self.packed_bytes(shapes)]
        numbers = packed.view("<f4").astype(np.float32)
        return {
            name: torch.from_numpy(found[m * self.rank :].copy()).view(n, self.rank)
            for name, m, n, found, _ in self._parts(numbers, numbers, shapes)
            if self._is_thin(m, n)
        }

    def _first(self, start: Tensor | None, n: int, draws: Draws) -> Tensor:
        """Return the Q to begin with."""
        drawn = torch.from_numpy(draws.uniform(n * self.rank)).view(n, self.rank)
        if start is not None and start.shape != drawn.shape:
            raise DataError("the checkpoint has a Q of another shape: of another job")
        return drawn if start is None else start.float()

    @staticmethod
    def _factors(matrix: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.linalg.qr((matrix @ q).double()).Q.float()
        return p, matrix.T @ p

    def _is_thin(self, m: int, n: int) -> bool:
        return self.rank * (m + n) < m * n

    def _parts(
        self, numbers: Vector, vector: Vector, shapes: Shapes
    ) -> Iterator[tuple[str, int, int, Vector, Vector]]:
        """Each tensor's name, its sides, its part of what is sent and of the vector."""
        sent = whole = 0
        for name, shape in shapes.items():
            m, n = _sides(shape)
            size = self.rank * (m + n) if self._is_thin(m, n) else m * n
            yield name, m, n, numbers[sent : sent + size], vector[whole : whole + m * n]
            sent, whole = sent + size, whole + m * n


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the sides of the matrix that a tensor is.

    >>> _sides((8, 3, 5)), _sides((7,)), _sides(())
    ((8, 15), (1, 7), (1, 1))
    """
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
