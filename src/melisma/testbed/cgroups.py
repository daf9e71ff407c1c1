"""CPU quotas of groups of processes, by cgroup v2 or v1, whichever is there."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from melisma.errors import ConfigError

PERIOD_US = 100_000  #: over which a CPU quota is kept


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this machine keeps CPU quotas: the hierarchy of cgroup v2, or of v1."""

    roots: tuple[Path, ...]  #: v2: one; v1: of cpu, and of cpuacct where that is apart
    unified: bool  #: v2

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
                if "cpu" in (root / "cgroup.controllers").read_text().split():
                    return cls((root,), unified=True)
            elif kind == "cgroup":
                v1 |= dict.fromkeys(options.split(","), root)
        if "cpu" not in v1:
            return None
        roots = dict.fromkeys((v1["cpu"], v1.get("cpuacct", v1["cpu"])))
        return cls(tuple(roots), unified=False)

    def make(self, name: str, cpu: float | None) -> None:
        """Make the group; ``cpu`` is its quota in cores, None for no limit.

        ConfigError if the kernel refuses, such as for more than the parent has.
        """
        try:
            if self.unified:
                (self.roots[0] / "cgroup.subtree_control").write_text("+cpu")
            for root in self.roots:
                (root / name).mkdir()
            self.limit(name, cpu)
        except OSError as error:
            raise ConfigError(
                f"no CPU quota of {cpu} cores under {self.roots[0]}: {error}"
            ) from error

    def limit(self, name: str, cpu: float | None) -> None:
        """Give the group another quota, in cores; OSError if the kernel refuses."""
        group = self.roots[0] / name
        none = "max" if self.unified else "-1"
        quota_us = none if cpu is None else str(round(cpu * PERIOD_US))
        if self.unified:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(quota_us)

    def entrances(self, name: str) -> list[str]:
        """Files to which a process writes 0 to be in the group."""
        return [str(root / name / "cgroup.procs") for root in self.roots]

    def used_s(self, name: str) -> float:
        """Seconds of CPU time that the group has used, by its own account."""
        group = self.roots[-1] / name
        if self.unified:
            first = (group / "cpu.stat").read_text().split()
            return int(first[first.index("usage_usec") + 1]) * 1e-6
        return int((group / "cpuacct.usage").read_text()) * 1e-9

    def names(self) -> set[str]:
        """Names of all groups, ours and others."""
        return {path.name for root in self.roots for path in root.iterdir()}

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
        for root in self.roots:
            with contextlib.suppress(OSError):
                (root / name).rmdir()
