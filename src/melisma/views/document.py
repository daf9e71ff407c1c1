"""A run as one JSON document, whole or only its changes: what the dashboard shows.

It is read from the run's folder, whether the run is finished or under way; no torch.
"""

import gc
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from melisma.errors import DataError
from melisma.jobs.families import family_of
from melisma.jobs.files import load
from melisma.jobs.schema import Job, tasks_of
from melisma.runs.files import CONFIG, RECORDS
from melisma.runs.lock import is_locked
from melisma.runs.tail import Tail
from melisma.views.differing import differing
from melisma.views.live_tables import LiveTables

RUNNING, FINISHED, CUT_SHORT = "running", "finished", "cut short"


def document(folder: Path) -> dict[str, Any]:
    """Return a whole run as plain JSON values; DataError if ``folder`` has none."""
    plain: dict[str, Any] = msgspec.json.decode(encoded(folder))
    return plain


def encoded(folder: Path) -> bytes:
    """Return a whole run as encoded JSON; DataError if ``folder`` has none."""
    run = Document(folder)
    run.refresh()
    return msgspec.json.encode(run.since(0))


def folders_of(job: Job, folder: Path) -> list[Path]:
    """Return the folder of each task's records."""
    return [folder / task.name for task in tasks_of(job)] if job.tasks else [folder]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector: records hold no reference cycles to find.

    Looking for them among a million records takes longer than reading them.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Document:
    """A run in its folder, which may still grow. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        if not (folder / CONFIG).is_file():
            raise DataError(f"{folder} is no run: there is no {CONFIG} in it")
        self.folder = folder
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.epoch = secrets.token_hex(4)  #: changes when the run is restarted
        self._config = (self.folder / CONFIG).read_text(encoding="utf-8")
        self.job = load(self.folder / CONFIG)
        self._changed = differing(self.job)
        self.tasks = tasks_of(self.job)
        folders = folders_of(self.job, self.folder)
        self.tail = Tail([folder / RECORDS for folder in folders])
        self.rows = LiveTables([float(task.deadline) for task in self.tasks])

    def refresh(self) -> None:
        """Read new records; DataError if they cannot be read."""
        if not self.tail.has_grown() and not self.tail.has_shrunk():
            return
        with self._lock:
            if self.tail.has_shrunk():
                self._begin()
            with _without_collection():
                for task, records in self.tail.read():
                    self.rows.see(task, records)

    @property
    def is_whole(self) -> bool:
        """Whether every task that was not refused has all its cycles."""
        return all(
            progress.is_over or progress.done >= task.cycles
            for progress, task in zip(self.rows.progress, self.tasks, strict=True)
        )

    @property
    def state(self) -> str:
        """The run's state, as far as its folder shows it."""
        if self.is_whole:
            return FINISHED
        return RUNNING if is_locked(self.tail.paths[0]) else CUT_SHORT

    def header(self, state: str | None = None) -> dict[str, Any]:
        """Return the document's ``run``; ``state`` replaces what the folder shows."""
        job = self.job
        return {
            "id": self.folder.resolve().name,
            "name": job.name,
            "scheme": job.scheme,
            "mode": job.mode.value,
            "kind": family_of(job).kind,
            "seed": job.seed,
            "cycles": sum(task.cycles for task in self.tasks),
            "deadline_s": self.rows.progress[0].deadline_s,
            "late_at_most": job.late_at_most,
            "budget": job.budget,
            "state": state or self.state,
            "changed": self._changed,
            "config": self._config,
        }

    def since(
        self, after: int, epoch: str | None = None, state: str | None = None
    ) -> dict[str, Any]:
        """Return what changed after record ``after``; the whole document at 0.

        Also the whole if ``epoch`` is not the current one: the run was restarted.
        """
        with self._lock:
            rows, changes = self.rows, dict[str, Any]()
            if epoch not in (None, self.epoch) or after > rows.position:
                after = 0
            if epoch != self.epoch or after != rows.position:
                changes = rows.since(after)
                if after == 0:
                    changes["run"] = self.header(state)
                if after == 0 or rows.tasks_changed > after:
                    changes["tasks"] = self._task_headers()
            changes |= {"after": after, "epoch": self.epoch}
            return changes | {"position": rows.position}

    def _task_headers(self) -> list[dict[str, Any]]:
        return [
            {
                "name": task.name,
                "scheme": task.scheme,
                "cycles": task.cycles,
                "deadline_s": progress.deadline_s,
                "why": progress.why,
                "metrics": progress.metrics,
            }
            for task, progress in zip(self.tasks, self.rows.progress, strict=True)
        ]

    def raw(self, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return records as the lines of their files, and the position after them."""
        with self._lock:
            lines = self.tail.raw(after, limit)
        return after + len(lines), lines
