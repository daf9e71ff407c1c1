"""The runs in a folder: their summaries, and the documents that were opened."""

import threading
from collections import OrderedDict
from pathlib import Path

from melisma.errors import DataError, MelismaError
from melisma.views.document import Document
from melisma.views.summary import Summary, run_folders, summary

#: Documents that are kept in memory, the live run's beside them.
OPEN = 4


class Library:
    """Finds runs by their names alone; threads may ask."""

    def __init__(self, root: Path, live: Path | None = None) -> None:
        self._root = root
        self._live = live.resolve() if live else None
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, Document] = OrderedDict()
        self._summaries: dict[Path, Summary] = {}

    def summaries(self) -> list[Summary]:
        """Return what there is, the latest first; damaged runs are left out."""
        found = []
        for folder in self._folders().values():
            try:
                known = self._summaries.get(folder)
                self._summaries[folder] = latest = summary(folder, known)
            except MelismaError:
                continue
            found.append(latest)
        return sorted(found, key=lambda run: run.modified, reverse=True)

    def document(self, id: str) -> Document:
        """Return a run as it is now; DataError if there is none of that name."""
        folder = self._folders().get(id)
        if folder is None:
            raise DataError(f"there is no run {id[:80]!r}")
        with self._lock:
            document = self._open.pop(folder, None) or Document(folder)
            self._open[folder] = document
            for other in list(self._open):
                if len(self._open) > OPEN and other not in (folder, self._live):
                    del self._open[other]
        document.refresh()
        return document

    def _folders(self) -> dict[str, Path]:
        """Runs by name: what comes from outside is only ever looked up in here."""
        return {folder.name: folder.resolve() for folder in run_folders(self._root)}
