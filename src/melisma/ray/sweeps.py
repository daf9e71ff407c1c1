"""Trials over a Ray cluster: one CPU and one thread each.

The nodes have this package in this version, and the data sets that the trials load.
A trial's outcome is returned as its result: nothing is left where it ran.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from melisma.comparison.sweeps.engine import (
    Died,
    Engine,
    Raised,
    Returned,
    Ticked,
    TrialEvent,
    engine_of,
)
from melisma.comparison.sweeps.processes import ONE_THREAD, outcome
from melisma.ray.cluster import joined, ray


@contextmanager
def over_ray(address: str | None = None, cpus: int | None = None) -> Iterator[Engine]:
    """Join the cluster at ``address``, HOST:PORT, and leave it with the block.

    Without an address, a cluster of this machine alone is started, with so many CPUs
    or as many as there are cores, and ended with the block. ConfigError if the cluster
    does not answer. Ticks arrive when their trial ends.
    """
    with joined(address, cpus, ONE_THREAD):
        yield engine_of(_Cluster())


class _Cluster:
    """The workers of a cluster."""

    def __init__(self) -> None:
        # Ray's own retries would not count a trial's tries, nor stop where memory
        # runs out.
        self._do = ray.remote(num_cpus=1, max_retries=0)(_counted)
        self._begun: dict[Any, int] = {}

    def has_room(self) -> bool:
        """Whether there is work for idle CPUs, and no more than that again."""
        cpus = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        return len(self._begun) < max(1, 2 * cpus)

    def begin(self, number: int, trial: Callable[..., Any], item: object) -> None:
        self._begun[self._do.remote(trial, item)] = number

    def events(self) -> Iterator[tuple[int, TrialEvent]]:
        ended, _ = ray.wait(list(self._begun))
        for reference in ended:
            number = self._begun.pop(reference)
            try:
                ticks, event = ray.get(reference)
            except ray.exceptions.RayTaskError as error:  # it could not even begin
                yield number, Raised(error)
            except ray.exceptions.RayError as error:
                yield number, Died(_reason(error))
            else:
                yield number, Ticked(ticks)
                yield number, event

    def abandon(self) -> None:
        for reference in self._begun:
            ray.cancel(reference, force=True)
        self._begun.clear()


def _counted(trial: Callable[..., Any], item: object) -> tuple[int, Returned | Raised]:
    """Run one trial; return how often it ticked, and its outcome."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    event = outcome(trial, item, tick)
    if isinstance(event, Raised):
        event.error.add_note(f"on {socket.gethostname()}")
    return ticks, event


def _reason(error: Exception) -> str:
    """The first line of what Ray has to say."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
