"""A run on disk: its configuration, what happened, and the model.

runs/<name>/config.toml          everything that decides the run, its seed included
            records.jsonl        one event a line
            checkpoint.safetensors   the parameters after the last whole cycle, and
                                 how much of the records belongs to it
            model.safetensors    the parameters at the end
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from melisma.errors import DataError
from melisma.learning.parameters import Parameters, load_noted, save
from melisma.runs.files import CHECKPOINT, CONFIG, MODEL, RECORDS

__all__ = ["CHECKPOINT", "CONFIG", "MODEL", "RECORDS", "Checkpoint", "run_folder"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """Where a run stands after a whole cycle; one file, so never half of it."""

    cycle: int
    time_s: float  #: on the fleet's clock
    records_bytes: int  #: of the records that are about this cycle or earlier ones
    parameters: Parameters

    def write(self, folder: Path) -> None:
        """Put it in place of the one before."""
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


@contextmanager
def run_folder(root: Path, name: str) -> Iterator[Path]:
    """Make ``root/name``, or ``name-2``, ``name-3``… where runs of that name are.

    A folder that is still empty at the end is taken away again.
    """
    folder = _first_free(root, name)
    try:
        yield folder
    finally:
        if not any(folder.iterdir()):
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
