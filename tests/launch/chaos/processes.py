"""Processes of a test, which end with it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MELISMA = ("-m", "melisma")
LEARNER, ORCHESTRATOR = str(HERE / "learner.py"), str(HERE / "orchestrator.py")
#: Guards against hanging; nothing is measured with it.
GUARD_S = 400.0

Process = subprocess.Popen[str]
Row = dict[str, Any]


class Processes:
    """Starts Python programs in ``folder``; what they say goes to files there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def __call__(self, *words: str, pipes: bool = False) -> Process:
        with (self.folder / f"said-{len(self._started)}.txt").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if pipes else said,
                stderr=subprocess.PIPE if pipes else said,
                text=True,
            )
        self._started.append(process)
        return process

    def learner(self, port: int, name: str, *words: str, **favours: object) -> Process:
        # It ends with this process, even if that is killed.
        join = (f"127.0.0.1:{port}", "--name", name, "--quiet", "--until-eof", *words)
        return self(LEARNER, json.dumps(favours), *join)

    def said(self, process: Process) -> str:
        place = self._started.index(process)
        return (self.folder / f"said-{place}.txt").read_text()

    def end(self) -> None:
        """Kill what was started, and what that has left behind."""
        for process in self._started:
            process.kill()
            process.communicate()
        for pid in running_in(self.folder):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    started = Processes(folder)
    try:
        yield started
    finally:
        started.end()


def running_in(folder: Path) -> list[int]:
    """Processes whose working folder is this one, where there is /proc."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if cwd.readlink() == folder.resolve():
                found.append(int(cwd.parent.name))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def learners_in(folder: Path) -> dict[str, int]:
    """Learners of `melisma run` in this folder: their processes by their names."""
    named = {}
    for pid in running_in(folder):
        with suppress(OSError):  # it has ended meanwhile
            named[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    return named


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(true: Callable[[], Any], what: str, *, alive: Process | None = None) -> None:
    """Wait for what no event tells; fail if it cannot come any more."""
    waiting = threading.Event()
    for _ in range(int(GUARD_S / 0.02)):
        if true():
            return
        if alive and alive.poll() is not None and not true():
            pytest.fail(f"ended with {alive.returncode} before {what}")
        waiting.wait(0.02)
    pytest.fail(f"never: {what}")


def freeze(process: Process) -> None:
    """Stop a process without its knowing, and see it stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def thaw(process: Process) -> None:
    process.send_signal(signal.SIGCONT)


def rows_of(run: Path) -> list[Row]:
    """What has been recorded so far; read apart from the code under test."""
    try:
        text = (run / "records.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]


def seen(rows: list[Row], event: str, **facts: object) -> list[Row]:
    """Those rows of which all of this is true."""
    wanted = {"event": event, **facts}.items()
    return [row for row in rows if wanted <= row.items()]
