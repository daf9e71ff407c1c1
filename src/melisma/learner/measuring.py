"""Benchmarks of a device for one task: as it is, or in every state of its owner's."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from melisma.cgroups import quota_cores
from melisma.fleets.messages import StateSpeeds
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.kept import Benchmarks
from melisma.learner.memory import told_if_short
from melisma.learner.remaining import Remaining
from melisma.learner.source import Caller, Source, ignore
from melisma.learning.benchmark import (
    Line,
    sizes_of,
    time_training,
    time_transfers,
    warm_up,
)
from melisma.learning.samples import Arrays, Samples, fields_of, joined, transformed
from melisma.learning.shards import bytes_of as bytes_of_sample

log = logging.getLogger("melisma.learner")

#: Longest that the background load disturbs a benchmark.
MEASURE_S = 300.0
#: Share of a core below which a benchmark was disturbed, and how long it is at least
#: for that to be told from the grain of the clocks.
BUSY, LEAST_S = 0.7, 0.05
#: Batches by which an earlier benchmark is tried, and the factor within which it holds.
GLANCE, HOLDS = 3, 1.5
#: What a time may be off in any case: of a moment nobody can tell.
SHORT_S = 0.05

#: Of link and compute.
Lines = tuple[Line, Line]


def benchmark(
    device: Device,
    task: WarmTask,
    keys: list[str],
    caller: Caller,
    kept: Benchmarks | None,
) -> None:
    """Benchmark, unless a benchmark that is ``kept`` is found and still holds."""
    spec, speed = task.spec, task.speed
    # Parts of models are made by it, and of several states each is its object.
    if spec.submodels or device.background.is_several:
        kept = None
    found = kept.find(device, spec) if kept else None
    if found and _holds(device, task, keys, caller.source, found):
        return
    measure(device, task, keys, caller.source, caller.tell)
    if kept and speed.link and speed.compute:
        kept.keep(device, spec, (speed.link, speed.compute))


def measure(
    device: Device,
    task: WarmTask,
    keys: list[str],
    source: Source,
    tell: Callable[[float], None] = ignore,
) -> None:
    """Benchmark transfers and training on these shards, and keep the result.

    In federated mode no shards are sent: the model's own size is fetched, and the
    training is on as much of the learner's own data. Parts of the model that orders may
    name are made now, so that no order waits for it. Where the task asks for states,
    each is measured once, on all shards, and the benchmark is that of the one drawn.
    ``tell`` is told now and then how many seconds it takes yet.
    """
    background = device.background
    by_state = task.spec.states and len(background.probabilities) > 1
    with Remaining(device.clock, tell) as remaining:
        remaining.times = len(background.probabilities) if by_state else 1
        _measure(device, task, keys, source, remaining)
    background.rest()


def _holds(
    device: Device, task: WarmTask, keys: list[str], source: Source, lines: Lines
) -> bool:
    """Return whether a little of the work takes as long as an earlier benchmark says.

    If so, that benchmark is taken over.
    """
    link = Link(device, task, source, MEASURE_S, cycle=0)
    try:
        off = _off(device, task, link, keys, lines)
    finally:
        device.background.rest()
    if not 1 / HOLDS <= off <= HOLDS:
        log.info("The benchmark that is kept is off by a factor of %.2g", off)
        return False
    task.speed.link, task.speed.compute = lines
    return True


def _off(
    device: Device, task: WarmTask, link: Link, keys: list[str], lines: Lines
) -> float:
    """Return how many times as long as by these lines a little of the work takes.

    Of a download and of training, what is further off.
    """
    fetch = _fetching(device, task, link, keys, len(keys))
    fetch(1)
    began = device.clock()
    size_bytes = fetch(len(keys))
    fetched_s = device.clock() - began
    samples = _samples_of(device, task, link, keys)
    some = min(GLANCE * task.training.batch, len(samples))
    examples = transformed(samples, task.transform)
    with told_if_short(task, examples):
        glance = time_training(
            task.model,
            examples,
            task.training,
            sizes=[some],
            repeats=1,
            clock=device.clock,
            before_batch=_throttled(task, samples, link),
        )
    ratios = [
        (took_s + SHORT_S) / (usual_s + SHORT_S)
        for took_s, usual_s in (
            (fetched_s, lines[0].seconds(size_bytes)),
            (glance.seconds(some), lines[1].seconds(some)),
        )
    ]
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))


def _measure(
    device: Device,
    task: WarmTask,
    keys: list[str],
    source: Source,
    remaining: Remaining,
) -> None:
    """Benchmark, in every state if the task asks for that."""
    speed, background = task.speed, device.background
    gamma = background.probabilities
    if remaining.times > 1:
        lines, drawn = [], background.drawn(0)
        speed.states = []
        for state, probability in enumerate(gamma):
            link = Link(device, task, source, MEASURE_S, state=state)
            sizes = [len(keys)]
            lines.append(_lines(device, task, link, keys, sizes, remaining, repeats=1))
            speed.link, speed.compute = lines[-1]
            law = speed.report(drifted=False)
            speed.states.append(
                StateSpeeds(
                    probability=probability,
                    step_s=law.step_s,
                    sample_s=law.sample_s,
                    fixed_s=law.fixed_s,
                )
            )
        speed.link, speed.compute = lines[drawn]
        speed.owner = background.seed
    else:
        link = Link(device, task, source, MEASURE_S, cycle=0)
        sizes, repeats = sizes_of(max(1, len(keys)), task.spec.sizes), task.spec.repeats
        found = _lines(device, task, link, keys, sizes, remaining, repeats=repeats)
        speed.link, speed.compute = found


def _lines(
    device: Device,
    task: WarmTask,
    link: Link,
    keys: list[str],
    sizes: Sequence[int],
    remaining: Remaining,
    *,
    repeats: int,
) -> Lines:
    """Time transfers and training of these numbers of shards."""
    within_s = task.spec.patience_s or math.inf
    transfers = time_transfers(
        _fetching(device, task, link, keys, max(1, *sizes)),
        sizes,
        repeats=repeats,
        within_s=within_s,
        clock=device.clock,
    )
    samples = _samples_of(device, task, link, keys)
    examples = transformed(samples, task.transform)
    counts = sorted({min(n * task.spec.shard, len(samples)) for n in sizes})
    remaining.train(sum(counts), repeats, within_s)
    on_cpu = next(task.model.parameters()).device.type == "cpu"
    is_plain = link.throttle.is_free and on_cpu
    with told_if_short(task, examples), told_if_busy(is_plain):
        compute = time_training(
            task.model,
            examples,
            task.training,
            sizes=counts,
            repeats=repeats,
            within_s=within_s,
            clock=device.clock,
            before_batch=_throttled(task, samples, link, remaining.batch),
        )
    remaining.done()
    return transfers, compute


def _fetching(
    device: Device, task: WarmTask, link: Link, keys: list[str], most: int
) -> Callable[[int], int]:
    """Return what downloads so many shards, ``most`` at most; it returns their bytes.

    In federated mode as much of the model's size.
    """
    part_bytes = task.speed.model_bytes // max(1, most)

    def fetch(n: int) -> int:
        if task.spec.federated:
            return bytes_of(link.filler(n * part_bytes))
        return bytes_of(link.shards(keys[:n]))

    return fetch


def _samples_of(device: Device, task: WarmTask, link: Link, keys: list[str]) -> Samples:
    """Return the samples to train on, and note what one has on the wire.

    Parts of the model that orders may name are made of them.
    """
    spec = task.spec
    if spec.federated:
        samples = device.data().train
    else:
        samples = Arrays(joined(device.cache.get(keys, link.shards)))
    if spec.submodels:  # of a model that is complete
        link.complete()
        task.make_parts(samples)
    travels = spec.moving or not spec.federated
    size_bytes = bytes_of_sample(fields_of(samples)) if travels else 0
    task.speed.sample_bytes = size_bytes
    return samples


def _throttled(
    task: WarmTask,
    samples: Samples,
    link: Link,
    count: Callable[[int], None] = lambda size: None,
) -> Callable[[int], None]:
    """Return what slows batches down, and counts them; not those of the warm-up.

    Its last one is slowed down, by which the benchmark sees how long a batch takes.
    """
    n, times = warm_up(len(samples), task.training.batch)
    untimed = n * times

    def before_batch(size: int) -> None:
        nonlocal untimed
        untimed -= size
        link.throttle.batch(size, warm_up=untimed > 0)
        if untimed < 0:
            count(size)

    return before_batch


@contextmanager
def told_if_busy(
    watched: bool,
    *,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Iterator[None]:
    """Log a warning if this process had much less than a core meanwhile.

    Where a container or a quota gives it less anyway, that is what it might have had.
    """
    began, spent = clock(), cpu_clock()
    yield
    took_s, core_s = clock() - began, cpu_clock() - spent
    might_s = min(1.0, quota_cores() or 1.0) * took_s
    if watched and took_s > LEAST_S and core_s < BUSY * might_s:
        log.warning(
            "this device was busy with other work while it benchmarked itself: it had "
            "%.0f %% of a core; the first cycles correct what is wrong by that",
            100 * core_s / took_s,
        )
