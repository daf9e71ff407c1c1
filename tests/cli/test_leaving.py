"""Learners that are told to end take leave, whatever they do and however it is said."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from tests.launch.chaos.processes import (
    MELISMA,
    Process,
    Processes,
    freeze,
    processes,
    rows_of,
    seen,
    thaw,
    until,
)

from melisma.algorithms.coded import NOT_NEEDED as coded_spared
from melisma.cli import leaving
from melisma.cli.progress import run_bar
from melisma.fleets.protocols import NOT_NEEDED as live_spared
from melisma.fleets.protocols import NOT_THERE
from melisma.jobs.schema import Job
from melisma.runs.records import Dropped, Left

PATIENCE_S = 120.0  # guards against hanging; nothing is measured with it

JOB = """
name = "long"
scheme = "dab"
cycles = 1000
deadline = "8 s"
shard = 50
steps = 2
"""

#: Obeys, tells its parent so, and waits; its argument says what it does on its way out.
OBEYING = """
import signal, sys, threading
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
from melisma.cli import leaving
with leaving.obeying(quiet=False) as obey:
    try:
        obey()
        print("obeys", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print("leaves", flush=True)
        if "stuck" in sys.argv:
            threading.Event().wait()
"""


def obeying(*words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", OBEYING, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "obeys\n"
    return process


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Hear of a closed terminal, whatever a parent may have ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_any_signal_to_end_is_leave_to_take(name: str) -> None:
    process = obeying()
    process.send_signal(signal.Signals[name])
    assert process.communicate(timeout=PATIENCE_S)[0] == "leaves\n"
    assert process.returncode == 0


def test_a_second_signal_ends_at_once_who_cannot_take_leave() -> None:
    process = obeying("stuck")
    process.send_signal(signal.SIGINT)
    assert process.stdout
    assert process.stdout.readline() == "leaves\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (out.startswith("Ended without a farewell"), process.returncode) == (
        True,
        130,
    )


def test_who_cannot_take_leave_ends_all_the_same() -> None:
    process = obeying("stuck")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert "Ended without a farewell" in out
    assert process.returncode == 130


def test_afterwards_signals_are_what_they_were_and_nothing_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with leaving.obeying(quiet=True) as obey:
        obey()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    timers = [one for one in threading.enumerate() if isinstance(one, Timer)]
    assert all(timer.finished.is_set() for timer in timers)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    process = obeying("nohup")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_S)[0] == "leaves\n"


def test_ctrl_c_before_all_is_imported_has_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, *MELISMA, "--version"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_who_is_lost_is_told_and_who_is_late_or_spared_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts: dict[str, Any] = {"time_s": 1.0, "task": "demo", "cycle": 3}
    with run_bar(Job(), quiet=False) as shown:
        shown(Left(learner="never", **facts))  # nobody has begun: a simulation
        shown.gathering.begin()
        for name, why, late in (
            ("spared", live_spared, False),
            ("decoded", coded_spared, False),
            ("late", NOT_THERE, True),
            ("gone", "lost: gone ended the session", False),
        ):
            shown(Dropped(learner=name, reason=why, late=late, **facts))
        shown(Left(learner="gone", **facts))
    assert capsys.readouterr().err.splitlines() == [
        "cycle 3 goes on without gone: gone ended the session",
        "gone has left",
    ]


# For real


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as started:
        yield started


@pytest.fixture
def server(start: Processes, tmp_path: Path) -> Process:
    """`melisma serve`, for two learners."""
    (tmp_path / "long.toml").write_text(JOB)
    words = ("serve", "long.toml", "--port", "0", "--learners", "2")
    return start(*MELISMA, *words)


def joining(start: Processes, server: Process, name: str, *words: str) -> list[str]:
    """Return the words with which a learner joins this server."""
    pattern = r"Join with: melisma join '(\S+)'"
    until(lambda: re.search(pattern, start.said(server)), pattern, alive=server)
    found = re.search(pattern, start.said(server))
    assert found
    return [*MELISMA, "join", found[1], "--name", name, *words]


def training(start: Processes, server: Process, *words: str) -> Process:
    """Return learner b, in its first cycle."""
    start(*joining(start, server, "a"))
    b = start(*joining(start, server, "b", *words))
    run = start.folder / "runs" / "long"
    until(lambda: seen(rows_of(run), "allocated", learner="b"), "b", alive=server)
    return b


#: It trains for all of the deadline.
SLOW = ("--rate", "200 samples/s")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_learner_that_trains_leaves_and_the_run_goes_on(
    start: Processes, server: Process, tmp_path: Path, name: str
) -> None:
    b = training(start, server, *SLOW)
    b.send_signal(signal.Signals[name])
    assert b.wait(PATIENCE_S) == 0
    said = start.said(b)
    assert "b has left" in said
    assert "give the same command again" in said
    assert "Traceback" not in said
    told = "cycle 1 goes on without b"
    until(lambda: told in start.said(server), told, alive=server)
    until(lambda: "b has left" in start.said(server), "cycle 2", alive=server)
    (lost,) = seen(rows_of(tmp_path / "runs" / "long"), "dropped", cycle=1)
    # It was asked for its work or, at that very moment, about to be.
    why = re.search("b ended the session|no peer is named 'b'", lost["reason"])
    assert (lost["late"], bool(why)) == (False, True), lost


@pytest.mark.slow
def test_a_learner_whose_terminal_is_closed_leaves(
    start: Processes, server: Process, tmp_path: Path
) -> None:
    words = [sys.executable, *joining(start, server, "b", *SLOW)]
    pid, terminal = os.forkpty()
    if not pid:
        os.chdir(tmp_path)
        os.execv(words[0], words)
    while b"Ctrl-C to leave" not in os.read(terminal, 1 << 10):
        pass
    until(lambda: "b benchmarks" in start.said(server), "b", alive=server)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    told = "b ended the session"
    until(lambda: told in start.said(server), told, alive=server)


@pytest.mark.slow
def test_a_learner_leaves_an_orchestrator_that_does_not_answer(
    start: Processes, server: Process
) -> None:
    b = training(start, server, *SLOW)
    freeze(server)
    b.send_signal(signal.SIGINT)
    assert b.wait(PATIENCE_S) in (0, 130)
    assert re.search("has left|without a farewell", start.said(b))
    thaw(server)
