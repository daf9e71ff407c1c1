"""Results on disk, found again by the study that they are of.

``runs/papers/KEY/NAME-HASH.npz`` holds the arrays of one run, and the file of the same
name with ``.json`` the study, on which commit and CPU it was run, and how long that
took if it was not stopped meanwhile. Another number in the study is another file; to
have a run done again, delete its file. While it is under way, the folder of the same
name with ``.parts`` has the trials that have ended.

Files that are small enough are copied to ``docs/papers/KEY/trials``, which is part of
the repository: who has not run a study judges and draws it from there.
"""

import hashlib
import os
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from melisma.comparison import Engine
from melisma.errors import DataError
from melisma.provenance import provenance

from .kit import Data, Spread
from .spread import Begin, spread_over

Run = Callable[[Any, Spread], Data]

#: In the metadata of a field that was added later: its default is no part of a study.
ADDED = "added"


def fields(study: object) -> dict[str, Any]:
    """Every number of a study by name, as its file holds it."""
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(study))
    if is_dataclass(study):
        for field in dataclass_fields(study):
            # Runs made before it was there keep their mark.
            if (
                field.metadata.get(ADDED)
                and getattr(study, field.name) == field.default
            ):
                del told[field.name]
    return told


def mark(run: Run, study: object) -> str:
    """A name that is the same for the same run of the same study, and no other."""
    told = msgspec.json.encode([run.__name__, type(study).__name__, fields(study)])
    return f"{run.__name__}-{hashlib.sha256(told).hexdigest()[:12]}"


#: Files up to this size are shipped with the repository.
SMALL_BYTES = 200_000


def file_of(folder: Path, run: Run, study: object) -> Path:
    """Where the arrays of a run are, once it was done."""
    return folder / f"{mark(run, study)}.npz"


def take(folder: Path, trials: Path, run: Run, study: object) -> None:
    """Take a run that is shipped for one that was done here, unless one was."""
    file = file_of(trials, run, study)
    if file.exists() and not kept(folder, run, study):
        _copy(file, folder)


def ship(file: Path, trials: Path) -> None:
    """Put a run into the repository, if it is small."""
    if file.stat().st_size <= SMALL_BYTES:
        _copy(file, trials)


def _copy(file: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for one in (file.with_suffix(".json"), file):  # last, what says that it is there
        if one.exists():
            shutil.copyfile(one, to / one.name)


def kept(folder: Path, run: Run, study: object) -> bool:
    """Whether that was run before."""
    return file_of(folder, run, study).exists()


def made(file: Path) -> str:
    """Return on which commit and CPU a run was made, and when; "" if not known."""
    try:
        about = file.with_suffix(".json").read_bytes()
        return msgspec.json.decode(about, type=_About).made
    except (OSError, msgspec.MsgspecError):
        return ""


class _About(msgspec.Struct):
    made: str = ""


def result(
    folder: Path,
    run: Run,
    study: object,
    engine: Engine,
    begin: Begin = lambda trials: lambda: None,
) -> Data:
    """What the run came to when it was done before; else do it, and keep it.

    A run that was stopped goes on with the trials that are missing.
    """
    file = file_of(folder, run, study)
    if file.exists():
        return read(file)
    parts = file.with_suffix(".parts")
    goes_on, began_s = parts.exists(), time.monotonic()
    data = run(study, spread_over(engine, parts, begin))
    took = "" if goes_on else f" · took {duration(time.monotonic() - began_s)}"
    _write(file, study, data, provenance() + took)
    shutil.rmtree(parts, ignore_errors=True)
    return data


def duration(seconds: float) -> str:
    """Return a duration as a page says it: whole minutes from two of them on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def read(file: Path) -> Data:
    """Read the arrays of a run; DataError if the file is damaged."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: {error}: delete it, and it is made again") from error


def _write(file: Path, study: object, data: Data, made: str) -> None:
    """All of it or nothing: a run that is stopped here leaves no half."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(f".{os.getpid()}")
    with half.open("wb") as stream:
        np.savez_compressed(stream, **data)  # type: ignore[arg-type]
    about = {"made": made, "study": fields(study)}
    about_json = msgspec.json.format(msgspec.json.encode(about))
    file.with_suffix(".json").write_bytes(about_json + b"\n")
    half.replace(file)
