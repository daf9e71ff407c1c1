"""What an engine of sweeps adds to its trials."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import fmean, median

import msgspec

from melisma.comparison.sweeps import Engine, LostError, Tick

Make = Callable[[], AbstractContextManager[Engine]]

ROUNDS = 300_000  #: of hashing in a trial: a tenth of a second of one core, or so


class SweepCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine took, by the clock."""

    engine: str
    workers: int
    trials: int
    alone_s: float  #: one trial in a process that does nothing else
    start_s: float  #: until each worker had done an empty trial
    empty_s: float  #: all trials, when each is empty
    busy_s: float  #: all trials, when each is work
    trial_s: (
        float  #: one of those, by its own clock: others on the machine slow it down
    )

    @property
    def overhead_s(self) -> float:
        """Of a trial: what all took beyond alone_s each, shared by the workers."""
        ideal_s = self.trials * self.alone_s / self.workers
        return (self.busy_s - ideal_s) / self.trials

    @property
    def engine_s(self) -> float:
        """Of a trial: what all took beyond their own clocks, shared by the workers."""
        return self.busy_s / self.trials - self.trial_s / self.workers


def work(rounds: int, tick: Tick) -> float:
    """Hash so many rounds; return how long that took."""
    began = time.perf_counter()
    if rounds:
        hashlib.pbkdf2_hmac("sha256", b"melisma", b"sweep", rounds)
    return time.perf_counter() - began


def alone() -> float:
    """Return the seconds of a trial in this process."""
    return median(work(ROUNDS, lambda: None) for _ in range(7))


def measure(
    name: str,
    make: Make,
    workers: int,
    trials: int,
    alone_s: float,
) -> SweepCost:
    """Start an engine; have it do empty trials, then work."""
    began = time.perf_counter()
    with make() as engine:
        _all(engine, [0] * workers)
        start_s = time.perf_counter() - began
        empty_s, _ = _all(engine, [0] * trials)
        busy_s, own_s = _all(engine, [ROUNDS] * trials)
    return SweepCost(
        engine=name,
        workers=workers,
        trials=trials,
        alone_s=alone_s,
        start_s=start_s,
        empty_s=empty_s,
        busy_s=busy_s,
        trial_s=fmean(own_s),
    )


def _all(engine: Engine, todo: Sequence[int]) -> tuple[float, list[float]]:
    """Return how long all took, and each of them."""
    began, own_s = time.perf_counter(), []
    for _, result in engine(work, todo):
        if isinstance(result, LostError):
            raise result
        own_s.append(result)
    return time.perf_counter() - began, own_s
