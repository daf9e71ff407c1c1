"""Processes that end with the benchmark, and end it at once if one of them dies."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOOK_S = 0.1  #: between two looks at who is still running
END_S = 60.0  #: that a process may take to end


@contextmanager
def running(
    commands: Sequence[Sequence[object]], folder: Path | None = None
) -> Iterator[None]:
    """Run Python on these arguments; standard input ends when the block does.

    Processes write to the benchmark's own standard error. If one ends before the block
    does, the main thread is interrupted, wherever it waits, the others are terminated,
    and SystemExit says which it was. Call this in the main thread.
    """
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            cwd=folder,
            text=True,
        )
        for command in commands
    ]
    over, died = threading.Event(), list[subprocess.Popen[str]]()

    def watch() -> None:
        while not died and not over.wait(LOOK_S):
            died.extend(one for one in started if one.poll() is not None)
        if died:
            os.kill(os.getpid(), signal.SIGINT)

    # A shell may have had a process in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watching = threading.Thread(target=watch, name="watch", daemon=True)
    watching.start()
    try:
        yield
        over.set()
        watching.join()
    except KeyboardInterrupt:
        if not died:
            raise
        command = " ".join(map(str, commands[started.index(died[0])]))
        raise SystemExit(
            f"a learner ended with exit code {died[0].returncode} during the run; "
            f"its own error is above. It was started as: python {command}"
        ) from None
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
        _end(started, at_once=bool(died))


def _end(processes: Sequence[subprocess.Popen[str]], *, at_once: bool) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        if at_once:
            process.terminate()
    for process in processes:
        process.wait(END_S)
