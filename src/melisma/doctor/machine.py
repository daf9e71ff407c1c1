"""What needs no torch: versions, clock, cores, memory, disk and ports."""

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from melisma import __version__
from melisma.cgroups import quota_cores
from melisma.doctor.finding import Finding, note, ok, trouble
from melisma.provenance import cpu_name

#: Packages that melisma imports wherever it trains, by what pip calls them.
NEEDED = {
    "aiohttp": "aiohttp",
    "cryptography": "cryptography",
    "matplotlib": "matplotlib",
    "mlxtend": "mlxtend",
    "msgspec": "msgspec",
    "networkx": "networkx",
    "numpy": "numpy",
    "rich": "rich",
    "safetensors": "safetensors",
    "scipy": "scipy",
    "tomli-w": "tomli_w",
    "torch": "torch",
    "typer": "typer",
}
#: Extras, by a module of theirs.
EXTRAS = {
    "discovery": "zeroconf",
    "fast": "uvloop",
    "flower": "flwr",
    "images": "PIL",
    "mlflow": "mlflow",
    "pandas": "pandas",
    "parquet": "pyarrow",
    "ray": "ray",
    "tensorboard": "tensorboardX",
}
#: A clock that is behind this has not been set since the machine started.
RELEASED_S = 1.75e9
#: Resolution from which on a cycle of a second cannot be timed.
COARSE_S = 2e-3
#: What torch and a small model take, and what is comfortable.
LEAST_MEMORY, USUAL_MEMORY = 256 << 20, 1 << 30
LEAST_DISK, USUAL_DISK = 64 << 20, 1 << 30
MEMINFO = Path("/proc/meminfo")


def version() -> Iterator[Finding]:
    """Say which melisma, Python and system these are."""
    says = (
        f"melisma {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )
    yield ok(
        "version",
        says,
        melisma=__version__,
        python=platform.python_version(),
        system=platform.platform(),
        executable=sys.executable,
    )


def packages() -> Iterator[Finding]:
    """Say which packages are there, and which optional ones."""
    missing = [name for name, module in NEEDED.items() if not _is_there(module)]
    if missing:
        yield trouble(
            "packages",
            f"not installed: {', '.join(missing)}",
            f"{sys.executable} -m pip install {' '.join(missing)}",
            missing=missing,
        )
    else:
        versions = {name: _version_of(name) for name in NEEDED}
        says = f"all {len(NEEDED)} are there, torch {versions['torch'] or '?'}"
        yield ok("packages", says, versions=versions)
    there = [name for name, module in EXTRAS.items() if _is_there(module)]
    absent = [name for name in EXTRAS if name not in there]
    says = f"{', '.join(there) or 'none'} installed"
    if absent:
        says += f"; pip install 'melisma[NAME]' has {', '.join(absent)}"
    yield ok("extras", says, installed=there, absent=absent)


def clock() -> Iterator[Finding]:
    """Say how fine the clock is that cycles are timed by, and whether the date is."""
    info = time.get_clock_info("monotonic")
    tick_s = max(_tick_s(), info.resolution)
    facts = {"tick_s": tick_s, "monotonic": info.monotonic, "unix_s": time.time()}
    if tick_s > COARSE_S:
        yield note(
            "clock",
            f"ticks each {1e3 * tick_s:.3g} ms: short cycles cannot be timed",
            "take deadlines of seconds, or another clock source of the kernel",
            **facts,
        )
    elif time.time() < RELEASED_S:
        yield note(
            "clock",
            f"it says {time.strftime('%Y-%m-%d', time.gmtime())}, which is past",
            "set it (timedatectl set-ntp true): records and certificates have dates",
            **facts,
        )
    else:
        says = f"monotonic, ticks of {1e6 * tick_s:.3g} µs, "
        yield ok("clock", says + time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))


def cores() -> Iterator[Finding]:
    """Say how many cores this process may use, and who else does."""
    there = os.cpu_count() or 1
    allowed = there
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    quota, load = quota_cores(), _load()
    usable = min(float(allowed), quota or float(allowed))
    facts = {
        "cpu": cpu_name(),
        "cores": there,
        "allowed": allowed,
        "quota": quota,
        "load": load,
    }
    says = f"{facts['cpu']}, {allowed} of {there} cores"
    if quota is not None and quota < allowed:
        yield note(
            "cores",
            f"{says}, and a quota of {quota:.3g} of them, above which it is halted",
            f"train with --threads {max(1, int(quota))}, or raise the CPU limit",
            **facts,
        )
    elif load is not None and load > 1.5 * usable:
        yield note(
            "cores",
            f"{says}, on which {load:.1f} threads were busy in the last minute",
            "end what else computes: benchmarks and deadlines would be off",
            **facts,
        )
    else:
        yield ok("cores", says, **facts)
    yield from _threads(max(1, int(usable)))


def _threads(usable: int) -> Iterator[Finding]:
    """Say whether the environment asks for more threads than there are cores."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    asked = {name: os.environ[name] for name in names if name in os.environ}
    too_many = [n for n, v in asked.items() if v.isdecimal() and int(v) > usable]
    if too_many:
        yield note(
            "environment",
            ", ".join(f"{name}={asked[name]}" for name in too_many)
            + f" on {usable} usable {'core' if usable == 1 else 'cores'}",
            "unset it: threads that share a core wait for one another",
            **asked,
        )


def memory() -> Iterator[Finding]:
    """Say how much memory is there, and how much of it is free."""
    from melisma.rpc.memory import default_bytes

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = min(total, 4 * default_bytes())  # which is a quarter of what it may have
    free = min(_free_memory(total), limit)
    facts = {"total_bytes": total, "limit_bytes": limit, "free_bytes": free}
    says = f"{gigabytes(free)} free of {gigabytes(limit)}"
    if limit < 0.99 * total:
        says += f" that this process may have; the machine has {gigabytes(total)}"
    if free < LEAST_MEMORY:
        fix = "end other programs, add swap, or raise the container's limit"
        yield trouble("memory", f"{says}: torch does not fit", fix, **facts)
    elif free < USUAL_MEMORY:
        fix = "take a small model and batch; end other programs"
        yield note("memory", says, fix, **facts)
    else:
        yield ok("memory", says, **facts)


def disk(runs: Path) -> Iterator[Finding]:
    """Say whether runs can be written where they go."""
    if runs.exists() and not runs.is_dir():
        fix = "give another one by --runs"
        yield trouble("disk", f"{runs} is a file, not a folder for runs", fix)
        return
    there = nearest(runs)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        yield trouble(
            "disk",
            f"nothing can be written in {there}: {error.strerror or error}",
            "run it elsewhere, or give another folder by --runs",
            folder=str(there),
        )
        return
    free = shutil.disk_usage(there).free
    says, facts = f"{gigabytes(free)} free for {runs}", {"free_bytes": free}
    if free < LEAST_DISK:
        fix = "free some of it, or give another folder by --runs"
        yield trouble("disk", says, fix, **facts)
    elif free < USUAL_DISK:
        yield note("disk", says, "long runs keep checkpoints: free some of it", **facts)
    else:
        yield ok("disk", says, **facts)


def port(number: int) -> Iterator[Finding]:
    """Say whether a server can listen on its usual port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            yield note(
                "port",
                f"{number} cannot be listened on: {error.strerror}",
                "end the server that has it, or `melisma serve --port 0`",
                port=number,
            )
            return
    yield ok("port", f"{number} is free to listen on", port=number)


def nearest(folder: Path) -> Path:
    """Return a folder, or the nearest above it that is there."""
    folder = folder.expanduser().absolute()
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def gigabytes(size: float) -> str:
    """Return a size as people read it.

    >>> gigabytes(16 << 30), gigabytes(200 << 20)
    ('17.2 GB', '210 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # blocked, or half installed
        return False


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _tick_s() -> float:
    """Return the smallest step that the monotonic clock was seen to make."""
    steps: list[float] = []
    last = time.monotonic()
    until = last + 0.01
    while len(steps) < 50 and last < until:
        now = time.monotonic()
        if now > last:
            steps.append(now - last)
        last = now
    return min(steps, default=0.01)


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _free_memory(total: int) -> int:
    """Return the memory that can be had without swapping, where the system says so."""
    with suppress(OSError, ValueError, IndexError):
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return total
