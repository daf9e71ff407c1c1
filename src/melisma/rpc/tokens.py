"""Access tokens, stored as hashes in a file.

A token is ``<id>.<secret>``. The file holds the SHA-256 of each secret: secrets have
256 random bits, so a slow hash would add nothing. A token may be bound to the name of a
peer, restricted to functions, and expire. Those that any peer may share lie in files of
their own, as the server's key does, so that each start can show them again.
"""

import fcntl
import fnmatch
import hashlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from melisma.errors import AccessError, ConfigError

EVERYTHING = ("*",)
#: File of the shared token, beside the file of all.
SHARED = "shared-token"
_INVALID = "this token is not valid: ask for a new join string"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token as stored in the file."""

    id: str
    sha256: str
    name: str | None = None  # the only name of its peer; None for any
    may_call: tuple[str, ...] = EVERYTHING  # function names, or patterns with *
    made: float | None = None  # seconds since 1970; None before version 0.3
    expires: float | None = None  # seconds since 1970; None: never

    @property
    def has_expired(self) -> bool:
        """Whether it lets nobody in any more."""
        return self.expires is not None and self.expires <= time.time()


class Identity(msgspec.Struct, frozen=True):
    """The token of an authenticated peer, with its name and permissions."""

    id: str
    name: str | None = None
    patterns: tuple[str, ...] = EVERYTHING

    def may_call(self, function: str) -> bool:
        """Return whether this peer may call a function of that name."""
        return any(fnmatch.fnmatchcase(function, p) for p in self.patterns)


#: The identity of every peer of a server without tokens.
ANONYMOUS = Identity("")


class Tokens:
    """The tokens in a file, which is read again after it changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._entries: dict[str, Entry] = {}

    def add(
        self,
        name: str | None = None,
        may_call: tuple[str, ...] = EVERYTHING,
        lifetime_s: float | None = None,
    ) -> str:
        """Create a token and return it; the file has only its hash.

        With a ``name`` it is bound to that peer; it expires after ``lifetime_s``.
        """
        if name is not None:
            check_name(name)
        with locked(self.path.parent):
            return self._add(name, may_call, lifetime_s)

    def shared(
        self,
        file: str = SHARED,
        may_call: tuple[str, ...] = EVERYTHING,
        lifetime_s: float | None = None,
    ) -> str:
        """Return a token that any peer may use, which is kept in a file of its own.

        It is the same at every start, with these rights and ``lifetime_s`` from now on;
        a new one once it is revoked or has expired.
        """
        path = self.path.with_name(file)
        with locked(self.path.parent):
            try:
                token = path.read_bytes().decode("ascii", "replace").strip()
                id = self.identify(token).id
            except (FileNotFoundError, AccessError):
                token = self._add(None, may_call, lifetime_s)
                write_private(path, f"{token}\n".encode())
            else:
                entries = self._read()
                renewed = msgspec.structs.replace(
                    entries[id], may_call=may_call, expires=_end(lifetime_s)
                )
                if renewed != entries[id]:
                    self._write({**entries, id: renewed})
        return token

    def _add(
        self, name: str | None, may_call: tuple[str, ...], lifetime_s: float | None
    ) -> str:
        id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
        entry = Entry(
            id=id,
            sha256=_hash(secret),
            name=name,
            may_call=may_call,
            made=time.time(),
            expires=_end(lifetime_s),
        )
        self._write({**self._read(), id: entry})
        return f"{id}.{secret}"

    def revoke(self, id: str) -> None:
        """Delete the token with this id; ConfigError if there is none."""
        with locked(self.path.parent):
            entries = dict(self._read())
            if entries.pop(id, None) is None:
                known = ", ".join(sorted(entries)) or "none"
                raise ConfigError(f"no token has the id '{id}'; known: {known}")
            self._write(entries)

    def list(self) -> list[Entry]:
        """Return the stored tokens."""
        return list(self._read().values())

    def reserves(self, name: str) -> bool:
        """Return whether a token is bound to that name."""
        return any(entry.name == name for entry in self._read().values())

    def identify(self, token: str) -> Identity:
        """Return the identity of a token; AccessError if it is not valid."""
        id, _, secret = token.partition(".")
        entry = self._read().get(id)
        expected = entry.sha256 if entry else "0" * 64
        if not hmac.compare_digest(_hash(secret), expected) or entry is None:
            raise AccessError(_INVALID)
        if entry.has_expired:
            until = datetime.fromtimestamp(entry.expires or 0.0)
            raise AccessError(
                f"this token expired on {until:%Y-%m-%d}: ask for a new join string"
            )
        return Identity(entry.id, entry.name, entry.may_call)

    def _read(self) -> dict[str, Entry]:
        try:
            status = self.path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._seen:
                entries = msgspec.json.decode(self.path.read_bytes(), type=list[Entry])
                self._entries = {entry.id: entry for entry in entries}
                self._seen = (status.st_mtime_ns, status.st_ino)
        except FileNotFoundError:
            self._entries, self._seen = {}, None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{self.path} is not a file of tokens: {error}"
            ) from error
        return self._entries

    def _write(self, entries: dict[str, Entry]) -> None:
        text = msgspec.json.format(msgspec.json.encode(list(entries.values())))
        write_private(self.path, text)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other threads and processes that lock it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def check_name(name: str) -> str:
    """Return a peer's name; ConfigError unless it is 1 to 64 printable characters."""
    if not (1 <= len(name) <= 64 and name.isprintable() and name == name.strip()):
        raise ConfigError(
            f"{name[:80]!r} is no name for a peer: use 1 to 64 printable characters"
        )
    return name


def _end(lifetime_s: float | None) -> float | None:
    return None if lifetime_s is None else time.time() + lifetime_s


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
