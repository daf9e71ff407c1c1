"""Sweeps of trials: what they are spread over, and how to go on with one."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli.options import Engine
from melisma.cli.output import stopped
from melisma.errors import ConfigError

if TYPE_CHECKING:
    from melisma.comparison import sweeps


@contextmanager
def engine_of(
    engine: Engine, address: str | None, processes: int | None
) -> "Iterator[sweeps.Engine]":
    """Yield what the flags spread trials over; ConfigError if they do not agree."""
    if engine == Engine.RAY:
        if address and processes:
            raise ConfigError(
                f"--processes {processes}: the cluster at {address} has CPUs of its "
                "own; leave one of the two out"
            )
        from melisma.ray.sweeps import over_ray

        with over_ray(address, processes) as over:
            yield over
        return
    if address:
        raise ConfigError(f"--address {address} is of a Ray cluster: add --engine ray")
    from melisma.comparison.sweeps import over_processes

    with over_processes(processes) as over:
        yield over


@contextmanager
def resumable(folder: Path | None = None) -> Iterator[None]:
    """On Ctrl-C, print the command that goes on: the same one, and with ``folder``."""
    try:
        yield
    except KeyboardInterrupt:
        words = ["melisma", *sys.argv[1:]]
        if folder and any(folder.iterdir()):
            words += ["--resume", str(folder)]
        stopped(f"Stopped; what has ended is kept. Go on with: {shlex.join(words)}")
        raise
