"""A run's state after a whole cycle, and the one before it.

Both files have a SHA-256 of themselves and of the records up to them. If the last one
is damaged, the run goes on from the one before: some cycles are repeated.
"""

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.errors import DataError
from melisma.learning.parameters import (
    DIGEST,
    Parameters,
    load_noted,
    write_unfinished,
)
from melisma.runs.files import CHECKPOINT, PREVIOUS, RECORDS
from melisma.runs.start import writing

if TYPE_CHECKING:
    from hashlib import _Hash

log = logging.getLogger("melisma.orchestrator")

#: Bytes of records hashed at a time.
_CHUNK_BYTES = 1 << 20
_RECORDS_DIGEST = "records_sha256"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A run's state after a whole cycle, in one file, so that it is never torn."""

    cycle: int
    time_s: float  #: on the crew's clock
    records_bytes: int  #: length of the records of this and earlier cycles
    parameters: Parameters  #: of the model, and the algorithm's state beside them
    records_sha256: str | None = None  #: of those records; None before version 0.3
    is_previous: bool = False  #: read from the file before the last

    def write(self, folder: Path) -> None:
        """Replace the last checkpoint, which becomes the one before."""
        notes = {
            "cycle": str(self.cycle),
            "time_s": repr(self.time_s),
            "records_bytes": str(self.records_bytes),
        }
        if self.records_sha256 is not None:
            notes[_RECORDS_DIGEST] = self.records_sha256
        path = folder / CHECKPOINT
        unfinished = write_unfinished(self.parameters, path, notes)
        with writing(path):
            _keep_previous(path, folder / PREVIOUS)
            unfinished.replace(path)

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint | None":
        """Return a run's last checkpoint, or the one before it if that is damaged.

        None if it has none yet; DataError if none can be read.
        """
        last, previous = folder / CHECKPOINT, folder / PREVIOUS
        if not last.exists():
            return cls._read(previous) if previous.exists() else None
        try:
            return cls._read(last)
        except DataError as error:
            if not previous.exists():
                raise
            try:
                found = cls._read(previous)
            except DataError as second:
                raise DataError(f"{error}; and {second}") from second
            log.warning(
                "%s; the run goes on from the checkpoint before, of cycle %d",
                *(error, found.cycle),
            )
            return found

    @classmethod
    def _read(cls, path: Path) -> "Checkpoint":
        parameters, notes = load_noted(path)
        if _RECORDS_DIGEST in notes and DIGEST not in notes:
            raise DataError(f"{path} is damaged: its SHA-256 is missing")
        try:
            return cls(
                cycle=int(notes["cycle"]),
                time_s=float(notes["time_s"]),
                records_bytes=int(notes["records_bytes"]),
                parameters=parameters,
                records_sha256=notes.get(_RECORDS_DIGEST),
                is_previous=path.name == PREVIOUS,
            )
        except (KeyError, ValueError) as error:
            raise DataError(f"{path} is not a checkpoint: {error}") from error

    def check_records(self, folder: Path) -> "_Hash":
        """Return the hash of the records up to here, to go on with.

        DataError if they are shorter, or not those that the run wrote.
        """
        path = folder / RECORDS
        size = path.stat().st_size
        if not 0 <= self.records_bytes <= size:
            raise DataError(
                f"{path} has {size} bytes, and its checkpoint is of "
                f"{self.records_bytes}: it was cut short, so the run cannot go on"
            )
        summed = _hash_of(path, self.records_bytes)
        if self.records_sha256 not in (None, summed.hexdigest()):
            raise DataError(
                f"{path} is not as the run wrote it up to cycle {self.cycle}: restore "
                "it, or begin a new run"
            )
        return summed

    def make_last(self, folder: Path) -> None:
        """Replace a damaged last checkpoint by this one, the one before."""
        if self.is_previous:
            with writing(folder / CHECKPOINT):
                (folder / PREVIOUS).replace(folder / CHECKPOINT)


def _keep_previous(last: Path, previous: Path) -> None:
    """Make the last checkpoint the previous one; it stays where it is, if that works.

    Where files can have two names, there is a last checkpoint at every moment.
    """
    if not last.exists():
        return
    second_name = previous.with_suffix(".part")
    second_name.unlink(missing_ok=True)
    try:
        os.link(last, second_name)
    except OSError:
        last.replace(previous)
    else:
        second_name.replace(previous)


def _hash_of(path: Path, size: int) -> "_Hash":
    """Return the SHA-256 of the first ``size`` bytes of a file."""
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
            summed.update(chunk)
            size -= len(chunk)
    return summed
