"""The runs in a folder: their summaries, and a cache of opened documents."""

import threading
from collections import OrderedDict
from pathlib import Path

from melisma.errors import DataError, MelismaError
from melisma.views.document import Document
from melisma.views.summary import Summary, run_folders, summary

#: Documents kept in memory beside the live run's.
OPEN = 4


class Library:
    """Finds runs by name. Safe to use from several threads."""

    def __init__(self, root: Path, live: Path | None = None) -> None:
        self._root = root
        self._live = live.resolve() if live else None
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, Document] = OrderedDict()
        self._summaries: dict[Path, Summary] = {}

    def summaries(self) -> list[Summary]:
        """Return a summary of each run, the latest first; damaged ones are left out."""
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
        """Return a run, read up to now; DataError if there is none of that name."""
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
        """Return folders by name: a name from a request is looked up, never joined.

        So no request can leave the folder of runs.
        """
        return {folder.name: folder.resolve() for folder in run_folders(self._root)}
