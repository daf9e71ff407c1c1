"""Who owns a link, namespace or cgroup, by its name, and the removal of what is left.

A killed owner cannot clean up, so every name says whose it is, and no other record is
needed to find what the owner left:

    mel 000ka 1x3w 0 02
     │    │    │   │  └─ which place; not there for the bridge
     │    │    │   └──── which testbed of its owner
     │    │    └──────── when the owner started: clock ticks, the last four digits
     │    └───────────── the owner's process id
     └────────────────── ours                             (numbers are in base 36)
"""

import contextlib
import os
import re
import signal
import string
import time
from collections.abc import Collection
from pathlib import Path

from melisma.errors import MelismaError
from melisma.testbed import network
from melisma.testbed.cgroups import Cgroups

_NAME = re.compile("mel([0-9a-z]{5})([0-9a-z]{4})[0-9a-z]([0-9a-z]{2})?")
_DIGITS = string.digits + string.ascii_lowercase


def digits(number: int, width: int) -> str:
    """Return the last ``width`` digits of a number in base 36.

    >>> digits(35, 2), digits(36**2 + 1, 2)
    ('0z', '01')
    """
    return "".join(_DIGITS[number // 36**i % 36] for i in reversed(range(width)))


def owner_label() -> str:
    """Return how names of this process begin."""
    return f"mel{digits(os.getpid(), 5)}{started(os.getpid())}"


def started(pid: int) -> str | None:
    """When a process started, as in names; None if it no longer runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else digits(int(fields[18]), 4)


def is_owned(name: str) -> bool:
    """Whether the owner still runs: the same process, not just one with its id."""
    parts = _NAME.fullmatch(name)
    return parts is not None and started(int(parts[1], 36)) == parts[2]


def names(cgroups: Cgroups) -> set[str]:
    """Names of all links, namespaces and cgroups of testbeds, of whatever owner."""
    return {n for n in network.names() | cgroups.names() if _NAME.fullmatch(n)}


def remove(unwanted: Collection[str], cgroups: Cgroups) -> None:
    """Kill the processes of these names and remove all else; MelismaError if it stays.

    The kernel ends processes and namespaces with a delay, so this repeats until all is
    gone, for ten seconds at least.
    """
    for _ in range(1000):
        left = names(cgroups).intersection(unwanted)
        if not left:
            return
        for name in left:
            cgroups.lift(name)
            _kill(cgroups.processes(name) | network.processes(name))
            cgroups.remove(name)
            network.remove(name)
        time.sleep(0.01)
    raise MelismaError(f"cannot remove {', '.join(left)}: see `ip link` and `ip netns`")


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
