"""Whether somebody is at work on a run: it holds a lock on the records."""

import fcntl
from pathlib import Path
from typing import BinaryIO


def hold(records: BinaryIO) -> None:
    """Let others know that this process writes these records, until it closes them."""
    fcntl.flock(records, fcntl.LOCK_SH)


def is_held(records: Path) -> bool:
    """Return whether some process writes these records now."""
    try:
        with records.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
