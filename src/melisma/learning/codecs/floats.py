"""Values as shorter floating-point numbers, to nearest (ties to even).

    fp32   4 bytes    exact
    fp16   2 bytes    11 bits, up to 65504; what is below 6·10⁻⁸ becomes 0
    bf16   2 bytes    8 bits, the range of float32: |C(x) − x| ≤ 2⁻⁹·|x|

These are also the ideal sizes.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from melisma.errors import DataError, TrainingError
from melisma.learning.codecs.codec import (
    Bytes,
    Codec,
    Shapes,
    Vector,
    check_finite,
    is_finite,
    values_of,
)
from melisma.learning.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp32(Codec):
    """Float32, which most models are in."""

    unbiased: ClassVar[bool] = True
    example: ClassVar[str] = "fp32"

    def __str__(self) -> str:
        return "fp32"

    def variance(self, values: int) -> float:
        """Return 0: nothing is lost."""
        return 0.0

    def packed_bytes(self, shapes: Shapes) -> int:
        """Return 4 bytes a value."""
        return 4 * values_of(shapes)

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Copy the vector."""
        check_finite(vector, "fp32")
        out.view("<f4")[:] = vector

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return the vector."""
        vector = packed.view("<f4").astype(np.float32)
        if not is_finite(vector):
            raise DataError("fp32 came with values that are not finite")
        return vector


class _Half(Codec):
    """16 bits a value; from ``infinity`` on, without sign, they are no numbers."""

    __slots__ = ()
    infinity: ClassVar[int]
    most: ClassVar[str]

    def __str__(self) -> str:
        return self.example

    def packed_bytes(self, shapes: Shapes) -> int:
        """Return 2 bytes a value."""
        return 2 * values_of(shapes)

    def _is_finite(self, bits: NDArray[np.uint16]) -> bool:
        return bool((bits & 0x7FFF).max(initial=0) < self.infinity)

    def _check_sent(self, bits: NDArray[np.uint16]) -> None:
        if not self._is_finite(bits):
            raise TrainingError(
                f"{self} cannot encode a change with values that are not finite, or "
                f"beyond {self.most}: training diverged, so lower the learning rate"
            )

    def _check_received(self, bits: NDArray[np.uint16]) -> None:
        if not self._is_finite(bits):
            raise DataError(f"{self} came with values that are not finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp16(_Half):
    """IEEE's half precision."""

    example: ClassVar[str] = "fp16"
    infinity: ClassVar[int] = 0x7C00
    most: ClassVar[str] = "65504"

    def contraction(self, values: int) -> float:
        """Return 0: what is too small becomes 0, and nothing else is sure."""
        return 0.0

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Round to nearest."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            np.copyto(out.view("<f2"), vector, casting="unsafe")
        self._check_sent(out.view("<u2"))

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return the vector."""
        self._check_received(packed.view("<u2"))
        return packed.view("<f2").astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bf16(_Half):
    """The upper half of a float32."""

    example: ClassVar[str] = "bf16"
    infinity: ClassVar[int] = 0x7F80
    most: ClassVar[str] = "3.39·10³⁸"

    def contraction(self, values: int) -> float:
        """Return 1 − 2⁻¹⁸: a value is off by 2⁻⁹ of itself at most."""
        return 1 - 2.0**-18

    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Round to nearest."""
        rounded = torch.from_numpy(vector).bfloat16().view(torch.int16)
        out.view("<i2")[:] = rounded.numpy()
        self._check_sent(out.view("<u2"))

    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return the vector."""
        self._check_received(packed.view("<u2"))
        whole = packed.view("<u2").astype(np.uint32)
        return np.left_shift(whole, 16, out=whole).view(np.float32)
