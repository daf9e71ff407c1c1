"""Learner processes of this machine, which end with this one.

Importing torch takes each process seconds of a core. Where processes can be forked, one
imports it for all, while this one does so itself (`melisma.cli.nursery`).
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from melisma.errors import MelismaError

#: Timeout for processes to end before they are killed.
END_S = 1.5


class Learners:
    """Starts learners of this machine, and says which of them end by themselves."""

    def __init__(self, start: Callable[[list[str]], None]) -> None:
        self._start = start
        #: Called with the place of each that has ended, and its exit code.
        self.ended: Callable[[int, int], None] = lambda place, code: None

    def __call__(self, words: list[str]) -> None:
        """Start a learner by the words behind `melisma`."""
        self._start(words)


@contextmanager
def learners() -> Iterator[Learners]:
    """Yield what starts learners; all end with the block.

    Enter it before torch is imported: the learners' process imports it meanwhile. Where
    processes cannot be forked, nobody says which of them end.
    """
    # Apple's libraries do not survive a fork.
    if sys.platform == "linux":
        with _forked() as forked:
            yield forked
        return
    with processes() as start:
        yield Learners(lambda words: start(command_of(words)))


def command_of(words: list[str]) -> list[str]:
    """Return the command that runs `melisma` with these words."""
    # -P: no module of the current folder takes the place of an installed one.
    return [sys.executable, "-P", "-m", "melisma", *words]


@contextmanager
def processes() -> Iterator[Callable[[list[str]], None]]:
    """Yield what starts a process; all processes end with the block.

    Their standard input is a pipe that closes with this process, even if it is killed.
    """
    started: list[subprocess.Popen[bytes]] = []
    lifeline, held = os.pipe()

    def start(command: list[str]) -> None:
        started.append(
            # Ctrl-C goes to this process alone, which terminates them.
            subprocess.Popen(command, stdin=lifeline, start_new_session=True)
        )

    try:
        yield start
    finally:
        os.close(lifeline)
        os.close(held)
        _end(started)


@contextmanager
def _forked() -> Iterator[Learners]:
    """Yield what has a process fork itself into learners."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "melisma.cli.nursery", str(write)],
        stdin=subprocess.PIPE,
        pass_fds=[write],
        start_new_session=True,
    )
    os.close(write)
    pipe = process.stdin
    assert pipe is not None

    def start(words: list[str]) -> None:
        try:
            pipe.write(json.dumps(words).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise MelismaError(
                "the process that starts learners has ended, with exit code "
                f"{process.wait(END_S)}"
            ) from None

    started = Learners(start)

    def listen() -> None:
        with open(read, "rb") as report:
            for line in report:
                place, code = map(int, line.split())
                started.ended(place, code)

    threading.Thread(target=listen, name="learners", daemon=True).start()
    try:
        yield started
    finally:
        started.ended = lambda place, code: None
        with suppress(BrokenPipeError):
            pipe.close()
        _end([process])


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """Terminate processes, and kill who does not end."""
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
