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


class Told(NamedTuple):
    number: int
    marks: Path  #: a folder in which trials leave marks


def drawn(seed: int, tick: Tick) -> Floats:
    tick()
    return np.random.default_rng(seed).normal(size=3)


def dies_at_first(told: Told, tick: Tick) -> int:
    tick()
    try:
        (told.marks / str(told.number)).mkdir()
    except FileExistsError:
        tick()
        return told.number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def first_dies(told: Told, tick: Tick) -> int:
    """The first of all dies, every time that it is tried."""
    if told.number == 0:
        with (told.marks / "tries").open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return told.number


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


def waits(told: Told, tick: Tick) -> int:
    """Wait until somebody says go, which nobody may."""
    while not (told.marks / "go").exists():
        time.sleep(0.05)
    return told.number


def waits_but_first(told: Told, tick: Tick) -> int:
    return told.number if told.number == 0 else waits(told, tick)


def caught_where_doomed(told: Told, tick: Tick) -> int:
    """Never end below the doomed process; elsewhere, once somebody is caught there."""
    (told.marks / f"{told.number} by {os.getpid()}").touch()
    if os.getppid() == int((told.marks / "doomed").read_text()):
        (told.marks / "caught").touch()
        time.sleep(600.0)
    while not (told.marks / "caught").exists():
        time.sleep(0.05)
    return told.number


def goes_on(marks: Path, tick: Tick) -> None:
    """Say who does it, and compute for ten minutes."""
    (marks / "pid.part").write_text(str(os.getpid()))
    (marks / "pid.part").rename(marks / "pid")
    end_s = time.monotonic() + 600.0
    while time.monotonic() < end_s:
        pass
