"""Results on disk, found again by the study that they are of.

``runs/papers/KEY/NAME-HASH.npz`` holds the arrays of one run, and the file of the same
name with ``.json`` the study. Another number in the study is another file; to have a
run done again, delete its file.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from melisma.errors import DataError

from .kit import Data, Spread

Run = Callable[[Any, Spread], Data]


def fields(study: object) -> dict[str, Any]:
    """Every number of a study, by name."""
    told: dict[str, Any] = msgspec.to_builtins(study)
    return told


def mark(run: Run, study: object) -> str:
    """A name that is the same for the same run of the same study, and no other."""
    told = msgspec.json.encode([run.__name__, type(study).__name__, fields(study)])
    return f"{run.__name__}-{hashlib.sha256(told).hexdigest()[:12]}"


def kept(folder: Path, run: Run, study: object) -> bool:
    """Whether that was run before."""
    return (folder / f"{mark(run, study)}.npz").exists()


def result(folder: Path, run: Run, study: object, spread: Spread) -> Data:
    """What the run came to when it was done before; else do it, and keep it."""
    file = folder / f"{mark(run, study)}.npz"
    if file.exists():
        return _read(file)
    data = run(study, spread)
    _write(file, study, data)
    return data


def _read(file: Path) -> Data:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: {error}: delete it, and it is made again") from error


def _write(file: Path, study: object, data: Data) -> None:
    """All of it or nothing: a run that is stopped here leaves no half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(f".{os.getpid()}")
    with half.open("wb") as stream:
        np.savez_compressed(stream, **data)  # type: ignore[arg-type]
    study_json = msgspec.json.format(msgspec.json.encode(fields(study)))
    file.with_suffix(".json").write_bytes(study_json + b"\n")
    half.replace(file)
