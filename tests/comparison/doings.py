"""Trials that other processes can import."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from melisma.comparison.sweeps import Tick
from melisma.errors import ConfigError, RemoteError
from melisma.maths.arrays import Floats
from melisma.testbed import signals


class Item(NamedTuple):
    number: int
    marks: Path  #: a folder in which trials leave marks


def drawn(seed: int, tick: Tick) -> Floats:
    tick()
    return np.random.default_rng(seed).normal(size=3)


def dies_at_first(item: Item, tick: Tick) -> int:
    tick()
    try:
        (item.marks / str(item.number)).mkdir()
    except FileExistsError:
        tick()
        return item.number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def first_dies(item: Item, tick: Tick) -> int:
    """The first trial kills its process every time it is tried."""
    if item.number == 0:
        with (item.marks / "tries").open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return item.number


def leaves(number: int, tick: Tick) -> int:
    os._exit(7)


def refuses(number: int, tick: Tick) -> int:
    raise ConfigError(f"trial {number} cannot be")


def raises_what_has_no_copy(number: int, tick: Tick) -> int:
    raise RemoteError("KeyError", "abc")


def returns_what_has_no_copy(number: int, tick: Tick) -> object:
    return lambda: number


def process_of(number: int, tick: Tick) -> int:
    return os.getpid()


def threads_of(number: int, tick: Tick) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def waits(item: Item, tick: Tick) -> int:
    """Wait for a file named ``go``, which a test may never make."""
    while not (item.marks / "go").exists():
        time.sleep(0.05)
    return item.number


def waits_but_first(item: Item, tick: Tick) -> int:
    return item.number if item.number == 0 else waits(item, tick)


def caught_where_doomed(item: Item, tick: Tick) -> int:
    """Never end under the doomed process; elsewhere, end once a trial runs there."""
    (item.marks / f"{item.number} by {os.getpid()}").touch()
    if os.getppid() == int((item.marks / "doomed").read_text()):
        (item.marks / "caught").touch()
        time.sleep(600.0)
    while not (item.marks / "caught").exists():
        time.sleep(0.05)
    return item.number


def goes_on(marks: Path, tick: Tick) -> None:
    """Write the process's id into a file, and compute for ten minutes."""
    (marks / "pid.part").write_text(str(os.getpid()))
    (marks / "pid.part").rename(marks / "pid")
    end_s = time.monotonic() + 600.0
    while time.monotonic() < end_s:
        pass


def cleans_up(item: Item, tick: Tick) -> None:
    """Wait for ever, and leave a mark when it is ended, as a testbed does."""
    with signals.exiting():
        try:
            (item.marks / "begun").touch()
            time.sleep(600.0)
        finally:
            (item.marks / "cleaned").touch()


def blocked_signals(item: None, tick: Tick) -> set[int]:
    return {int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])}
