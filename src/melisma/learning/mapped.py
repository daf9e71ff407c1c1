"""numpy's own files, mapped into memory: read where and when a sample is used.

    NAME.npy      one array
    NAME.npz      several, by name; mapped too unless they are compressed
    a folder      of .npy files: an array each, by the name of its file

Nothing is unpickled, and a file must be as long as its header says.
"""

import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from melisma.errors import DataError, readable
from melisma.learning.validation import Arrays, check_type

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a member: magic, lengths of two fields


def read_npy(path: Path, name: str = "x") -> NDArray[Any]:
    """Map the array of a file; DataError if it is damaged or of no use."""
    with _readable(path), path.open("rb") as file:
        return _mapped(file, path, name, path.stat().st_size)


def read_folder(folder: Path) -> Arrays:
    """Map the .npy files of a folder; DataError if one is damaged or of no use."""
    return {path.stem: read_npy(path, path.stem) for path in arrays_in(folder)}


def arrays_in(folder: Path) -> list[Path]:
    """Return the .npy files of a folder, by name."""
    return sorted(path for path in folder.glob("[!.]*.npy") if path.is_file())


def read_npz(path: Path) -> Arrays:
    """Map the arrays of a file, or read those that are compressed."""
    arrays: Arrays = {}
    with _readable(path), zipfile.ZipFile(path) as members, path.open("rb") as file:
        for member in members.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename:
                raise DataError(
                    f"{path}: {readable(name)} is no array: save it with np.savez"
                )
            if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
                _seek(file, member)
                end = file.tell() + member.file_size
                arrays[name] = _mapped(file, path, name, end)
            else:
                with members.open(member) as stream:
                    arrays[name] = _unpacked(stream, path, name)
    return arrays


def _seek(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Go to where a member's content begins."""
    file.seek(member.header_offset)
    magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if magic != b"PK\3\4":
        raise zipfile.BadZipFile("bad magic number of a member")
    file.seek(name + extra, 1)


def _mapped(file: IO[bytes], path: Path, name: str, end: int) -> NDArray[Any]:
    """Map the array that begins here and ends before ``end``."""
    shape, column_major, dtype = _header(file, path, name)
    start = file.tell()
    found = min(end, file.seek(0, 2)) - start
    expected = math.prod(shape) * dtype.itemsize
    if found < expected:
        raise DataError(
            f"{path}: {name} was cut short: {found} of {expected} bytes of a "
            f"{dtype} array of shape {shape} are there: write it again"
        )
    order = "F" if column_major else "C"
    return np.memmap(file, dtype, "r", start, shape, order)  # type: ignore[call-overload, no-any-return]


def _unpacked(stream: IO[bytes], path: Path, name: str) -> NDArray[Any]:
    """Read the array of a compressed member."""
    shape, column_major, dtype = _header(stream, path, name)
    content = stream.read()
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{path}: {name} was cut short: write it again")
    array = np.frombuffer(bytearray(content), dtype)
    return array.reshape(shape, order="F" if column_major else "C")


def _header(
    file: IO[bytes], path: Path, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, whether columns come first, and type; DataError if of no use."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format is for tables of records")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, column_major, dtype = read(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    check_type(name, dtype, shape, path)
    return shape, column_major, dtype


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise DataError for what damaged files raise."""
    try:
        yield
    except (
        *(ValueError, EOFError, struct.error),
        *(SyntaxError, tokenize.TokenError),  # from numpy's reader of headers
        *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    ) as error:
        raise DataError(
            f"{path} cannot be read: {readable(str(error))}: write it again with "
            f"{'np.savez' if path.suffix.lower() == '.npz' else 'np.save'}"
        ) from error
