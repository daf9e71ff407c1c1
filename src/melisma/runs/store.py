"""A run on disk, and the only writer of it.

RUN/config.toml              the job: everything that decides the run, seed included
    run.toml                 how it was started: engine, device, precision, version
    records.jsonl            one event a line
    checkpoint.safetensors   parameters after the last whole cycle, and how many bytes
                             of the records belong to it
    model.safetensors        parameters at the end

Simulated and live runs are written alike, so both can be followed and resumed. A job
of several tasks is a folder with a configuration and one run for each task.
"""

import os
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from melisma.runs.lock import hold, is_held
from melisma.runs.records import Record, read, write

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

#: Seconds between two checkpoints of a run that does not keep every cycle.
SELDOM_S = 5.0


def ignore(record: Record) -> None:
    """Watch nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """Where a run stands after a whole cycle; one file, so never half of it."""

    cycle: int
    time_s: float  #: on the crew's clock
    records_bytes: int  #: of the records that are about this cycle or earlier ones
    parameters: Parameters  #: of the model, and the algorithm's state beside them

    def write(self, folder: Path) -> None:
        """Replace the checkpoint before."""
        notes = {
            "cycle": str(self.cycle),
            "time_s": repr(self.time_s),
            "records_bytes": str(self.records_bytes),
        }
        save(self.parameters, folder / CHECKPOINT, notes)

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint | None":
        """Return a run's last checkpoint, or None if it has not got that far."""
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

    ``past`` are the records up to the checkpoint from which the run goes on. Unless a
    run is ``seldom`` kept, every record is flushed and every cycle checkpointed: real
    devices cannot repeat what was lost, a simulation can. However a run ends, short of
    being killed, its last whole cycle is kept.
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
        """Begin a run, or go on from the checkpoint in ``folder``.

        ``config`` is the job as TOML, ``start`` how the run is started. Raises
        DataError if another process writes the run. If the run fails before anything
        is recorded, the files made here are removed again.
        """
        writer = cls(watch=watch)
        if folder is None:
            yield writer
            return
        made, is_new = not folder.exists(), not (folder / RECORDS).exists()
        folder.mkdir(exist_ok=True)
        if not is_new and is_held(folder / RECORDS):
            raise DataError(
                f"{folder} is under way in another process: stop that one, or wait "
                "for it to end"
            )
        try:
            with (folder / RECORDS).open("ab") as file:
                hold(file)
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
        # What was recorded after the last whole cycle happens again.
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
        """Write a checkpoint: ``cycle`` is over and all that happened is recorded."""
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


def write_text(path: Path, text: str) -> None:
    """Write a file whole: half a configuration would be another one."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def started(folder: Path) -> dict[str, Any]:
    """Return how a run was started; nothing where that was not written down."""
    with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return tomllib.loads((folder / START).read_text(encoding="utf-8"))
    return {}


@contextmanager
def run_folder(root: Path, name: str) -> Iterator[Path]:
    """Make ``root/name``, or ``name-2``, ``name-3``… where runs of that name are.

    A folder that is still empty at the end is removed again.
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
