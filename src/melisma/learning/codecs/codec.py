"""What all codecs have in common: vectors out of tensors, checks, sizes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from melisma.errors import ConfigError, DataError, TrainingError, readable
from melisma.learning import tensors as memory
from melisma.learning.parameters import Parameters

Bytes = NDArray[np.uint8]
Vector = NDArray[np.float32]
#: Shapes of the floating-point tensors, in the order in which they travel.
Shapes = Mapping[str, tuple[int, ...]]
Scalar = TypeVar("Scalar", bound=np.generic)

#: Seeds are below: a signed integer of 64 bits holds them.
SEEDS = 1 << 63


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors as they travel."""

    codec: str  #: as a job writes it
    seed: int  #: of what was drawn
    payload: Bytes


class Codec(ABC):
    """Makes tensors smaller, and restores them.

    How far C(x) is from x is known of most, as a share of ‖x‖²:

        unbiased   E C(x) = x,  E ‖C(x) − x‖² ≤ ω·‖x‖²            (variance)
        biased                  E ‖C(x) − x‖² ≤ (1 − δ)·‖x‖²      (contraction)
    """

    __slots__ = ()

    unbiased: ClassVar[bool] = False
    #: Leaves out so much that a sender is to add it to what comes next.
    feeds_back: ClassVar[bool] = False
    #: How a job may write it.
    example: ClassVar[str]

    @classmethod
    def of(cls, setting: str) -> Self:
        """Return the codec with what a job writes after its name; or ConfigError."""
        if setting:
            raise ConfigError(f"{cls.example} takes no setting, but has {setting!r}")
        return cls()

    @abstractmethod
    def packed_bytes(self, shapes: Shapes) -> int:
        """Return how many bytes the vector of these shapes takes."""

    @abstractmethod
    def pack(
        self, vector: Vector, shapes: Shapes, out: Bytes, seed: int, start: Parameters
    ) -> None:
        """Write a vector; TrainingError if a value is not finite, or too large."""

    @abstractmethod
    def unpack(self, packed: Bytes, shapes: Shapes, seed: int) -> Vector:
        """Return the vector, of finite values; DataError if this is none."""

    def variance(self, values: int) -> float | None:
        """Return ω for a vector of so many values; None if it is biased."""
        return None

    def contraction(self, values: int) -> float | None:
        """Return δ for a vector of so many values; None if it is unbiased."""
        return None

    def damping(self, values: int) -> float:
        """Return by what error feedback multiplies, so that no residual grows."""
        return 1.0

    def next_start(self, encoded: Encoded, like: Parameters) -> Parameters:
        """Return what the next ``encode`` is to start from, if from anything."""
        return {}

    def size_bytes(self, like: Parameters) -> int:
        """Return how many bytes a payload has; only shapes and types are read."""
        others = (t.nbytes for t in _others(like).values())
        return self.packed_bytes(shapes_of(like)) + sum(others)

    def encode(
        self, tensors: Parameters, seed: int, start: Parameters | None = None
    ) -> Encoded:
        """Return the tensors as they travel; the same bytes for the same seed.

        Raises TrainingError if a value is not finite, or beyond what the codec holds.
        """
        if not 0 <= seed < SEEDS:
            raise ValueError(f"a seed of {seed} is not between 0 and 2⁶³ − 1")
        shapes = shapes_of(tensors)
        payload = np.empty(self.size_bytes(tensors), np.uint8)
        out, rest = cut(payload, self.packed_bytes(shapes))
        self.pack(_vector(tensors), shapes, out, seed, start or {})
        for tensor in _others(tensors).values():
            array = memory.to_array(tensor)[1].reshape(-1).view(np.uint8)
            rest[: array.size] = array
            rest = rest[array.size :]
        return Encoded(codec=str(self), seed=seed, payload=payload)

    def decode(self, encoded: object, like: Parameters) -> Parameters:
        """Return tensors of the names, shapes and types of ``like``, all finite.

        Only shapes and types of ``like`` are read, which may be on the meta device. The
        tensors are on the CPU. Raises DataError for anything that ``encode`` does not
        give.
        """
        payload, seed = self._checked(encoded, like)
        shapes = shapes_of(like)
        packed, rest = cut(payload, self.packed_bytes(shapes))
        vector = torch.from_numpy(self.unpack(packed, shapes, seed))
        found, first = Parameters(), 0
        for name, shape in shapes.items():
            last = first + math.prod(shape)
            found[name] = vector[first:last].reshape(shape).to(like[name].dtype)
            first = last
        for name, tensor in _others(like).items():
            kind = str(tensor.dtype).removeprefix("torch.")
            part, rest = rest[: tensor.nbytes].copy(), rest[tensor.nbytes :]
            if kind == "bool" and part.max(initial=0) > 1:
                raise DataError(f"{name!r} came with booleans that are neither")
            found[name] = memory.from_array(kind, part).reshape(tensor.shape)
        for name, tensor in found.items():
            is_checked = tensor.dtype == torch.float32 or not _may_be_infinite(tensor)
            if not is_checked and not bool(tensor.isfinite().all()):
                raise DataError(f"{name!r} came with values that are not finite")
        return {name: found[name] for name in like}

    def _checked(self, encoded: object, like: Parameters) -> tuple[Bytes, int]:
        """Return payload and seed, of the right types and size; DataError otherwise."""
        came: Any = encoded.codec if isinstance(encoded, Encoded) else encoded
        if (
            not isinstance(encoded, Encoded)
            or type(came) is not str
            or came != str(self)
        ):
            shown = came if type(came) is str else type(came).__name__
            raise DataError(f"{readable(shown)!r} came in place of {self}")
        seed: Any = encoded.seed
        if type(seed) is not int or not 0 <= seed < SEEDS:
            raise DataError(f"{self} came with a seed that is none")
        payload: Any = encoded.payload
        expected = self.size_bytes(like)
        is_flat = isinstance(payload, np.ndarray) and payload.ndim == 1
        if not is_flat or payload.dtype != np.uint8 or payload.size != expected:
            raise DataError(f"{self} came as other than the {expected} bytes it takes")
        return np.ascontiguousarray(payload), seed


def shapes_of(like: Parameters) -> dict[str, tuple[int, ...]]:
    """Return the shapes of floating-point tensors, in the order of their names."""
    return {
        n: tuple(like[n].shape) for n in sorted(like) if like[n].is_floating_point()
    }


def values_of(shapes: Shapes) -> int:
    """Return how many values there are in all."""
    return sum(map(math.prod, shapes.values()))


def cut(array: NDArray[Scalar], first: int) -> tuple[NDArray[Scalar], ...]:
    """Return the first so many items, and all others."""
    return array[:first], array[first:]


def check_finite(values: NDArray[Any], what: str) -> None:
    """Raise TrainingError if a value to be sent is not finite."""
    if not is_finite(values):
        raise TrainingError(
            f"{what} cannot encode a change with values that are not finite: training "
            "diverged, so lower the learning rate"
        )


def is_finite(values: NDArray[Any]) -> bool:
    """Return whether there is no NaN and no infinity."""
    tensor = torch.from_numpy(values)
    # A sum is finite only if all its terms are; it may overflow where they are.
    return math.isfinite(tensor.sum()) or bool(tensor.isfinite().all())


def _others(like: Parameters) -> Parameters:
    return {n: like[n] for n in sorted(like) if not like[n].is_floating_point()}


def _vector(tensors: Parameters) -> Vector:
    parts = [
        tensors[name].detach().cpu().float().reshape(-1) for name in shapes_of(tensors)
    ]
    whole = parts[0] if len(parts) == 1 else torch.cat([torch.empty(0), *parts])
    return whole.numpy()


def _may_be_infinite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
