"""Results of trials on disk, one file each, so that a sweep can be resumed.

A result is made of numbers, text, lists, dictionaries, structs, dataclasses and arrays;
it is decoded as the type that the trial is annotated to return. No pickle: nothing in a
file is executed.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin

import msgspec
import numpy as np
from numpy.lib import format as npy

from melisma.errors import DataError

Kind = TypeVar("Kind")

_ARRAY = 1  #: msgpack extension: an array as a .npy file holds it


class Parts(Generic[Kind]):
    """Results of one type in a folder, by name; TypeError if it cannot be decoded."""

    def __init__(self, folder: Path, kind: Any) -> None:
        self._folder = folder
        self._decoder: msgspec.msgpack.Decoder[Kind] = msgspec.msgpack.Decoder(
            kind, dec_hook=_read_custom, ext_hook=_read_array
        )

    def write(self, name: str, result: Kind) -> None:
        """Save a result, all of it or nothing; TypeError if it cannot be encoded."""
        data = encoded(result)
        self._folder.mkdir(parents=True, exist_ok=True)
        half = self._folder / f"{name}.{os.getpid()}"
        half.write_bytes(data)
        half.replace(self._file(name))

    def __contains__(self, name: str) -> bool:
        return self._file(name).exists()

    def read(self, name: str) -> Kind:
        """Return a saved result; DataError if its file is damaged."""
        file = self._file(name)
        try:
            return self._decoder.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError, ValueError) as error:
            raise DataError(
                f"{file}: {error}: delete it, and the trial is done again"
            ) from error

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.msgpack"


def encoded(
    result: object, otherwise: Callable[[object], object] | None = None
) -> bytes:
    """Return a result as bytes; ``otherwise`` converts values of unknown types.

    Without it such a value is a TypeError.
    """

    def written(value: object) -> object:
        known = _written(value)
        if known is not None:
            return known
        if otherwise is None:
            raise TypeError(f"a result of type {type(value).__name__} cannot be saved")
        return otherwise(value)

    return msgspec.msgpack.encode(result, enc_hook=written)


def _written(value: object) -> Any:
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        npy.write_array(file, value, allow_pickle=False)
        return msgspec.msgpack.Ext(_ARRAY, file.getvalue())
    if isinstance(value, np.generic):
        return value.item()
    return (
        float(value) if isinstance(value, float) else None
    )  # a float subclass with a unit


def _read_array(code: int, data: memoryview) -> object:
    if code != _ARRAY:
        raise ValueError(f"msgpack extension {code} is unknown")
    return npy.read_array(io.BytesIO(data), allow_pickle=False)


def _read_custom(kind: Any, value: object) -> object:
    kind = get_origin(kind) or kind
    if isinstance(value, kind):
        return value
    if kind is np.ndarray and isinstance(value, int | float):
        return np.array(value)  # a numpy scalar was returned for an array
    raise TypeError(f"a {kind} cannot be decoded")
