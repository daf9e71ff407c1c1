"""The lock on a run's records, held by the process that writes them."""

import fcntl
from pathlib import Path
from typing import BinaryIO


def lock(records: BinaryIO) -> None:
    """Lock the records until the file is closed, so that others see they are written.

    A shared lock, released by the kernel however the process ends.
    """
    fcntl.flock(records, fcntl.LOCK_SH)


def is_locked(records: Path) -> bool:
    """Return whether a process is writing these records."""
    try:
        with records.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
