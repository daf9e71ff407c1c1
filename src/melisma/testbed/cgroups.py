"""CPU quotas and memory limits of groups of processes, by cgroup v2 or v1."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from melisma.errors import ConfigError

#: Over which a CPU quota is kept: far below the time of a shard. Over the usual 100 ms
#: short work is done at full speed, or waits for most of a period, by chance.
PERIOD_US = 5_000
LEAST_QUOTA_US = 1_000  #: that the kernel grants; smaller shares get longer periods


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this machine keeps CPU quotas: the hierarchy of cgroup v2, or of v1."""

    roots: tuple[Path, ...]  #: v2: one; v1: of cpu, and of cpuacct where that is apart
    unified: bool  #: v2
    memory: Path | None = None  #: where memory is limited; None if nowhere

    @classmethod
    def find(cls) -> Self | None:
        """Return what is mounted and writable; None if nothing is."""
        v1: dict[str, Path] = {}
        for mount in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind, options, *_ = mount.split()
            root = Path(where)
            if not os.access(root, os.W_OK):
                continue
            if kind == "cgroup2":
                controllers = (root / "cgroup.controllers").read_text().split()
                if "cpu" in controllers:
                    memory = root if "memory" in controllers else None
                    return cls((root,), unified=True, memory=memory)
            elif kind == "cgroup":
                v1 |= dict.fromkeys(options.split(","), root)
        if "cpu" not in v1:
            return None
        roots = dict.fromkeys((v1["cpu"], v1.get("cpuacct", v1["cpu"])))
        return cls(tuple(roots), unified=False, memory=v1.get("memory"))

    def make(
        self, name: str, cpu: float | None, memory_bytes: int | None = None
    ) -> None:
        """Make the group; ``cpu`` is its quota in cores; None is no limit.

        ConfigError if the kernel refuses, such as for more than the parent has.
        """
        try:
            if self.unified:
                controllers = "+cpu +memory" if self.memory else "+cpu"
                (self.roots[0] / "cgroup.subtree_control").write_text(controllers)
            for root in self._hierarchies():
                (root / name).mkdir()
            self.limit(name, cpu)
        except OSError as error:
            raise ConfigError(
                f"no CPU quota of {cpu} cores under {self.roots[0]}: {error}"
            ) from error
        if memory_bytes is not None:
            self._limit_memory(name, memory_bytes)

    def _hierarchies(self) -> list[Path]:
        """Where a group has a folder, each once."""
        memory = () if self.memory is None else (self.memory,)
        return list(dict.fromkeys((*self.roots, *memory)))

    def _limit_memory(self, name: str, memory_bytes: int) -> None:
        """Let the group's processes be killed beyond so many bytes, swap included."""
        if self.memory is None:
            raise ConfigError(
                f"no limit of {memory_bytes} bytes: the kernel has no memory "
                "controller here; boot it with cgroup_enable=memory, or use a device "
                "without memory_bytes"
            )
        group = self.memory / name
        most = "memory.max" if self.unified else "memory.limit_in_bytes"
        swap, swapped = (
            ("memory.swap.max", 0)
            if self.unified
            else ("memory.memsw.limit_in_bytes", memory_bytes)
        )
        try:
            (group / most).write_text(str(memory_bytes))
            if (group / swap).exists():  # not where swap is not accounted for
                (group / swap).write_text(str(swapped))
        except OSError as error:
            raise ConfigError(
                f"no memory limit of {memory_bytes} bytes under {group}: {error}"
            ) from error

    def limit(self, name: str, cpu: float | None) -> None:
        """Give the group another quota, in cores; OSError if the kernel refuses."""
        group = self.roots[0] / name
        none = "max" if self.unified else "-1"
        period_us = max(PERIOD_US, round(LEAST_QUOTA_US / (cpu or 1.0)))
        quota_us = none if cpu is None else str(round(cpu * period_us))
        if self.unified:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (group / "cpu.cfs_quota_us").write_text(none)  # any period goes with none
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(quota_us)

    def entrances(self, name: str) -> list[str]:
        """Files to which a process writes 0 to be in the group."""
        return [str(root / name / "cgroup.procs") for root in self._hierarchies()]

    def used_s(self, name: str) -> float:
        """Seconds of CPU time that the group has used, by its own account."""
        group = self.roots[-1] / name
        if self.unified:
            first = (group / "cpu.stat").read_text().split()
            return int(first[first.index("usage_usec") + 1]) * 1e-6
        return int((group / "cpuacct.usage").read_text()) * 1e-9

    def names(self) -> set[str]:
        """Names of all groups, ours and others."""
        roots = self._hierarchies()
        return {path.name for root in roots for path in root.iterdir()}

    def processes(self, name: str) -> set[int]:
        """Ids of the processes in the group; none if it is not there."""
        found: set[int] = set()
        for entrance in self.entrances(name):
            with contextlib.suppress(OSError):
                found |= set(map(int, Path(entrance).read_text().split()))
        return found

    def lift(self, name: str) -> None:
        """Lift the quota if there is one, so that killed processes end at once."""
        with contextlib.suppress(OSError):
            self.limit(name, None)

    def remove(self, name: str) -> None:
        """Remove the group if it is there and empty."""
        for root in self._hierarchies():
            with contextlib.suppress(OSError):
                (root / name).rmdir()
