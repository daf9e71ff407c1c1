"""A bundle: source files of modules, by path, and one SHA-256 of them all.

Whoever has the hash has the files: names and contents are checked against it wherever
they come from, another machine or this one's disk.
"""

import hashlib
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from melisma.errors import DataError

#: Most files of a bundle, bytes of all of them, and characters of a path.
MOST_FILES, MOST_BYTES, MOST_CHARACTERS = 64, 1 << 20, 200

HASH = re.compile("[0-9a-f]{64}")

#: ``identifier/…/identifier.py``: no other folder, drive, device or alphabet.
_PATH = re.compile(r"(?!__init__\.py)([A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_]\w*\.py", re.A)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Checked source files; made by `of` alone."""

    files: Mapping[str, bytes]  #: by posix path, in order
    hash: str

    @classmethod
    def of(cls, files: object, expected: str | None = None) -> "Bundle":
        """Check files that came from anywhere; DataError if one of them is wrong.

        With ``expected``, all together must have that hash.
        """
        if not isinstance(files, Mapping) or not 1 <= len(files) <= MOST_FILES:
            raise DataError(f"a bundle has 1 to {MOST_FILES} source files by path")
        for name, content in files.items():
            _check_name(name)
            if not isinstance(content, bytes):
                raise DataError(f"{name} of a bundle is no bytes")
        size_bytes = sum(map(len, files.values()))
        if size_bytes > MOST_BYTES:
            raise DataError(
                f"a bundle of {size_bytes:,} bytes: give source files of up to "
                f"{MOST_BYTES:,} in all"
            )
        ordered = {name: files[name] for name in sorted(files)}
        _check_distinct(ordered)
        found = digest(ordered)
        if expected is not None and found != expected:
            raise DataError(
                f"bundle {expected} came with other files: their hash is {found[:16]}…"
            )
        for name, content in ordered.items():
            text_of(name, content)
        return cls(ordered, found)

    @property
    def tops(self) -> frozenset[str]:
        """Names of its modules that lie in no package."""
        firsts = (name.partition("/")[0] for name in self.files)
        return frozenset(first.removesuffix(".py") for first in firsts)

    def path(self, module: str) -> str | None:
        """Return the file of a module, "" for a folder without one, None if neither."""
        base = module.replace(".", "/")
        for name in (f"{base}/__init__.py", f"{base}.py"):
            if name in self.files:
                return name
        return "" if any(name.startswith(f"{base}/") for name in self.files) else None

    def holds(self, reference: str) -> bool:
        """Return whether the module of a ``module:function`` is one of its files."""
        module, colon, _ = reference.partition(":")
        return bool(colon) and bool(self.path(module))

    def text(self, name: str) -> str:
        """Return a file as text."""
        return text_of(name, self.files[name])


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of names and contents, each after its length."""
    summed = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            summed.update(len(part).to_bytes(8, "big"))
            summed.update(part)
    return summed.hexdigest()


def text_of(name: str, content: bytes) -> str:
    """Decode a source file; DataError if it is not UTF-8.

    Whatever encoding it declares: it runs as it is shown.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} of a bundle is not UTF-8: {error.reason}") from error
    if "\0" in text:
        raise DataError(f"{name} of a bundle holds a NUL: it is no source")
    return text


def _check_name(name: object) -> None:
    is_path = isinstance(name, str) and len(name) <= MOST_CHARACTERS
    if not is_path or not _PATH.fullmatch(str(name)):
        raise DataError(
            f"{reprlib.repr(name)} is no file of a bundle: its paths are "
            "identifier/…/identifier.py"
        )


def _check_distinct(files: Mapping[str, bytes]) -> None:
    """Raise DataError for two files of one module, also where case does not count."""
    spelled: dict[str, str] = {}
    for name in files:
        path = PurePosixPath(name)
        for place in (path, *path.parents[:-1]):
            key = str(place.with_suffix("")).lower()
            other = spelled.setdefault(key, str(place))
            if other != str(place):
                raise DataError(f"a bundle has both {other} and {place}: rename one")
