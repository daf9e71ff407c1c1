"""A run in a process that kills itself at a chosen system call; for `test_kills`."""

import io
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from melisma.jobs.files import load
from melisma.jobs.schema import Job
from melisma.launch.api import resume
from melisma.launch.simulate import build
from melisma.learning import data
from melisma.runs import store

data.load(data.EMBEDDED)  # once, before processes are forked from this one
EXAMPLES = Path(__file__).parents[2] / "examples"
#: Kinds of run: example, and what is changed in it.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "csa": ("demo", {"noise": 0.2}),
    "dab": ("demo", {"scheme": "dab"}),
    "states": ("states", {"changing": 0.3}),
    "federated": ("federated", {}),
    "coded": ("coded", {}),
    "powered": ("transmission", {}),
    "fog": ("fog", {"scheme": "fog:windows"}),
    "probed": ("tasks", {"scheme": "med-probe"}),
    "learned": ("tasks", {"scheme": "med-learned"}),
    "deadlines": (
        "federated",
        {"deadline": "auto", "late": "carry", "late_at_most": 0.2, "noise": 1.0},
    ),
}
CALLS = ("write", "fsync", "replace", "link")
#: How records and checkpoints are written is the same for all kinds; what they must
#: hold is each kind's own. So all kinds die at a half-written record and between two
#: checkpoints, and those of one task and of several at every call.
PAIRS = [
    (kind, call)
    for kind in KINDS
    for call in (CALLS if kind in ("csa", "probed") else ("write", "replace"))
]


def job_of(kind: str) -> Job:
    """Return a job of that kind, three cycles long."""
    example, changes = KINDS[kind]
    job = load(EXAMPLES / f"{example}.toml")
    return msgspec.structs.replace(job, **({"cycles": 3} | changes))


def killed_at(kind: str, folder: Path, call: str, nth: int) -> None:
    """Begin or resume a run, in this process, and die at the nth such call."""
    left = nth

    def counted() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            if counted():
                super().write(bytes(data)[: len(data) // 2])
                die()
            return super().write(data)

    def dying(function: Any) -> Any:
        def call_or_die(*args: Any, **kwargs: Any) -> Any:
            if counted():
                die()
            return function(*args, **kwargs)

        return call_or_die

    if call == "write":
        plain = io.open

        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if str(file).endswith(store.RECORDS) and "b" in mode and mode[0] != "r":
                return io.BufferedWriter(Raw(file, mode.replace("b", "")))
            return plain(file, mode, *args, **kwargs)

        io.open = opened
    else:
        setattr(os, call, dying(getattr(os, call)))
    store.SELDOM_S = 0.0
    go(kind, folder)


def go(kind: str, folder: Path) -> None:
    """Begin a run, or resume it if it has begun."""
    if (folder / store.CONFIG).exists():
        resume(folder)
    else:
        build(job_of(kind)).run(folder)
