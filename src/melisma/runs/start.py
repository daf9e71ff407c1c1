"""How a run was started, in run.toml, and its job, in config.toml.

run.toml has the SHA-256 of its own content and of config.toml, so that a damaged bit
or a missing line is not taken for another job, or for another way to train it.
"""

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w

from melisma.errors import DataError
from melisma.runs.files import CONFIG, START

#: Keys of run.toml. The first one has the digest of all others.
_OWN, _CONFIG = "sha256", "config_sha256"


def write_start(folder: Path, config: str, start: dict[str, Any]) -> None:
    """Write how a run was started, then its job: with that file there is a run."""
    content = start | {_CONFIG: hashlib.sha256(config.encode()).hexdigest()}
    write_text(folder / START, tomli_w.dumps({_OWN: _digest(content), **content}))
    write_text(folder / CONFIG, config)


def started(folder: Path) -> dict[str, Any]:
    """Return how a run was started; empty if that was not recorded.

    DataError if run.toml is damaged, or config.toml is not as the run wrote it: a guess
    could start the run over, or go on with another job.
    """
    start = _read(folder)
    written = start.pop(_CONFIG, None)
    # Without a job there is no run yet: it was killed before that was written.
    if written and (folder / CONFIG).exists() and written != _config_digest(folder):
        raise DataError(
            f"{folder / CONFIG} is not as the run wrote it: restore it or, if it was "
            f"edited on purpose, `melisma resume {folder} --edited`"
        )
    return start


def accept_config(folder: Path) -> None:
    """Take config.toml as it is now for the run's job; DataError without run.toml."""
    start = _read(folder)
    if not start:
        raise DataError(f"{folder} has no {START}: nothing is known of earlier changes")
    start[_CONFIG] = _config_digest(folder)
    write_text(folder / START, tomli_w.dumps({_OWN: _digest(start), **start}))


def _read(folder: Path) -> dict[str, Any]:
    """Return run.toml without its own digest; DataError if it does not have that."""
    path = folder / START
    try:
        start = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    own = start.pop(_OWN, None)
    # Version 0.2 wrote neither digest.
    is_whole = own == _digest(start) if own or _CONFIG in start else "engine" in start
    if not is_whole:
        raise DataError(f"{path} is damaged: it does not have its SHA-256")
    return start


def _config_digest(folder: Path) -> str:
    try:
        return hashlib.sha256((folder / CONFIG).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{folder / CONFIG}: {error.strerror}") from error


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically: half a configuration could be read as another one."""
    unfinished = path.with_name(f"{path.name}.part")
    with writing(path):
        try:
            with unfinished.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise DataError in place of what the system says when ``path`` is written."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error
