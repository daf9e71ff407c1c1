"""A real SuperLink and SuperNodes on loopback, for tests and benchmarks to share."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import tomli_w
from flwr.app import UserConfigValue

APP = Path(__file__).parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
#: Longest that a SuperLink takes to start, and a run to end.
START_S, RUN_S = 60.0, 300.0


class Federation:
    """Processes of Flower; everything that it keeps is in ``folder``."""

    def __init__(self, folder: Path, app: Path = APP, **env: str) -> None:
        self.folder, self.runs, self.app = folder, folder / "runs", app
        self._home, self._port = folder / "flwr", _free_port()
        self._home.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []
        self._env = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self._home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            **env,
        }
        here = {"address": f"127.0.0.1:{self._port}", "insecure": True}
        connections = {"superlink": {"default": "here", "here": here}}
        (self._home / "config.toml").write_text(tomli_w.dumps(connections))

    def start_superlink(self) -> None:
        """Start it, and wait until it answers."""
        link = self._start(
            *("flower-superlink", "--insecure", "--host", "127.0.0.1"),
            *("--port", str(self._port), "--disable-runtime-dependency-installation"),
        )
        until = time.monotonic() + START_S
        while time.monotonic() < until and link.poll() is None:
            try:
                with urlopen(f"http://127.0.0.1:{self._port}/health"):
                    return
            except (URLError, ConnectionError):
                time.sleep(0.2)
        raise RuntimeError(f"no SuperLink:\n{self.log}")

    def start_node(self, **config: UserConfigValue) -> subprocess.Popen[bytes]:
        """Start a SuperNode with this configuration."""
        written = " ".join(
            f"{key.replace('_', '-')}={_toml(value)}" for key, value in config.items()
        )
        return self._start(
            *("flower-supernode", "--insecure", "--host", "127.0.0.1"),
            *("--port", str(_free_port()), "--superlink", f"127.0.0.1:{self._port}"),
            *("--node-config", written),
        )

    def begin(self, **config: UserConfigValue) -> subprocess.Popen[bytes]:
        """Begin a run of the app, with changes; ends when the run does."""
        changes = {"runs": str(self.runs), **config}
        written = " ".join(f"{key}={_toml(value)}" for key, value in changes.items())
        return self._start(
            *("flwr", "run", str(self.app), "--stream", "--run-config", written)
        )

    def run(self, **config: UserConfigValue) -> None:
        """Run the app, with changes, to its end."""
        self.end(self.begin(**config))

    def end(self, begun: subprocess.Popen[bytes]) -> None:
        """Wait for a run's end; RuntimeError with all there is to know if it fails."""
        try:
            begun.wait(RUN_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the run does not end:\n{self.log}") from None
        if begun.returncode or not any(self.runs.glob("*/model.safetensors")):
            raise RuntimeError(f"the run failed:\n{self.log}")

    @property
    def log(self) -> str:
        """What all processes said."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / name), *arguments],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.append(process)
        return process

    def kill(self) -> None:
        """End every process that was started here, and those that they started."""
        while pids := list(self._pids()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._started:
                process.wait()

    def _pids(self) -> Iterator[int]:
        mine = f"\0FLWR_HOME={self._home}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mine in b"\0" + (process / "environ").read_bytes():
                    yield int(process.name)
            except OSError:  # it ended, or is somebody else's
                continue


@contextmanager
def federation(folder: Path, app: Path = APP, **env: str) -> Iterator[Federation]:
    """A SuperLink, and what is started with it; all of it ends with the block.

    Runs are of ``app``; ``env`` is added to the environment of all processes.
    """
    flower = Federation(folder, app, **env)
    try:
        flower.start_superlink()
        yield flower
    finally:
        flower.kill()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _toml(value: UserConfigValue) -> Any:
    return tomli_w.dumps({"_": value}).removeprefix("_ = ").strip()
