"""Benchmarks of a device for one task: as it is, or in every state of its owner's."""

import math
from collections.abc import Callable, Sequence

from melisma.fleets.messages import StateSpeeds
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.memory import told_if_short
from melisma.learner.remaining import Remaining
from melisma.learner.source import Source, ignore
from melisma.learning.benchmark import (
    WARM_UP,
    Line,
    sizes_of,
    time_training,
    time_transfers,
)
from melisma.learning.samples import Arrays, fields_of, joined, transformed
from melisma.learning.shards import bytes_of as bytes_of_sample

#: Longest that the background load disturbs a benchmark.
MEASURE_S = 300.0


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
) -> tuple[Line, Line]:
    """Time transfers and training of these numbers of shards."""
    spec, speed = task.spec, task.speed
    within_s = spec.patience_s or math.inf
    part_bytes = speed.model_bytes // max(1, *sizes)

    def fetch(n: int) -> int:
        if spec.federated:
            return bytes_of(link.filler(n * part_bytes))
        return bytes_of(link.shards(keys[:n]))

    transfers = time_transfers(
        fetch, sizes, repeats=repeats, within_s=within_s, clock=device.clock
    )
    if spec.federated:
        samples = device.data().train
    else:
        samples = Arrays(joined(device.cache.get(keys, link.shards)))
    if spec.submodels:  # of a model that is complete
        link.complete()
        task.make_parts(samples)
    travels = spec.moving or not spec.federated
    speed.sample_bytes = bytes_of_sample(fields_of(samples)) if travels else 0
    examples = transformed(samples, task.transform)
    counts = sorted({min(n * spec.shard, len(samples)) for n in sizes})
    warm_up = min(WARM_UP * task.training.batch, len(samples))
    remaining.train(sum(counts), repeats, within_s)

    def before_batch(size: int) -> None:
        nonlocal warm_up
        warm_up -= size
        link.throttle.batch(size, warm_up=warm_up >= 0)
        if warm_up < 0:
            remaining.batch(size)

    with told_if_short(task, examples):
        compute = time_training(
            task.model,
            examples,
            task.training,
            sizes=counts,
            repeats=repeats,
            within_s=within_s,
            clock=device.clock,
            before_batch=before_batch,
        )
    remaining.done()
    return transfers, compute
