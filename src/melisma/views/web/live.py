"""State of the live run that only the orchestrating process has."""

from pathlib import Path
from typing import Any

import msgspec

from melisma.algorithms.control import Control
from melisma.fleets.remotes import Remotes
from melisma.jobs.names import names_of
from melisma.views.document import CUT_SHORT, FINISHED, Document


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """How devices join. It holds a token: only who may control sees it."""

    command: str  #: that a device types
    link: str = ""  #: that makes a phone or a browser a learner
    why: str = ""  #: there is no link
    code: list[str] = []  #: QR code of the link, or of the command: rows, 1 is dark
    local: bool = False  #: only this machine reaches the server


class Live:
    """The run that this process orchestrates."""

    def __init__(self, folder: Path, control: Control, fixed: str = "") -> None:
        self.folder, self.control = folder, control
        self.fixed = fixed  #: why its deadline cannot be changed; empty if it can
        self.server: Remotes | None = None
        self.invitation: Invitation | None = None
        self.over = False
        self._seen_s: dict[str, float] = {}

    @property
    def id(self) -> str:
        """Its name among the runs."""
        return self.folder.resolve().name

    def state(self, document: Document) -> str:
        """Return what the run is about to do, or how it ended."""
        if not self.over:
            return self.control.intent.value
        document.refresh()  # the last records may be newer than what was read
        return FINISHED if document.is_whole else CUT_SHORT

    def status(self, document: Document) -> dict[str, Any]:
        """Return the current status; times are on the run's clock."""
        control, server = self.control, self.server
        rows = document.rows
        now_s = control.now_s()
        first = next(iter(list(control.under_way.values())), None)
        done = sum(progress.done for progress in rows.progress)
        return {
            "live": self.id,
            "state": self.state(document),
            "now_s": round(now_s, 3),
            "cycle": first.cycle if first else done,
            "cycle_began_s": round(first.began_s, 3) if first else None,
            "deadline_s": first.deadline_s if first else rows.progress[0].deadline_s,
            "sent_bytes": server.metrics.sent_bytes if server else 0,
            "received_bytes": server.metrics.received_bytes if server else 0,
            "learners": self._presence(list(rows.learners), now_s),
            "waiting": self._waiting(document),
        }

    def _waiting(self, document: Document) -> dict[str, Any] | None:
        """Return who has come and what they do, while no cycle can begin."""
        gathering = self.control.gathering
        if gathering is None or self.over or not gathering.waiting:
            return None
        here, named = gathering.learners.keys(), {*names_of(document.job)}
        known = len(named) == gathering.least and named.issuperset(here)
        return gathering.status() | {
            "invites": self.invitation is not None,
            "missing": sorted(named.difference(here)) if known else [],
        }

    def _presence(self, names: list[str], now_s: float) -> dict[str, Any]:
        """Return for each learner whether it is connected and when last heard."""
        silences_s = self.server.silences_s if self.server else {}
        for name, silence_s in silences_s.items():
            if silence_s is not None:
                self._seen_s[name] = round(max(0.0, now_s - silence_s), 3)
        return {
            name: {
                "connected": silences_s.get(name) is not None,
                "seen_s": self._seen_s.get(name),
            }
            for name in dict.fromkeys([*names, *silences_s])
        }


#: The status where no run is live in this process.
NONE: dict[str, Any] = {
    "live": None,
    "state": None,
    "now_s": None,
    "cycle": None,
    "cycle_began_s": None,
    "deadline_s": None,
    "sent_bytes": 0,
    "received_bytes": 0,
    "learners": {},
    "waiting": None,
}
