"""Benchmarks that a device keeps, so that the next run of the same task begins sooner.

A file for each task and device. It is of use for the same work, on the same machine,
with the same torch, for a week at most, and only after a quick look found that it still
holds (`measuring.holds`).
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from melisma import __version__
from melisma.errors import ConfigError
from melisma.fleets.messages import TaskSpec
from melisma.learner.device import Device
from melisma.learning.benchmark import Line, machine
from melisma.learning.data import cache_folder
from melisma.provenance import cpu_name

log = logging.getLogger("melisma.learner")

#: Age from which a benchmark is made anew, and files that are kept.
EXPIRES_S, FILES = 7 * 86_400.0, 256
#: Of a task, what its benchmark does not depend on.
_OTHERWISE = (
    "task",
    "seed",
    "late_at_most",
    "look_every",
    "steps",
    "drifted",
    "bundle",
)


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark as its file has it."""

    at: float  #: seconds since 1970
    link: tuple[float, float, float]  #: latency, rate, spread
    compute: tuple[float, float, float]

    def lines(self) -> tuple[Line, Line]:
        """Return the lines of link and compute; ConfigError if they cannot be."""
        pairs = [
            Line(latency_s=latency_s, rate=rate, spread=spread)
            for latency_s, rate, spread in (self.link, self.compute)
        ]
        return pairs[0], pairs[1]


class Benchmarks:
    """The benchmarks of this device, in a folder.

    ``about`` says for what else they hold: who is at the other end of the link.
    """

    def __init__(
        self,
        folder: Path | None = None,
        about: str = "",
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder or cache_folder() / "benchmarks"
        self._about, self._now_s = about, now_s

    def find(self, device: Device, spec: TaskSpec) -> tuple[Line, Line] | None:
        """Return the lines of link and compute; None if there are none to rely on."""
        path = self._path(device, spec)
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=Kept)
            if not 0 <= self._now_s() - kept.at <= EXPIRES_S:
                return None
            return kept.lines()
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, ConfigError) as error:
            log.warning("The benchmark in %s is of no use: %s", path, error)
            return None

    def keep(self, device: Device, spec: TaskSpec, lines: tuple[Line, Line]) -> None:
        """Write a benchmark, atomically; where that fails, the log has it."""
        link, compute = [(own.latency_s, own.rate, own.spread) for own in lines]
        kept = Kept(at=self._now_s(), link=link, compute=compute)
        path = self._path(device, spec)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(msgspec.json.encode(kept))
            os.replace(file.name, path)
            self._forget_oldest()
        except OSError as error:
            log.warning("The benchmark is not kept: %s: %s", path, error.strerror)

    def _forget_oldest(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in files[:-FILES]:
            with suppress(FileNotFoundError):
                path.unlink()

    def _path(self, device: Device, spec: TaskSpec) -> Path:
        return self._folder / f"{key_of(device, spec, self._about)}.json"


def key_of(device: Device, spec: TaskSpec, about: str) -> str:
    """Return the hash of all that a benchmark depends on."""
    work = {
        name: value
        for name, value in msgspec.to_builtins(spec).items()
        if name not in _OTHERWISE
    }
    own = device.own.train if device.own and spec.federated else None
    throttle = device.background.throttle(spec.task)
    on: Mapping[str, object] = {
        "melisma": __version__,
        "torch": importlib.metadata.version("torch"),
        "machine": [platform.node(), platform.machine(), cpu_name()],
        "threads": machine().threads,
        "device": str(device.trains_on),
        "precision": device.precision.value,
        "rates": throttle.rates,
        "own": None if own is None else len(own),
        "about": about,
    }
    text = json.dumps([work, on], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
