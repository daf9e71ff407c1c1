"""Bundles on disk, as plain files that an owner can read.

A folder is written whole or not at all, and believed only by its hash.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from melisma.bundles.bundle import MOST_BYTES, Bundle
from melisma.errors import DataError

#: Files and folders that are looked at before a folder is refused.
MOST_ENTRIES = 1024


def write(bundle: Bundle, folder: Path) -> None:
    """Write a bundle's files, in place of whatever is there; OSError if that fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        for name, content in bundle.files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        remove(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read(folder: Path, expected: str) -> Bundle:
    """Read a bundle; DataError unless its files have the expected hash.

    Links are not followed, and what is no .py file is not looked at.
    """
    try:
        if folder.is_symlink():
            raise DataError(f"{folder} is a link: it has to be a folder")
        found = dict(_files(folder))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error
    return Bundle.of(found, expected)


def remove(folder: Path) -> None:
    """Remove a folder, or a link in its place."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the source files below a folder; DataError if there are far too many."""
    pending, entries = [""], 0
    while pending:
        prefix = pending.pop()
        with os.scandir(folder / prefix) as found:
            for entry in found:
                entries += 1
                if entries > MOST_ENTRIES:
                    raise DataError(f"{folder} has more files than a bundle")
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{prefix}{entry.name}/")
                elif entry.name.endswith(".py"):
                    yield f"{prefix}{entry.name}", _content(entry)


def _content(entry: os.DirEntry[str]) -> bytes:
    if not entry.is_file(follow_symlinks=False):
        raise DataError(f"{entry.path} is a link, or no file")
    with open(entry.path, "rb") as file:
        return file.read(MOST_BYTES + 1)
