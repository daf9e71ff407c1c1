"""Seconds of the wall clock and of the processors, and memory, cycle by cycle."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

PROC = Path("/proc")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an engine."""

    wall_s: list[float]  #: of each cycle; the first includes the engine's start
    cpu_s: list[float] | None  #: of each cycle; None: not to be had on this system
    peak_bytes: int  #: most memory resident at once


class Meter:
    """Takes the time at each tick: the first begins a cycle, the others end one.

    With ``family``, what child processes use is counted too: their seconds in steps of
    10 ms, and the sum of all peaks for memory, pages that they share counted twice.
    """

    def __init__(self, *, family: bool) -> None:
        self._cpu: Callable[[], float] | None = time.process_time
        self._peak: Callable[[], int] = _peak_bytes
        if family:
            self._cpu = _family_cpu_s if PROC.is_dir() else None
            self._peak = _family_peak_bytes if PROC.is_dir() else _peak_bytes
        self._wall_at: list[float] = []
        self._cpu_at: list[float] = []
        self._peak_bytes = 0

    def tick(self) -> None:
        """Begin the first cycle, or end one."""
        self._wall_at.append(time.perf_counter())
        if self._cpu is not None:
            self._cpu_at.append(self._cpu())
        self._peak_bytes = max(self._peak_bytes, self._peak())

    def result(self) -> Measured:
        """Return what passed from tick to tick."""
        return Measured(
            wall_s=_differences(self._wall_at),
            cpu_s=None if self._cpu is None else _differences(self._cpu_at),
            peak_bytes=self._peak_bytes,
        )


def _differences(values: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(values)]


def _peak_bytes(process: int | str = "self") -> int:
    """Most memory that a process ever had resident.

    Linux's getrusage would not do: it starts a child at its parent's peak.
    """
    if not PROC.is_dir():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    for line in (PROC / str(process) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0  # a process that has ended, but still has its number


def _family_cpu_s() -> float:
    # Fields 14 to 17 of proc(5)'s stat: user, system and those of children that ended.
    ticks = sum(sum(map(int, stat[11:15])) for _, stat in _family())
    return ticks / os.sysconf("SC_CLK_TCK")


def _family_peak_bytes() -> int:
    return sum(_peak_bytes(process) for process, _ in _family())


def _family() -> Iterator[tuple[int, list[str]]]:
    """This process and all that descend from it: numbers and fields 3 on of stat."""
    everyone = dict(_processes())
    children: dict[int, list[int]] = {}
    for process, stat in everyone.items():
        children.setdefault(int(stat[1]), []).append(process)
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        yield process, everyone[process]
        waiting += children.get(process, [])


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it ended a moment ago
            continue
        # The name, field 2, is in brackets and may hold anything.
        yield int(folder.name), stat.rpartition(")")[2].split()
