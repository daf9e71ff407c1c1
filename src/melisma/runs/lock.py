"""The lock on a run's records, held by the process that writes them."""

import fcntl
import time
from pathlib import Path
from typing import BinaryIO

#: A reader that asks whether records are locked holds them for microseconds.
TRIES, PAUSE_S = 20, 0.01


def lock(records: BinaryIO) -> bool:
    """Lock the records until the file is closed; False if another process has them.

    An exclusive lock, released by the kernel however the process ends.
    """
    for _ in range(TRIES):
        try:
            fcntl.flock(records, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_S)
        else:
            return True
    return False


def is_locked(records: Path) -> bool:
    """Return whether a process is writing these records."""
    try:
        with records.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
