"""Sweeps of trials: what they are spread over, and how to go on with one."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.options import Engine
from melisma.cli.output import stopped
from melisma.errors import ConfigError

if TYPE_CHECKING:
    from melisma.comparison import sweeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What the trials of a sweep are spread over."""

    engine: Annotated[
        Engine,
        typer.Option(
            help="Run trials in processes on this machine, or on a Ray cluster; the "
            "results are the same (docs/sweeps.md).",
        ),
    ] = Engine.PROCESSES
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Head of the Ray cluster.",
            show_default="a cluster of this machine alone",
        ),
    ] = None
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Trials at a time on this machine.",
            show_default="one per core",
        ),
    ] = None

    @contextmanager
    def over(self) -> "Iterator[sweeps.Engine]":
        """Yield what runs the trials; ConfigError if the options do not agree."""
        if self.engine == Engine.RAY:
            if self.address and self.processes:
                raise ConfigError(
                    f"--processes {self.processes}: the cluster at {self.address} has "
                    "CPUs of its own; leave one of the two out"
                )
            from melisma.ray.sweeps import over_ray

            with over_ray(self.address, self.processes) as engine:
                yield engine
            return
        if self.address:
            raise ConfigError(
                f"--address {self.address} is of a Ray cluster: add --engine ray"
            )
        from melisma.comparison.sweeps import over_processes

        with over_processes(self.processes) as engine:
            yield engine


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
