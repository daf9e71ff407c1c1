"""Integers of 8 or 4 bits, with a scale for each block of values.

Of a block with the largest absolute value m, each value x is sent as an integer q

    q = ⌊x/s + u⌋,   u uniform in [0, 1),   s = m/L        (L: 127 or 7)

and received as q·s. Since E⌊y + u⌋ = y, that is unbiased, whatever x is. A value is off
by less than s, with a variance of s²·p(1 − p) ≤ s²/4 for the part p of a step that it
is above an integer, and by less than s·|x|. With m² ≤ ‖x‖² of b values

    E ‖C(x) − x‖² ≤ ω·‖x‖²,   ω = min(b/(4·L²), √b/L)

Ideal: 8 or 4 bits a value. In a block of 256 the scale, a bfloat16 rounded up, adds
0.8 % or 1.6 %.

Values are drawn with 8 bits of their own and 8 that all of a chunk share, so that u has
16 bits for the price of 8: each value is unbiased to 2⁻¹⁶ of a step, which is about
what float32 allows. A chunk fits a core's cache, through which it goes once.

Paper: D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization
and Encoding", arXiv:1610.02132.

Differences from the paper:
1. A block is scaled by its largest value and not by its norm, so that fewer values
   become 0.
2. All integers have the same length; sizes are known before values are.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError, DataError, TrainingError
from melisma.learning.codecs.codec import (
    Bytes,
    Codec,
    Shapes,
    Vector,
    cut,
    values_of,
)
from melisma.learning.codecs.draws import Draws
from melisma.learning.parameters import Parameters

#: Values that are worked on at once: their scratch memory fits a core's cache.
CHUNK = 1 << 17
#: Largest value that is sent: all that may come of it is finite.
LARGEST = np.float32(3e38)
#: Least scale: 256 divided by it is finite.
LEAST_SCALE = np.float32(2.0**-118)
#: By how much a scale is larger than m/L at most: a bfloat16 has 8 bits.
ROUNDING = 1 + 2.0**-7 + 2.0**-15


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks(Codec):
    """Integers from −``levels`` to ``levels``, ``levels + 1`` added."""

    block: int = 256  #: values that have a scale together; an even number

    unbiased: ClassVar[bool] = True
    levels: ClassVar[int]

    def __post_init__(self) -> None:
        if not 2 <= self.block <= CHUNK or self.block % 2:
            raise ConfigError(
                f"{self.example} has a block of {self.block} values: give an even "
                f"number from 2 to {CHUNK}"
            )

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return it with blocks of so many values, if it says so."""
        if setting and not setting.isdecimal():
            raise ConfigError(
                f"{cls.example} {setting} has no number of values in a block: write "
                f"{cls.example!r}, or '{cls.example} 128'"
            )
        return cls(block=int(setting)) if setting else cls()

    def __str__(self) -> str:
        return self.example if self.block == 256 else f"{self.example} {self.block}"

    def variance(self, values: int) -> float:
        """Return ω, for blocks whose largest value is above 10⁻³³."""
        b, L = min(self.block, values), self.levels / ROUNDING
        return min(b / (4 * L**2), math.sqrt(b) / L)

    def packed_bytes(self, shapes: Shapes) -> int:
        """Return 2 bytes a block, and those of the integers."""
        values = values_of(shapes)
        return 2 * self._blocks(values) + self.integer_bytes(values)

    @staticmethod
    @abstractmethod
    def integer_bytes(values: int) -> int:
        """Return how many bytes so many integers take."""

    @staticmethod
    @abstractmethod
    def store(integers: Bytes, out: Bytes) -> None:
        """Write rows of integers, which have ``levels + 1`` added."""

    @staticmethod
    @abstractmethod
    def restore(stored: Bytes, out: Vector) -> None:
        """Write rows of integers as numbers."""

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Round stochastically."""
        scales, stored = self._parts(out, len(vector))
        draws = Draws(seed)
        scratch = np.empty((2, CHUNK), np.float32)  # once: new pages are slow
        for first, last, width in self._chunks(len(vector)):
            values = vector[first:last]
            if len(values) % width:  # an odd rest
                values = np.append(values, np.float32(0))
            rows = values.reshape(-1, width)
            block = first // self.block
            found = scales[block : block + len(rows)]
            integers = self._rounded(rows, found, draws, scratch)
            place = slice(self.integer_bytes(first), self.integer_bytes(last))
            self.store(integers, stored[place].reshape(len(rows), -1))

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return integers times scales."""
        values = values_of(shapes)
        scales, stored = self._parts(packed, values)
        sizes = (scales.astype(np.uint32) << 16).view(np.float32)
        most = LARGEST * np.float32(ROUNDING / self.levels)
        if not (sizes >= 0).all() or sizes.max(initial=0) > most:
            raise DataError(f"{self} came with scales that cannot be")
        vector = np.empty(values, np.float32)
        for first, last, width in self._chunks(values):
            odd = (last - first) % width
            part = np.zeros(width, np.float32) if odd else vector[first:last]
            rows = part.reshape(-1, width)
            place = slice(self.integer_bytes(first), self.integer_bytes(last))
            self.restore(stored[place].reshape(len(rows), -1), rows)
            block = first // self.block
            np.multiply(rows, sizes[block : block + len(rows), None], out=rows)
            if odd:
                vector[first:last] = part[: last - first]
        return vector

    def _rounded(
        self,
        rows: Vector,
        scales: NDArray[np.uint16],
        draws: Draws,
        scratch: Vector,
    ) -> Bytes:
        """Return ⌊x/s + u⌋ + L + 1 of each value, and write the scales of the rows."""
        work, noise = scratch[:, : rows.size]
        by_row = work.reshape(rows.shape)
        m = np.abs(rows, out=by_row).max(axis=1)
        if not m.max() <= LARGEST:
            raise TrainingError(
                f"{self} cannot encode a change with values that are not finite, or "
                f"beyond {LARGEST:.0e}: training diverged, so lower the learning rate"
            )
        # A little above m/L, so that no rounding of float32 leads beyond L; then up to
        # the next bfloat16.
        s = np.maximum(m * np.float32((1 + 2.0**-16) / self.levels), LEAST_SCALE)
        scales[:] = (s.view(np.uint32) + 0xFFFF) >> 16
        s = (scales.astype(np.uint32) << 16).view(np.float32)
        # 256·(x/s + L + 1) + 256·u is positive, so that a cast rounds it down.
        np.multiply(rows, (256 / s)[:, None], out=by_row)
        u = draws.bytes(rows.size + 1)
        shared = np.float32(256 * (self.levels + 1) + u[-1] / 256)
        np.add(u[:-1], shared, out=noise)
        np.add(work, noise, out=work)
        whole = noise.view(np.uint16)[: rows.size]  # in place of what is added
        np.copyto(whole, work, casting="unsafe")
        np.right_shift(whole, 8, out=whole)
        integers: Bytes = work.view(np.uint8)[: rows.size]
        np.copyto(integers, whole, casting="unsafe")
        return integers.reshape(rows.shape)

    def _blocks(self, values: int) -> int:
        return -(-values // self.block)

    def _parts(self, packed: Bytes, values: int) -> tuple[NDArray[np.uint16], Bytes]:
        """Return scales and integers."""
        scales, stored = cut(packed, 2 * self._blocks(values))
        return scales.view("<u2"), stored

    def _chunks(self, values: int) -> list[tuple[int, int, int]]:
        """Return where chunks of whole blocks begin and end, and the block's width.

        What is left over is a block of its own, of an even width.
        """
        whole, step = values - values % self.block, CHUNK - CHUNK % self.block
        chunks = [(a, min(a + step, whole), self.block) for a in range(0, whole, step)]
        rest = values - whole
        return chunks + ([(whole, values, rest + rest % 2)] if rest else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8(_Blocks):
    """A byte a value."""

    example: ClassVar[str] = "int8"
    levels: ClassVar[int] = 127

    @staticmethod
    def integer_bytes(values: int) -> int:
        """Return a byte for each."""
        return values

    @staticmethod
    def store(integers: Bytes, out: Bytes) -> None:
        """Write them as signed integers: 128 is taken off."""
        np.bitwise_xor(integers[:, : out.shape[1]], 128, out=out)

    @staticmethod
    def restore(stored: Bytes, out: Vector) -> None:
        """Read signed integers."""
        np.copyto(out[:, : stored.shape[1]], stored.view(np.int8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Int4(_Blocks):
    """Two values a byte: one of a block's first half, and one of its second above."""

    example: ClassVar[str] = "int4"
    levels: ClassVar[int] = 7

    @staticmethod
    def integer_bytes(values: int) -> int:
        """Return half a byte for each."""
        return -(-values // 2)

    @staticmethod
    def store(integers: Bytes, out: Bytes) -> None:
        """Write them as they are, 1 to 15."""
        half = out.shape[1]
        np.left_shift(integers[:, half:], 4, out=out)
        np.bitwise_or(out, integers[:, :half], out=out)

    @staticmethod
    def restore(stored: Bytes, out: Vector) -> None:
        """Take 8 off again."""
        half = stored.shape[1]
        np.copyto(out[:, :half], ((stored & 15) - 8).view(np.int8))
        np.copyto(out[:, half:], ((stored >> 4) - 8).view(np.int8))
