"""A process with little memory, by cgroups v1."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

CGROUPS, OWN = Path("/sys/fs/cgroup/memory"), Path("/proc/self/cgroup")


class Group:
    """A group of processes below this process's own, with a limit on its memory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def peak_bytes(self) -> int:
        """Most memory that it had, caches of files included."""
        return int((self._path / "memory.max_usage_in_bytes").read_text())

    def enter(self) -> None:
        """Put this process in."""
        (self._path / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def limited(most_bytes: int) -> Iterator[Group | None]:
    """Make a group for the block; None where that cannot be done."""
    path = CGROUPS / _own() / f"melisma-hostile-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        yield None
        return
    try:
        (path / "memory.limit_in_bytes").write_text(str(most_bytes))
        yield Group(path)
    finally:
        _remove(path)


def _own() -> str:
    """Return the path of this process's own group."""
    with suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "memory" and (CGROUPS / path.lstrip("/")).is_dir():
                return path.lstrip("/")
    return ""


def _remove(path: Path) -> None:
    """Remove an empty group; the kernel may need a moment after its last process."""
    for _ in range(50):
        with suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.1)


@contextmanager
def started(
    command: Sequence[object], group: Group | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python on these arguments in a group; it is killed if the block fails.

    Its folder is that of the benchmarks, so that it finds the modules beside this one.
    """
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=Path(__file__).parents[1],
        preexec_fn=group.enter if group else None,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
