"""Benchmarks of this device: by training on a subset of the data, and by FLOPS.

    time = latency + amount / rate

Subset benchmarking (SB) downloads a few shards and trains a dummy model on them once.
Connections, first batches and lazy imports would bias a small subset, so everything is
warmed up first. One size takes all of the time to be the samples'; two separate the
cost of a call from that of a sample or byte.

The difference of two sizes is noise where they are small or the machine is busy, and a
rate is its inverse. So no rate is believed that was not seen: a sample costs at least
what it did in the batches of the fastest pass, and a byte a share (``BELIEVED``) of
what it did in the fastest transfer, latency and all. Load makes a device look slower
than it is, by no more than the load of most passes; never faster.

Paper: D. Mays, S. Elsayed, H. Hassanein, "Decentralized Data Allocation via Local
Benchmarking".

Differences from the paper:
1. Each size's median of several times; where it is asked for, two sizes and a line
   through their medians, of a slope that is believed.
2. The FLOPS baseline multiplies matrices and divides by the result: see
   ``predicted_by_flops``.
"""

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.samples import Samples
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Floats

Clock = Callable[[], float]

#: Batches that are trained, and products that are made, before the clock is read.
WARM_UP = 5
#: A slope below this, relative to the longest time, is rounding.
_FLAT = 1e-9
#: How long a pass is to last that is timed: shorter ones are made several times.
STRETCH_S, MOST_PASSES = 0.02, 16
#: Seconds of a byte at least, as a share of those in the fastest transfer.
BELIEVED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Time of a call against its amount: a fixed latency, then a rate."""

    latency_s: float
    rate: float  #: samples or bytes a second
    #: σ of the logarithm of the times that it is fitted to, around their medians.
    spread: float = field(default=0.0, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise ConfigError(f"latency of {self.latency_s} s: give a time from 0 s up")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ConfigError(f"rate of {self.rate}/s: give a finite number above 0")

    def seconds(self, amount: float) -> float:
        """Return the time of ``amount`` samples or bytes in one call."""
        return self.latency_s + amount / self.rate


def fit(amounts: ArrayLike, seconds: ArrayLike, *, least_s: float = 0.0) -> Line:
    """Return the line of least squares whose latency is not negative.

    It goes through the origin where the best one would have a negative latency, where
    all amounts are equal, and where larger amounts did not take longer: noise then
    outweighs the slope, and no latency can be told from it. Its slope is ``least_s`` at
    least, seconds of a sample or byte. Raises ConfigError unless amounts are above 0
    and time passed.

    >>> fit([1, 2], [3.0, 4.0])
    Line(latency_s=2.0, rate=1.0)
    >>> fit([1, 2], [3.0, 4.0], least_s=1.5)
    Line(latency_s=1.25, rate=0.6666666666666666)
    """
    x, t = _measured(amounts, seconds)
    # Shares of the greatest: their squares neither overflow nor vanish.
    u, v = x / x.max(), t / t.max()
    centred = u - u.mean()
    spread = float(centred @ centred)
    slope = float(centred @ v) / spread if spread > 0 else 0.0
    latency = float(v.mean()) - slope * float(u.mean())
    if slope <= _FLAT or latency < 0:
        slope, latency = float(u @ v) / float(u @ u), 0.0
    least = least_s * float(x.max() / t.max())
    if slope < least:
        slope, latency = least, max(0.0, float(v.mean()) - least * float(u.mean()))
    return Line(
        latency_s=latency * float(t.max()),
        rate=float(x.max()) / (slope * float(t.max())),
    )


def sizes_of(shards: int, sizes: int) -> list[int]:
    """Return the sizes of a benchmark on so many shards: all, or half of them too.

    >>> sizes_of(8, 1), sizes_of(8, 2), sizes_of(1, 2)
    ([8], [4, 8], [1])
    """
    return [shards] if sizes == 1 else sorted({max(1, shards // 2), shards})


def warm_up(samples: int, batch: int) -> tuple[int, int]:
    """Return on how many samples a warm-up trains, and how often.

    >>> warm_up(1000, 32), warm_up(40, 32)
    ((160, 1), (40, 3))
    """
    n = min(WARM_UP * batch, samples)
    return n, -(-WARM_UP // -(-n // batch))


def time_training(
    model: nn.Module,
    samples: Samples,
    training: Training,
    *,
    sizes: Sequence[int],
    repeats: int = 3,
    within_s: float = math.inf,
    clock: Clock = time.perf_counter,
    before_batch: Callable[[int], None] | None = None,
) -> Line:
    """Time one pass over the first n samples, for each n in ``sizes``.

    So often, but no round begins that would end later than ``within_s``.

    A copy of ``model`` is trained; the model and torch's generator stay as they were.
    ``before_batch`` is called with each batch's number of samples, the warm-up's as
    well, so that a throttled learner can slow itself down. Raises ConfigError unless
    every size is within the data.
    """
    _check_sizes(sizes, repeats)
    if max(sizes) > len(samples):
        raise ConfigError(
            f"a benchmark on {max(sizes)} samples: there are {len(samples)}; take fewer"
        )
    with _warm_pass(model, samples, training, before_batch, clock) as (work, batch_s):

        def passes(n: int) -> _Work:
            """Train on n samples, more than once where that takes no time."""
            whole_s = batch_s * -(-n // training.batch)
            times = math.ceil(STRETCH_S / whole_s) if whole_s > 0 else 1
            return work(n, min(times, MOST_PASSES))

        return _line(passes, sizes, repeats, clock, within_s)


def time_cycle(
    model: nn.Module,
    samples: Samples,
    training: Training,
    *,
    steps: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Return the seconds that ``steps`` passes over all samples really take.

    ``time_training`` predicts it by its line at steps · samples. Again a copy is
    trained, after a warm-up.
    """
    with _warm_pass(model, samples, training, None, lambda: 0.0) as (work, _):
        began = clock()
        work(len(samples), steps)
        return clock() - began


def time_transfers(
    fetch: Callable[[int], int],
    sizes: Sequence[int],
    *,
    repeats: int = 3,
    within_s: float = math.inf,
    clock: Clock = time.perf_counter,
) -> Line:
    """Time the download of n shards, for each n in ``sizes``.

    So often, but no round begins that would end later than ``within_s``.

    ``fetch(n)`` downloads n shards, none from a cache, and returns the bytes received,
    which the line counts. It is called once before the clock is read.
    """
    _check_sizes(sizes, repeats)
    fetch(min(sizes))

    def transfer(n: int) -> _Work:
        began = clock()
        amount = fetch(n)
        return _Work(amount, BELIEVED * (clock() - began) / max(amount, 1))

    return _line(transfer, sizes, repeats, clock, within_s)


def flops(
    *, size: int = 512, products: int = 100, clock: Clock = time.perf_counter
) -> float:
    """Return the FLOP/s of products of two ``size`` × ``size`` float32 matrices.

    A product is size³ multiplications and as many additions.
    """
    if size < 1 or products < 1:
        raise ConfigError(
            f"{products} products of size {size}: give at least 1 of each"
        )
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(size, size, generator=generator) for _ in range(2))
    c = torch.empty(size, size)

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(a, b, out=c)

    multiply(WARM_UP)
    began = clock()
    multiply(products)
    took_s = clock() - began
    if not took_s > 0:
        raise ConfigError(f"{products} products took {took_s} s: make more or larger")
    return 2.0 * size**3 * products / took_s


def predicted_by_flops(
    reference_s: float, reference_flops: float, flops: float
) -> float:
    """Return a device's seconds for work that took a reference device ``reference_s``.

    reference_s · reference_flops / flops: twice the FLOP/s, half the time.

    The author's published code multiplies instead, reference_s / reference_flops ·
    flops, so that the faster of two devices is predicted to take longer: on a device
    twice as fast as the reference it says 2 where 1/2 is right, four times too much.
    It also times element-wise products, of size² operations, while counting those of
    matrix products, so its FLOP/s follow the memory's speed and not the processor's.
    """
    for value in (reference_s, reference_flops, flops):
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(
                f"{reference_s} s at {reference_flops} FLOP/s, predicted for {flops} "
                "FLOP/s: give finite numbers above 0"
            )
    return reference_s * reference_flops / flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a benchmark's result depends on besides the work."""

    threads: int  #: that torch computes with
    cores: int  #: of the machine
    load: float | None  #: mean number of busy threads in the last minute, where known


def machine() -> Machine:
    """Describe this machine; call it before a benchmark, which is a load itself."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Machine(
        threads=torch.get_num_threads(), cores=os.cpu_count() or 1, load=load
    )


class _Work(NamedTuple):
    """Work that was timed."""

    amount: float  #: samples or bytes
    least_s: float  #: that one of them takes at least, as far as this tells


@contextmanager
def _warm_pass(
    model: nn.Module,
    samples: Samples,
    training: Training,
    before_batch: Callable[[int], None] | None,
    clock: Clock,
) -> Iterator[tuple[Callable[[int, int], _Work], float]]:
    """Yield ``work(n, steps)`` and the seconds of a batch.

    It trains a warmed-up copy on n samples, steps times.
    """
    twin, rng = copy.deepcopy(model), np.random.default_rng(0)

    def timed(n: int, steps: int) -> tuple[_Work, float]:
        """Do it; return the seconds of the last batch, too."""
        plan = batch_plan(np.arange(n), steps, training, rng)
        counts = iter((plan >= 0).sum(axis=1).tolist())
        looks: list[float] = []

        def halt() -> bool:
            looks.append(clock())
            if before_batch is not None:
                before_batch(next(counts))
            return False

        train(twin, samples, plan, training, halt)
        looks.append(clock())
        batches_s = looks[-1] - looks[0]
        return _Work(n * steps, batches_s / (n * steps)), looks[-1] - looks[-2]

    with torch.random.fork_rng(devices=[]):
        _, batch_s = timed(*warm_up(len(samples), training.batch))
        yield lambda n, steps: timed(n, steps)[0], batch_s


def _line(
    work: Callable[[int], _Work],
    sizes: Sequence[int],
    repeats: int,
    clock: Clock,
    within_s: float,
) -> Line:
    """Fit a line to each size's median time, of no higher rate than was seen.

    The sizes take turns, so that a machine that slows down does so for all of them.
    """

    def measure(n: int) -> tuple[float, float, float]:
        began = clock()
        done = work(n)
        return done.amount, clock() - began, done.least_s

    rounds, took_s, longest_s = list[list[tuple[float, float, float]]](), 0.0, 0.0
    while len(rounds) < repeats and (not rounds or took_s + longest_s <= within_s):
        rounds.append([measure(n) for n in sizes])
        round_s = sum(seconds for _, seconds, _ in rounds[-1])
        took_s, longest_s = took_s + round_s, max(longest_s, round_s)
    measured = np.array(rounds)
    amounts, seconds, _ = np.median(measured, axis=0).T
    line = fit(amounts, seconds, least_s=float(measured[..., 2].min()))
    return replace(line, spread=_spread(measured[..., 1], seconds))


def _spread(rounds: Floats, usual: Floats) -> float:
    """Return σ of the logarithm of times around the usual one of each size."""
    if len(rounds) < 2 or not (rounds > 0).all():
        return 0.0
    off = np.log(rounds / usual)
    return float(np.sqrt((off**2).sum() / ((len(rounds) - 1) * len(usual))))


def _check_sizes(sizes: Sequence[int], repeats: int) -> None:
    if not sizes or min(sizes) < 1 or repeats < 1:
        raise ConfigError(
            f"a benchmark of sizes {list(sizes)}, {repeats} times: give sizes from 1 "
            "up, and at least 1 repeat"
        )


def _measured(amounts: ArrayLike, seconds: ArrayLike) -> tuple[Floats, Floats]:
    x = np.asarray(amounts, dtype=np.float64)
    t = np.asarray(seconds, dtype=np.float64)
    if x.ndim != 1 or x.shape != t.shape or not x.size:
        raise ConfigError(
            f"amounts of shape {x.shape} and seconds of shape {t.shape}: give a list "
            "of each, of one length"
        )
    if not (np.isfinite(x).all() and (x > 0).all()):
        raise ConfigError(f"amounts {x.tolist()}: give finite numbers above 0")
    if not (np.isfinite(t).all() and (t >= 0).all() and (t > 0).any()):
        raise ConfigError(
            f"amounts {x.tolist()} took {t.tolist()} s: measure sizes that take time"
        )
    return x, t
