"""A process that has imported what learners need, and forks itself into learners.

    python -m melisma.cli.nursery FILE

A line of standard input is a learner: the words behind `melisma`, as a list in JSON.
One that ends is a line in the file of that number: its place among them, its exit code.
All learners end with this process, and it ends when its input does.
"""

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from melisma.cli import main
from melisma.launch.processes import END_S

#: Pause between two looks at which learners have ended.
LOOK_S = 1.0


def serve(report: int) -> None:
    """Fork a learner for each line of standard input; end them with it."""
    _import_all()
    gc.freeze()  # what is never collected stays shared with the learners
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    lifeline, held = os.pipe()
    learners: dict[int, int] = {}  # processes, and their places
    places = count()
    unread = b""
    try:
        while True:
            readable, _, _ = select.select([0], [], [], LOOK_S)
            for learner, code in _ended(learners).items():
                os.write(report, b"%d %d\n" % (learners.pop(learner), code))
            if not readable:
                continue
            if not (came := os.read(0, 1 << 16)):
                return
            *lines, unread = (unread + came).split(b"\n")
            for line in lines:
                learners[_forked(json.loads(line), lifeline, held)] = next(places)
    finally:
        _end(set(learners))


def _import_all() -> None:
    """Import what a learner needs, and compute nothing: threads are not forked."""
    from melisma.launch import joining  # noqa: F401
    from melisma.learning.optimisers import check_optimiser
    from melisma.learning.settings import Training

    check_optimiser(Training())  # the first optimiser imports much of torch


def _forked(words: list[str], lifeline: int, held: int) -> int:
    """Fork a learner; return its process."""
    # A signal that came while it forks would end it as if it were this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if process := os.fork():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return process
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.dup2(lifeline, 0)  # which closes with the last one that holds the other end
        os.close(lifeline)
        os.close(held)
        sys.argv = ["melisma", *words]
        # The name by which `ps -e` and `top` tell it from the others.
        Path("/proc/self/comm").write_text(words[words.index("--name") + 1])
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _ended(learners: Iterable[int]) -> dict[int, int]:
    """Return the learners that have ended, and their exit codes."""
    waited = {learner: os.waitpid(learner, os.WNOHANG) for learner in learners}
    return {
        learner: os.waitstatus_to_exitcode(status)
        for learner, (process, status) in waited.items()
        if process
    }


def _end(learners: set[int]) -> None:
    """Terminate learners, and kill who does not end."""
    for learner in learners:
        os.kill(learner, signal.SIGTERM)
    until = time.monotonic() + END_S / 2
    while learners and time.monotonic() < until:
        learners -= _ended(learners).keys()
        time.sleep(0.01)
    for learner in learners:
        os.kill(learner, signal.SIGKILL)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
