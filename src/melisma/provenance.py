"""One line that says of which code, on which machine and when figures were measured."""

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]  # of a checkout; elsewhere when installed
CPUINFO = Path("/proc/cpuinfo")


def provenance() -> str:
    """Return what every figure is kept with: commit, CPU, GPUs, torch, date (UTC).

    A commit with changes on top of it ends in ``-dirty``. Outside of a checkout it is
    ``unknown``.
    """
    parts = (
        f"commit {_commit()}",
        f"{cpu_name()}, {_cores()} cores",
        *gpu_names(),
        f"torch {importlib.metadata.version('torch')}",
        f"{datetime.now(UTC):%Y-%m-%d}",
    )
    return " · ".join(parts)


def cpu_name() -> str:
    """Return the name of the processor, as far as the system knows it.

    x86 kernels name it in /proc/cpuinfo. ARM kernels give numbers there, of which
    ``lscpu`` knows the names; without ``lscpu`` the numbers are returned.
    """
    text = CPUINFO.read_text() if CPUINFO.exists() else ""
    makers, parts = _values(text, "CPU implementer"), _values(text, "CPU part")
    for names in (
        _values(text, "model name"),
        _values(_output("lscpu"), "Model name"),
        _output("sysctl", "-n", "machdep.cpu.brand_string").splitlines(),  # macOS
        [f"CPU {maker}/{part}" for maker, part in zip(makers, parts, strict=True)],
    ):
        known = [name for name in dict.fromkeys(names) if name not in ("", "-")]
        if known:
            return " + ".join(known)  # cores of one chip may differ
    return platform.processor() or platform.machine()


def gpu_names() -> list[str]:
    """Return the names of NVIDIA's GPUs that are there, one for each kind."""
    names = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return sorted({line.strip() for line in names.splitlines()} - {""})


def _values(text: str, key: str) -> list[str]:
    """Return the values of lines ``key : value``."""
    return re.findall(rf"^{key}\s*:\s*(.*?)\s*$", text, flags=re.MULTILINE)


def _commit() -> str:
    if not (ROOT / "src" / "melisma").is_dir():  # may be inside a repository of others
        return "unknown"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return _output(*command, "--exclude=*").strip() or "unknown"  # no tags


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _output(*command: str) -> str:
    """Return what a command prints, or "" if it fails or is not there."""
    english = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=english)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
