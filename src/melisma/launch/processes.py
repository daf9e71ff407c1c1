"""Learner processes of this machine, which end with this one.

Importing torch takes each process seconds of a core. Where processes can be forked, one
imports it for all, while this one does so itself (`melisma.cli.nursery`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from melisma.errors import MelismaError

#: Starts a learner by the words behind `melisma`.
Start = Callable[[list[str]], None]

#: Room for the words of a learner's command where `ps` shows them.
TITLE = 1024
#: Timeout for processes to end before they are killed.
END_S = 1.5


@contextmanager
def learners() -> Iterator[Start]:
    """Yield what starts a learner; all end with the block.

    Enter it before torch is imported: the learners' process imports it meanwhile.
    """
    # Apple's libraries do not survive a fork.
    forked = sys.platform == "linux"
    with _forked() if forked else processes() as start:
        yield start if forked else lambda words: start(command_of(words))


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
def _forked() -> Iterator[Start]:
    """Yield what has a process fork itself into a learner."""
    # The last word is room for the words of the learners.
    command = [sys.executable, "-P", "-m", "melisma.cli.nursery", " " * TITLE]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
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

    try:
        yield start
    finally:
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
