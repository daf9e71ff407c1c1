"""From `pip install` to the first accuracy on the screen, before and after.

    python benchmarks/bench_first_minute.py                      HEAD alone
    python benchmarks/bench_first_minute.py --before ac2a301     beside another commit
    python benchmarks/bench_first_minute.py --pip "--extra-index-url https://…/whl/cpu"
    python benchmarks/bench_first_minute.py --here               of this environment

For each commit: its wheel, an empty environment, an empty home and no cache, and no
checkout in reach. Timed are the environment, `pip install` of the wheel with what it
needs (versions as in the commit's constraints.txt), and the first commands. `melisma
run` has a terminal of 220 columns, and its times are those at which a user sees
something there, from the start of the command. A dash: it was never said.

What is downloaded comes over this machine's network, of which `pip install` is a
measure, too. `--here` leaves out environment and installation.

Exit code 1 if a command fails or takes half an hour.
"""

import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from melisma.provenance import provenance

ROOT = Path(__file__).parents[1]
PATIENCE_S = 1800.0
ROWS, COLUMNS = 50, 220
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
#: What the terminal says, by what it means to a user.
SEEN = {
    "… the dashboard's link": r"Dashboard: http",
    "… a learner has joined": r"[1-9]\d* of \d+ learners?:",
    "… all are benchmarked, cycle 1 begins": r"cycle 1: 0 of",
    "… cycle 1 is done": r"\b1/\d+ cycles",
    "… the first accuracy": r"accuracy \d",
}
Times = dict[str, float | None]  #: seconds by step; None: it was never said


def wheel(commit: str, folder: Path) -> Path:
    """Build a commit's wheel in a folder, and return it; its constraints lie beside."""
    source = folder / "source"
    packed = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(source, filter="data")
    (folder / "constraints.txt").write_bytes((source / "constraints.txt").read_bytes())
    hook = "from setuptools.build_meta import build_wheel as make; make('..')"
    subprocess.run(
        [sys.executable, "-c", hook], cwd=source, check=True, capture_output=True
    )
    (made,) = folder.glob("*.whl")
    return made


def installed(commit: str, folder: Path, pip: Sequence[str]) -> tuple[Path, Times]:
    """Install a commit into an empty environment; return its Python, and the times."""
    file = wheel(commit, folder)
    python = folder / "venv" / "bin" / "python"
    create = (sys.executable, "-m", "venv", folder / "venv")
    install = (python, "-m", "pip", "install", "--no-cache-dir", "-q", file)
    pinned = ("-c", str(folder / "constraints.txt"), *pip)
    return python, {
        "python -m venv": timed(create, folder),
        "pip install": timed((*install, *pinned), folder),
    }


def commands(python: Path, folder: Path) -> Times:
    """Time the first commands of a new user, each for the first time."""
    melisma: list[str | Path] = [python, "-m", "melisma"]
    return {
        "melisma --version": timed([*melisma, "--version"], folder),
        "melisma --help": timed([*melisma, "--help"], folder),
        **watched([*melisma, "run"], folder),
    }


def own(folder: Path) -> dict[str, str]:
    """Return an environment with an empty home, and nobody's settings."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    theirs = ("MELISMA", "PYTHON", "XDG", "VIRTUAL_ENV", "COLUMNS", "LINES")
    kept = {name: v for name, v in os.environ.items() if not name.startswith(theirs)}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color"}


@contextmanager
def started(
    command: Sequence[str | Path], folder: Path, out: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a home of its own; end it, and whatever it has started."""
    work = folder / "home"
    process = subprocess.Popen(
        command,
        cwd=work if work.exists() else folder,
        env=own(folder),
        stdin=out if os.isatty(out) else subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def timed(command: Sequence[str | Path], folder: Path) -> float:
    """Return how long a command takes; RuntimeError if it fails."""
    with (folder / "output").open("w+b") as output:
        began = time.monotonic()
        with started(command, folder, output.fileno()) as process:
            code = process.wait(PATIENCE_S)
        took_s = time.monotonic() - began
        if code:
            output.seek(0)
            raise RuntimeError(f"{command}: {output.read()[-2000:].decode()}")
    return took_s


def watched(command: Sequence[str | Path], folder: Path) -> Times:
    """Return when a command in a terminal first says what a user waits for."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    seen: Times = dict.fromkeys(SEEN)
    said, began = "", time.monotonic()
    with started(command, folder, theirs) as process:
        os.close(theirs)
        while piece := read(ours):
            said += CONTROLS.sub("", piece)
            for what, words in SEEN.items():
                if seen[what] is None and re.search(words, said):
                    seen[what] = time.monotonic() - began
            if time.monotonic() - began > PATIENCE_S:
                break
        code = process.wait(60)
    os.close(ours)
    if code:
        raise RuntimeError(f"{command}: {said[-2000:]}")
    return {
        "melisma run, until …": None,
        **seen,
        "… its end": time.monotonic() - began,
    }


def read(terminal: int) -> str:
    """Return what comes next; nothing once the last process has closed it."""
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # Linux says the end so
        return ""


def of_commit(commit: str, pip: Sequence[str]) -> Times:
    """Return all times of a commit."""
    with TemporaryDirectory(prefix="first-minute-") as name:
        folder = Path(name)
        python, times = installed(commit, folder, pip)
        return times | commands(python, folder)


def of_this_environment() -> Times:
    """Return the times of commands where melisma is installed already."""
    with TemporaryDirectory(prefix="first-minute-") as name:
        return commands(Path(sys.executable), Path(name))


def show(columns: dict[str, Times]) -> None:
    """Print the table, one column a commit."""
    print(f"\n| seconds | {' | '.join(columns)} |")
    print(f"|---|{'--:|' * len(columns)}")
    for step in next(iter(columns.values())):
        cells = [times[step] for times in columns.values()]
        if step.endswith(", until …"):
            print(f"| {step} |{' |' * len(cells)}")
        else:
            row = ("–" if cell is None else f"{cell:.1f}" for cell in cells)
            print(f"| {step} | {' | '.join(row)} |", flush=True)


def name_of(commit: str) -> str:
    """Return the short hash of a commit."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=7", f"{commit}^{{commit}}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def main(
    commit: Annotated[str, typer.Argument()] = "HEAD",
    before: Annotated[str, typer.Option(help="A commit to compare with.")] = "",
    pip: Annotated[str, typer.Option(help="Further arguments of pip install.")] = "",
    here: Annotated[bool, typer.Option(help="Install nothing.")] = False,
) -> None:
    """Print what a new user waits for, and for how long."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started
    print(provenance(), flush=True)
    if here:
        show({"this environment": of_this_environment()})
        return
    commits = [name_of(text) for text in (before, commit) if text]
    show({name: of_commit(name, shlex.split(pip)) for name in commits})


if __name__ == "__main__":
    typer.run(main)
