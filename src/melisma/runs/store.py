"""A run's folder, and its only writer.

RUN/config.toml              the job: everything that decides the run, seed included
    run.toml                 how it was started: engine, device, precision, version
    records.jsonl            one record a line
    checkpoint.safetensors   parameters after the last whole cycle, and length and
                             SHA-256 of the records up to it
    checkpoint.previous.safetensors
                             the one before, should the last be damaged
    model.safetensors        parameters at the end
    bundle/                  source of the job's own modules, if learners are sent it

Simulated and live runs use the same files, so both can be watched and resumed. The
folder of a job with several tasks has a configuration and a run for each task.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from melisma.errors import DataError, MelismaError
from melisma.learning.parameters import (
    Model,
    Parameters,
    misfit,
    parameters_of,
    put,
    save,
)
from melisma.runs.checkpoint import Checkpoint
from melisma.runs.files import CHECKPOINT, CONFIG, MODEL, PREVIOUS, RECORDS, START
from melisma.runs.lock import lock
from melisma.runs.records import Metrics, Record, evaluations, line_of, read
from melisma.runs.start import started, write_start, write_text, writing

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "MODEL",
    "PREVIOUS",
    "RECORDS",
    "START",
    "Checkpoint",
    "RunWriter",
    "run_folder",
    "started",
]

log = logging.getLogger("melisma.orchestrator")

Watch = Callable[[Record], None]

#: Seconds between two checkpoints of a run that is not checkpointed every cycle.
SELDOM_S = 5.0


def ignore(record: Record) -> None:
    """Do nothing with a record."""


class RunWriter:
    """Writes one run; without a folder it only keeps the records in memory.

    ``past`` are the records up to the checkpoint from which the run resumes. Every
    record is flushed and every cycle checkpointed, since real devices cannot repeat
    lost work; a simulation can, and is checkpointed ``seldom``. Unless the process is
    killed, the last whole cycle is checkpointed however the run ends. ``watch`` is
    called with every record that is noted, and first with the past's `Metrics`, which
    say how the others are read.
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
        self._summed = hashlib.sha256()  # of all records
        self._is_cut = False  # the file has no records after the checkpoint
        self._job: tuple[str, dict[str, Any] | None] = ("", None)  # and how it started

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
        another process is writing the run, if its files are damaged or cannot be
        written: then all are as they were. If the run fails before its first record,
        the files made here are removed.
        """
        writer = cls(watch=watch)
        if folder is None:
            yield writer
            return
        with _made(folder), _locked(folder) as file:
            writer._seldom, writer._job = seldom, (config, start)
            writer._begin(folder, file)
            with writer._kept():
                yield writer

    def _begin(self, folder: Path, file: BinaryIO) -> None:
        """Read what there is of the run; without a checkpoint, begin it."""
        self.folder, self._file = folder, file
        started(folder)
        self.checkpoint = Checkpoint.read(folder)
        if self.checkpoint:
            self._summed = self.checkpoint.check_records(folder)
            self.past = read(folder / RECORDS, self.checkpoint.records_bytes)
            for record in self.past:
                if isinstance(record, Metrics):
                    self._watch(record)
        else:
            _check_unfinished(folder)
            self._cut()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Write the checkpoint of the last whole cycle however the block ends."""
        try:
            yield
        except BaseException:
            try:
                self._write_checkpoint()
            except DataError as error:  # the first error says why
                log.warning("%s", error)
            raise
        self._write_checkpoint()

    def restore(self, model: Model) -> None:
        """Give the model the checkpoint's parameters, if there is a checkpoint.

        DataError if they are of another model; the run's files are then as they were.
        """
        if self.checkpoint:
            saved = self.checkpoint.parameters
            if wrong := misfit(saved, model):
                raise DataError(
                    f"the checkpoint in {self.folder} is of another model: {wrong}"
                )
            put({name: saved[name] for name in parameters_of(model)}, model)
        self._cut()

    def _cut(self) -> None:
        """Write the job, and cut off what follows the checkpoint: it is repeated.

        All that could be refused has been checked by then, since this cannot be undone.
        """
        if self._is_cut or self._file is None or self.folder is None:
            return
        self._is_cut = True
        config, start = self._job
        if start is None:
            write_text(self.folder / CONFIG, config)
        else:
            write_start(self.folder, config, start)
        with writing(self.folder / RECORDS):
            self._file.truncate(self.checkpoint.records_bytes if self.checkpoint else 0)
        if self.checkpoint:
            self.checkpoint.make_last(self.folder)

    def note(self, record: Record) -> None:
        """Append a record; DataError if it cannot be written."""
        if self._file is None or self.folder is None:
            self._noted.append(record)
        else:
            self._cut()
            line = line_of(record)
            self._summed.update(line)
            try:
                self._file.write(line)
                if not self._seldom:
                    self._file.flush()
            except OSError as error:
                raise _full(self.folder, error) from error
        self._watch(record)

    def keep(self, cycle: int, time_s: float, parameters: Parameters) -> None:
        """Checkpoint ``cycle``, which is over and whose records are all noted."""
        if self._file is None or self.folder is None:
            return
        self._cut()
        try:
            self._file.flush()
        except OSError as error:
            raise _full(self.folder, error) from error
        self._pending = Checkpoint(
            cycle=cycle,
            time_s=time_s,
            records_bytes=self._file.tell(),
            records_sha256=self._summed.hexdigest(),
            parameters=parameters,
        )
        if not self._seldom or time.monotonic() - self._kept_at >= SELDOM_S:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        if self._pending and self._file and self.folder:
            with writing(self.folder / RECORDS):
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
        if self._file is None or self.folder is None or not self._is_cut:
            return [*self.past, *self._noted]
        if not self._file.closed:
            self._file.flush()
        return read(self.folder / RECORDS)


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a run's folder; if nothing is recorded, remove what was made in it."""
    made = not folder.exists()
    with writing(folder):
        folder.mkdir(exist_ok=True)
    new = [name for name in (CONFIG, START, RECORDS) if not (folder / name).exists()]
    try:
        yield
    except _InUse:
        raise
    except MelismaError:
        with suppress(OSError):
            if RECORDS in new and not (folder / RECORDS).stat().st_size:
                for name in new:
                    (folder / name).unlink(missing_ok=True)
                if made:
                    folder.rmdir()
        raise


class _InUse(DataError):
    """Another process is writing the run."""


@contextmanager
def _locked(folder: Path) -> Iterator[BinaryIO]:
    """Open a run's records to append to them, and lock them; nobody else has them."""
    file = _opened(folder)
    while not _is_same(file, folder / RECORDS):  # a run that failed at once removed it
        file.close()
        file = _opened(folder)
    try:
        yield file
    except BaseException:
        with suppress(OSError):  # what could not be written was raised before
            file.close()
        raise
    with writing(folder / RECORDS):
        file.close()


def _opened(folder: Path) -> BinaryIO:
    with writing(folder / RECORDS), ExitStack() as stack:
        file = stack.enter_context((folder / RECORDS).open("ab"))
        if not lock(file):
            raise _InUse(
                f"{folder} is under way in another process: stop that one, or wait for "
                "it to end"
            )
        stack.pop_all()
        return file


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file is still the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _check_unfinished(folder: Path) -> None:
    """Raise DataError where beginning again would destroy a run that has ended."""
    if (folder / MODEL).exists() and evaluations(read(folder / RECORDS)):
        raise DataError(
            f"{folder} has ended, and has no checkpoint to go on from: begin a new run"
        )


def _full(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"{folder / RECORDS} cannot be written: {error.strerror}; up to its last "
        "checkpoint the run is whole, and `melisma resume` goes on from there"
    )


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
        except OSError as error:
            raise DataError(f"{folder} cannot be made: {error.strerror}") from error
        break
    return folder
