"""Frozen parts of models: fetched once, by the hash of their content, kept on disk.

A learner that makes the same frozen parameters itself fetches nothing. Others fetch
them when they first train, and find them again after a restart.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from melisma.errors import DataError
from melisma.learning.data import cache_folder
from melisma.learning.parameters import (
    Model,
    Parameters,
    digest,
    frozen_of,
    load,
    put,
    save,
)

#: Most that is kept on disk; the least recently used goes first.
MOST_BYTES = 8 << 30


def complete(model: Model, base: str, fetch: Callable[[], Parameters]) -> None:
    """Give a model the frozen parameters that have the hash ``base``.

    Raises DataError if those that are fetched have another, or are of another model.
    """
    if digest(frozen_of(model)) == base:
        return
    found = _kept(_place(base), base)
    if found is None:
        found = fetch()
        _check(found, base)
        _keep(found, _place(base))
    own = frozen_of(model)
    if {n: v.shape for n, v in found.items()} != {n: v.shape for n, v in own.items()}:
        raise DataError("the frozen parameters are not those of this task's model")
    put(found, model)


def is_held(model: Model, base: str) -> bool:
    """Return whether nothing has to be fetched."""
    if digest(frozen_of(model)) == base:
        return True
    return _kept(_place(base), base) is not None


def _place(base: str) -> Path:
    return cache_folder() / "bases" / f"{base}.safetensors"


def _kept(path: Path, base: str) -> Parameters | None:
    """Return what is on disk; None if there is nothing, or something else."""
    try:
        found = load(path)
    except DataError:
        return None
    if digest(found) != base:
        return None
    with suppress(OSError):
        os.utime(path)
    return found


def _check(found: object, base: str) -> None:
    tensors = isinstance(found, dict) and all(
        isinstance(name, str) and hasattr(value, "untyped_storage")
        for name, value in found.items()
    )
    if not tensors or digest(found) != base:  # type: ignore[arg-type]
        raise DataError("the frozen parameters arrived damaged: they have another hash")


def _keep(found: Parameters, path: Path) -> None:
    """Write to disk if there is room; training goes on without."""
    with suppress(OSError, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(found, path)
        _drop_oldest(path.parent)


def _drop_oldest(folder: Path) -> None:
    files = sorted(folder.glob("*.safetensors"), key=lambda path: -path.stat().st_mtime)
    held = 0
    for path in files:
        held += path.stat().st_size
        if held > MOST_BYTES and path is not files[0]:
            path.unlink()
