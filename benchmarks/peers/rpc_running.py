"""Servers and clients of ``bench_rpc.py``, each in a process of its own.

Whatever a process starts belongs to its group, and the group ends with it: when its
block is left, and also when the process that started it is gone.
"""

import importlib
import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from peers.rpc_measure import Amount, Measured, Plan, measure

LIMIT_S = 300.0  #: of one round of one stack

#: Ray neither calls home nor says what will be different in versions to come.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

_spawn = multiprocessing.get_context("spawn")


class BrokeOffError(Exception):
    """A process did not do its part; the message is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One way to call functions of another process."""

    name: str
    title: str
    module: str  #: in ``peers``
    serve: str = "serve"
    connect: str = "connect"
    #: What it imports, and the package that has it, which may not be installed.
    packages: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False  #: whether one blocking client serves all threads
    large: int = 3  #: arrays of 64 MB in a round
    slow_bulk: bool = False  #: so slow that they are sent in the first round only
    uvloop: bool = False  #: whether its coroutines run on uvloop
    apart: bool = False  #: whether its server is up for its own rounds only

    def plan(self, amount: Amount, *, first: bool) -> Plan:
        """Return what to do in a round."""
        large = self.large if first or not self.slow_bulk else 0
        return Plan(amount=amount, large=large, shared=self.shared, uvloop=self.uvloop)


@contextmanager
def server(stack: Stack) -> Iterator[str]:
    """Serve while the block lasts, and give the address; BrokeOffError if it fails."""
    # Secrets, and what Ray writes; a short path, for Ray has sockets there.
    with (
        tempfile.TemporaryDirectory(prefix="rpc-") as folder,
        _process(_serve, stack, folder) as pipe,
    ):
        yield _received(pipe)


def run_round(stack: Stack, address: str, plan: Plan) -> Measured:
    """Measure from a new process; BrokeOffError if that fails."""
    with _process(_measure, stack, address, plan) as pipe:
        measured = _received(pipe)
        assert isinstance(measured, Measured)
        return measured


def _serve(pipe: Connection, stack: Stack, folder: str) -> None:
    os.environ["RAY_TMPDIR"] = folder
    tempfile.tempdir = folder
    _function(stack.module, stack.serve)(pipe.send)


def _measure(pipe: Connection, stack: Stack, address: str, plan: Plan) -> None:
    pipe.send(measure(_function(stack.module, stack.connect), address, plan))


def _function(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"peers.{module}"), name)


@contextmanager
def _process(task: Callable[..., None], *args: object) -> Iterator[Connection]:
    """Run ``task(pipe, *args)`` in another process, and give the pipe's other end."""
    here, there = _spawn.Pipe()
    process = _spawn.Process(target=_begin, args=(there, task, args), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        with suppress(ProcessLookupError):  # it ended by itself, with its group
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()  # if it was so young as to have no group yet
        process.join()
        here.close()


def _begin(pipe: Connection, task: Callable[..., None], args: Sequence[object]) -> None:
    os.setsid()
    os.environ |= QUIET
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    try:
        task(pipe, *args)
    except Exception:  # the process's edge: told to the one that started it
        pipe.send(BrokeOffError(traceback.format_exc()))


def _end_with_parent(pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        pipe.recv()  # nothing is ever sent: this ends when the other end is closed
    os.killpg(0, signal.SIGKILL)


def _received(pipe: Connection) -> Any:
    if not pipe.poll(LIMIT_S):
        raise BrokeOffError(f"not done after {LIMIT_S:.0f} s")
    try:
        received = pipe.recv()
    except EOFError:
        raise BrokeOffError("the process ended without a word") from None
    if isinstance(received, BrokeOffError):
        raise received
    return received
