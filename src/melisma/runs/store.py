"""A run's folder, and its only writer.

RUN/config.toml              the job: everything that decides the run, seed included
    run.toml                 how it was started: engine, device, precision, version
    records.jsonl            one record a line
    checkpoint.safetensors   parameters after the last whole cycle, and the length of
                             the records up to it in bytes
    model.safetensors        parameters at the end

Simulated and live runs use the same files, so both can be watched and resumed. The
folder of a job with several tasks has a configuration and a run for each task.
"""

import os
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import tomli_w

from melisma.errors import DataError, MelismaError
from melisma.learning.parameters import (
    Model,
    Parameters,
    load_noted,
    parameters_of,
    put,
    save,
)
from melisma.runs.files import CHECKPOINT, CONFIG, MODEL, RECORDS, START
from melisma.runs.lock import is_locked, lock
from melisma.runs.records import Record, evaluations, read, write

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "MODEL",
    "RECORDS",
    "START",
    "Checkpoint",
    "RunWriter",
    "run_folder",
    "started",
    "write_text",
]

Watch = Callable[[Record], None]

#: Seconds between two checkpoints of a run that is not checkpointed every cycle.
SELDOM_S = 5.0


def ignore(record: Record) -> None:
    """Do nothing with a record."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A run's state after a whole cycle, in one file, so that it is never torn."""

    cycle: int
    time_s: float  #: on the crew's clock
    records_bytes: int  #: length of the records of this and earlier cycles
    parameters: Parameters  #: of the model, and the algorithm's state beside them

    def write(self, folder: Path) -> None:
        """Replace the previous checkpoint."""
        notes = {
            "cycle": str(self.cycle),
            "time_s": repr(self.time_s),
            "records_bytes": str(self.records_bytes),
        }
        save(self.parameters, folder / CHECKPOINT, notes)

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint | None":
        """Return a run's last checkpoint; None if it has none yet."""
        path = folder / CHECKPOINT
        if not path.exists():
            return None
        parameters, notes = load_noted(path)
        try:
            return cls(
                cycle=int(notes["cycle"]),
                time_s=float(notes["time_s"]),
                records_bytes=int(notes["records_bytes"]),
                parameters=parameters,
            )
        except (KeyError, ValueError) as error:
            raise DataError(f"{path} is not a checkpoint: {error}") from error


class RunWriter:
    """Writes one run; without a folder it only keeps the records in memory.

    ``past`` are the records up to the checkpoint from which the run resumes. Every
    record is flushed and every cycle checkpointed, since real devices cannot repeat
    lost work; a simulation can, and is checkpointed ``seldom``. Unless the process is
    killed, the last whole cycle is checkpointed however the run ends.
    """

    def __init__(self, past: list[Record] | None = None, watch: Watch = ignore) -> None:
        self.past: list[Record] = past or []
        self.checkpoint: Checkpoint | None = None
        self.folder: Path | None = None
        self.model: Parameters | None = None  #: parameters at the end
        self._watch, self._noted = watch, list[Record]()
        self._file: BinaryIO | None = None
        self._seldom, self._kept_at = False, time.monotonic()
        self._pending: Checkpoint | None = None  # of the last cycle, not yet written

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path | None,
        config: str,
        *,
        start: dict[str, Any] | None = None,
        watch: Watch = ignore,
        seldom: bool = False,
    ) -> "Iterator[RunWriter]":
        """Begin a run, or resume from the checkpoint in ``folder``.

        ``config`` is the job as TOML, ``start`` how the run was started. DataError if
        another process is writing the run. If the run fails before its first record,
        the files made here are removed.
        """
        writer = cls(watch=watch)
        if folder is None:
            yield writer
            return
        made, is_new = not folder.exists(), not (folder / RECORDS).exists()
        folder.mkdir(exist_ok=True)
        if not is_new and is_locked(folder / RECORDS):
            raise DataError(
                f"{folder} is under way in another process: stop that one, or wait "
                "for it to end"
            )
        try:
            with (folder / RECORDS).open("ab") as file:
                lock(file)
                writer._begin(folder, file, seldom)
                write_text(folder / CONFIG, config)
                if start is not None:
                    write_text(folder / START, tomli_w.dumps(start))
                try:
                    yield writer
                finally:
                    writer._write_checkpoint()
        except MelismaError:
            if is_new and not (folder / RECORDS).stat().st_size:
                for name in (CONFIG, START, RECORDS):
                    (folder / name).unlink(missing_ok=True)
                if made:
                    folder.rmdir()
            raise

    def _begin(self, folder: Path, file: BinaryIO, seldom: bool) -> None:
        self.folder, self._file, self._seldom = folder, file, seldom
        self.checkpoint = Checkpoint.read(folder)
        _check_resumable(folder, self.checkpoint)
        # Later records belong to a cycle that will be repeated.
        file.truncate(self.checkpoint.records_bytes if self.checkpoint else 0)
        self.past = read(folder / RECORDS)

    def restore(self, model: Model) -> None:
        """Give the model the checkpoint's parameters, if there is a checkpoint."""
        if self.checkpoint:
            saved = self.checkpoint.parameters
            put({name: saved[name] for name in parameters_of(model)}, model)

    def note(self, record: Record) -> None:
        """Append a record."""
        if self._file is None:
            self._noted.append(record)
        else:
            write(record, self._file)
            if not self._seldom:
                self._file.flush()
        self._watch(record)

    def keep(self, cycle: int, time_s: float, parameters: Parameters) -> None:
        """Checkpoint ``cycle``, which is over and whose records are all noted."""
        if self._file is None or self.folder is None:
            return
        self._file.flush()
        self._pending = Checkpoint(
            cycle=cycle,
            time_s=time_s,
            records_bytes=self._file.tell(),
            parameters=parameters,
        )
        if not self._seldom or time.monotonic() - self._kept_at >= SELDOM_S:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        if self._pending and self._file and self.folder:
            os.fsync(self._file.fileno())
            self._pending.write(self.folder)
            self._pending, self._kept_at = None, time.monotonic()

    def finish(self, parameters: Parameters) -> None:
        """Write the model."""
        self.model = parameters
        if self.folder is not None:
            self._write_checkpoint()
            save(parameters, self.folder / MODEL)

    @property
    def records(self) -> list[Record]:
        """All records so far, the past included."""
        if self._file is None or self.folder is None:
            return [*self.past, *self._noted]
        if not self._file.closed:
            self._file.flush()
        return read(self.folder / RECORDS)


def _check_resumable(folder: Path, checkpoint: Checkpoint | None) -> None:
    """Raise DataError where going on would destroy what a run has."""
    path = folder / RECORDS
    if checkpoint is None:
        if (folder / MODEL).exists() and evaluations(read(path)):
            raise DataError(
                f"{folder} has ended, and has no checkpoint to go on from: begin a new "
                "run"
            )
    elif not 0 <= checkpoint.records_bytes <= path.stat().st_size:
        raise DataError(
            f"{path} has {path.stat().st_size} bytes, and its checkpoint is of "
            f"{checkpoint.records_bytes}: it was cut short, so the run cannot go on"
        )


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically: half a configuration could be read as another one."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def started(folder: Path) -> dict[str, Any]:
    """Return how a run was started; empty if that was not recorded.

    Raises DataError if the file is damaged: a guess could start the run over.
    """
    try:
        return tomllib.loads((folder / START).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / START} cannot be read: {error}") from error


@contextmanager
def run_folder(root: Path, name: str) -> Iterator[Path]:
    """Make ``root/name``, or ``name-2``, ``name-3``… if that name is taken.

    The folder is removed at the end if it is still empty.
    """
    folder = _first_free(root, name)
    try:
        yield folder
    finally:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()


def _first_free(root: Path, name: str) -> Path:
    for number in count(1):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        break
    return folder
