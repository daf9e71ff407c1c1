"""What the cgroups of this process, and their parents, limit: versions 1 and 2."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Where the kernel says in which cgroups this process is, and where they are mounted.
OWN, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_limits() -> Iterator[int]:
    """Limits on memory, in bytes."""
    for group, name in _groups("memory", "memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # none there; "max"
            yield int((group / name).read_text())


def quota_cores() -> float | None:
    """Return how many cores' time is allowed; None if all."""
    quotas = []
    for group, name in _groups("cpu", "cpu.max", "cpu.cfs_quota_us"):
        with suppress(OSError, ValueError, ZeroDivisionError):  # "max 100000"
            # In version 1 the period is a file of its own.
            quota, *period = (group / name).read_text().split()
            period_us = period or [(group / "cpu.cfs_period_us").read_text()]
            quotas.append(float(quota) / float(period_us[0]))
    return min((quota for quota in quotas if quota > 0), default=None)


def _groups(controller: str, v2: str, v1: str) -> Iterator[tuple[Path, str]]:
    """Folders of the cgroups that hold for a controller, and its file's name there."""
    lines: list[str] = []
    with suppress(OSError):
        lines = OWN.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):
            if not controllers:
                yield ROOT / group, v2
            elif controller in controllers.split(","):
                yield ROOT / controller / group, v1
