"""Trials over processes of this machine, with one thread each."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from melisma.comparison.sweeps.engine import (
    Died,
    Engine,
    Raised,
    Returned,
    Tick,
    Ticked,
    TrialEvent,
    engine_of,
)
from melisma.errors import ConfigError, RemoteError

#: Make the libraries under numpy and torch use one thread; read when they are loaded.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
#: A new interpreter takes no module of the current folder for one of its own.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}

#: Longest that a trial which is given up may clean up, as a testbed removes its places.
CLEANUP_S = 5.0

_SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def over_processes(processes: int | None = None) -> Iterator[Engine]:
    """Use at most ``processes`` processes, by default as many as there are cores.

    They are started when there is work, reused for the next sweep, and ended with the
    block. ConfigError if ``processes`` is below 1.
    """
    if processes is not None and processes < 1:
        raise ConfigError(f"{processes} processes can do nothing: give 1 or more")
    pool = _Processes(processes or os.cpu_count() or 1)
    try:
        yield engine_of(pool)
    finally:
        pool.end()


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A process, and the pipe to it."""

    process: BaseProcess
    line: Connection

    @classmethod
    def start(cls) -> "_Worker":
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(theirs,), daemon=True)
        with _environment(ONE_THREAD | SAFE_PATH), _undisturbed():
            process.start()
        theirs.close()
        return cls(process, ours)

    def end(self) -> None:
        """End the process: a trial that handles SIGTERM has a while to clean up."""
        self.process.terminate()
        self.process.join(CLEANUP_S)
        self.process.kill()
        self.process.join()
        self.line.close()

    def exit_reason(self) -> str:
        """Say how the process, which has ended, did so."""
        self.process.join()
        code = self.process.exitcode or 0
        if code != -signal.SIGKILL:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            return f"its process ended by {how}"
        return (
            "its process was killed (SIGKILL): if memory ran out, let fewer run at a "
            "time (--processes)"
        )


class _Processes:
    """The workers of this machine."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}

    def has_room(self) -> bool:
        return len(self._busy) < self._most

    def begin(self, number: int, trial: Callable[..., Any], item: object) -> None:
        worker = self._idle.pop() if self._idle else _Worker.start()
        self._busy[number] = worker
        try:
            worker.line.send((trial, item))
        except OSError:
            return  # it died meanwhile; `events` reports that

    def events(self) -> Iterator[tuple[int, TrialEvent]]:
        ready = set(wait([worker.line for worker in self._busy.values()]))
        numbers = [n for n, worker in self._busy.items() if worker.line in ready]
        for number in numbers:
            yield number, self._event(number)

    def _event(self, number: int) -> TrialEvent:
        worker = self._busy[number]
        try:
            event: TrialEvent = worker.line.recv()
        except (EOFError, OSError):
            reason = self._busy.pop(number).exit_reason()
            worker.line.close()
            return Died(reason)
        if not isinstance(event, Ticked):
            self._idle.append(self._busy.pop(number))
        return event

    def abandon(self) -> None:
        while self._busy:
            self._busy.popitem()[1].end()

    def end(self) -> None:
        self.abandon()
        while self._idle:
            self._idle.pop().end()


def _work(line: Connection) -> None:
    """Do the trials that arrive through the pipe until it is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            event = _next(line)
            try:
                line.send(event)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                line.send(Raised(TypeError(f"a result cannot be pickled: {error}")))
    except (EOFError, OSError):
        return  # the parent has closed the pipe


def _end_with_parent() -> None:
    """Exit with the parent: if it was killed, nobody waits for the trial."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _next(line: Connection) -> Returned | Raised:
    try:
        trial, item = line.recv()
    except (ImportError, AttributeError) as error:
        return Raised(ImportError(f"a trial that processes cannot import: {error}"))
    return outcome(trial, item, lambda: line.send(Ticked()))


def outcome(trial: Callable[..., Any], item: object, tick: Tick) -> Returned | Raised:
    """Do one trial; return its result, or its exception in a form that pickles."""
    try:
        return Returned(trial(item, tick))
    except Exception as error:  # the edge: every error is sent to the parent
        trace = traceback.format_exc()
        error.add_note(trace)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # its constructor takes other arguments than it keeps
            return Raised(_Portable(type(error).__name__, str(error), trace))
        return Raised(error)


class _Portable(RemoteError):
    """Stands for an exception that cannot be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.type, self.message, self.traceback)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Have the processes that are started in the block ignore Ctrl-C.

    A terminal sends it to all its processes; the parent alone decides what to end.
    """
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # by now: its start unblocks Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
