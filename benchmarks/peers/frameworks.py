"""Starts Flower's and NVFlare's programs on a setting, and ends them at its target."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tomli_w

from peers.emulated import BEGAN, EVALUATED, FOLDER, PROGRESS
from peers.setting import Setting

PEERS = Path(__file__).parent
#: Longest that a run may take.
LIMIT_S = 600.0
#: Of Flower's app, which is found as `peers.flower_fedavg` by every process.
APP: dict[str, Any] = {
    "project": {
        "name": "frameworks",
        "version": "1.0.0",
        "description": "FedAvg on emulated devices.",
        "license": "Apache-2.0",
        "dependencies": [],
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "melisma",
                "components": {
                    "serverapp": "peers.flower_fedavg:server",
                    "clientapp": "peers.flower_fedavg:client",
                },
                "config": {"runs": ""},
            }
        }
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How long one run took."""

    start_s: float  #: until the first learner began its first order
    seconds: float  #: from then until a model was accurate enough
    models: int  #: that were made and evaluated until then

    @classmethod
    def of(
        cls, launched: float, began: float | None, reached: float | None, models: int
    ) -> Self:
        """Make one of times on the wall's clock; RuntimeError if it was not reached."""
        if began is None or reached is None:
            raise RuntimeError(f"not accurate enough after {models} models")
        return cls(start_s=began - launched, seconds=reached - began, models=models)


def by_flower(setting: Setting, folder: Path) -> Outcome:
    """Run its app on a SuperLink with a SuperNode for each learner."""
    from tests.flower.federation import federation  # needs flwr

    setting.write(folder)
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(tomli_w.dumps(APP))
    launched = time.time()
    with federation(folder, app, **_env(folder)) as flower:
        for n in range(len(setting.order_s)):
            flower.start_node(partition_id=n, num_partitions=len(setting.order_s))
        run = flower.begin()
        return _watched(setting, folder, launched, run, lambda: flower.log)


def simulated_by_flower(setting: Setting, folder: Path) -> Outcome:
    """Run the same app in its simulation, a Ray actor for each learner."""
    return _by_program(Path(sys.executable), ("flower_fedavg.py",), setting, folder)


def by_nvflare(python: Path, way: str, setting: Setting, folder: Path) -> Outcome:
    """Run one of its ways on its simulator."""
    command = ("nvflare_run.py", way, str(folder / "workspace"))
    return _by_program(python, command, setting, folder)


def _by_program(
    python: Path, command: tuple[str, ...], setting: Setting, folder: Path
) -> Outcome:
    setting.write(folder)
    launched, log = time.time(), folder / "log.txt"
    script, *arguments = command
    with started([str(python), str(PEERS / script), *arguments], folder) as program:
        return _watched(
            setting, folder, launched, program, lambda: log.read_text(errors="replace")
        )


def _env(folder: Path) -> dict[str, str]:
    """Return what a peer's processes need: the setting, and where these modules are."""
    return {
        FOLDER: str(folder),
        "PYTHONPATH": str(PEERS.parent),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_TELEMETRY_ENABLED": "0",
    }


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; all of its processes end with the block, whatever started them."""
    with (folder / "log.txt").open("ab") as log:
        program = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | _env(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield program
    finally:
        while pids := list(_marked(folder)):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            program.wait()


def _marked(folder: Path) -> Iterator[int]:
    """Find processes by the setting's folder, in their environment or where they run.

    NVFlare and Ray put theirs into sessions of their own: no group has them all. Ray's
    agents write their titles over their environment, but run in the folder.
    """
    mark = f"\0{FOLDER}={folder}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is somebody else's
            is_marked = mark in b"\0" + (process / "environ").read_bytes()
            if is_marked or (process / "cwd").readlink() == folder:
                yield int(process.name)


def _watched(
    setting: Setting,
    folder: Path,
    launched: float,
    program: subprocess.Popen[bytes],
    log: Callable[[], str],
) -> Outcome:
    """Wait for the target; RuntimeError with its log if it fails."""
    while time.time() < launched + LIMIT_S:
        ended = program.poll() is not None
        if outcome := _read(folder / PROGRESS, launched, setting.target):
            return outcome
        if ended:
            raise RuntimeError(f"ended before the target:\n{log()}")
        time.sleep(0.1)
    raise RuntimeError(f"no target after {LIMIT_S} s:\n{log()}")


def _read(progress: Path, launched: float, target: float) -> Outcome | None:
    """Return the outcome once the target is reached."""
    if not progress.exists():
        return None
    whole, _, _ = progress.read_text().rpartition("\n")
    events = [json.loads(line) for line in whole.splitlines()]
    models = [event for event in events if event["event"] == EVALUATED]
    for number, model in enumerate(models, start=1):
        if model["accuracy"] >= target:
            began = min(e["time"] for e in events if e["event"] == BEGAN)
            return Outcome.of(launched, began, model["time"], number)
    return None
