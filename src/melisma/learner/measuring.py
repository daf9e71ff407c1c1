"""Benchmarks of a device for one task: as it is, or in every state of its owner's."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from melisma.fleets.messages import StateSpeeds
from melisma.learner.device import Device, Link, WarmTask, bytes_of
from melisma.learner.memory import told_if_short
from melisma.learner.source import Source
from melisma.learning.benchmark import Line, sizes_of, time_training, time_transfers
from melisma.learning.samples import Arrays, fields_of, joined, transformed
from melisma.learning.shards import bytes_of as bytes_of_sample

log = logging.getLogger("melisma.learner")

#: Longest that the background load disturbs a benchmark.
MEASURE_S = 300.0
#: Share of a core below which a benchmark was disturbed, and how long it is at least
#: for that to be told from the grain of the clocks.
BUSY, LEAST_S = 0.7, 0.05


def measure(device: Device, task: WarmTask, keys: list[str], source: Source) -> None:
    """Benchmark transfers and training on these shards, and keep the result.

    In federated mode no shards are sent: the model's own size is fetched, and the
    training is on as much of the learner's own data. Parts of the model that orders may
    name are made now, so that no order waits for it. Where the task asks for states,
    each is measured once, on all shards, and the benchmark is that of the one drawn.
    """
    speed, background = task.speed, device.background
    gamma = background.probabilities
    if task.spec.states and len(gamma) > 1:
        lines, drawn = [], background.drawn(0)
        speed.states = []
        for state, probability in enumerate(gamma):
            link = Link(device, task, source, MEASURE_S, state=state)
            lines.append(_lines(device, task, link, keys, [len(keys)], repeats=1))
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
        found = _lines(device, task, link, keys, sizes, repeats=repeats)
        speed.link, speed.compute = found
    background.rest()


def _lines(
    device: Device,
    task: WarmTask,
    link: Link,
    keys: list[str],
    sizes: Sequence[int],
    *,
    repeats: int,
) -> tuple[Line, Line]:
    """Time transfers and training of these numbers of shards."""
    spec, speed = task.spec, task.speed
    part_bytes = speed.model_bytes // max(1, *sizes)

    def fetch(n: int) -> int:
        if spec.federated:
            return bytes_of(link.filler(n * part_bytes))
        return bytes_of(link.shards(keys[:n]))

    transfers = time_transfers(fetch, sizes, repeats=repeats, clock=device.clock)
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
    on_cpu = next(task.model.parameters()).device.type == "cpu"
    is_plain = link.throttle.is_free and on_cpu
    with told_if_short(task, examples), told_if_busy(is_plain):
        compute = time_training(
            task.model,
            examples,
            task.training,
            sizes=sorted({min(n * spec.shard, len(samples)) for n in sizes}),
            repeats=repeats,
            clock=device.clock,
            before_batch=link.throttle.batch,
        )
    return transfers, compute


@contextmanager
def told_if_busy(
    watched: bool,
    *,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Iterator[None]:
    """Log a warning if this process had much less than a core meanwhile."""
    began, spent = clock(), cpu_clock()
    yield
    took_s, core_s = clock() - began, cpu_clock() - spent
    if watched and took_s > LEAST_S and core_s < BUSY * took_s:
        log.warning(
            "this device was busy with other work while it benchmarked itself: it had "
            "%.0f %% of a core; the first cycles correct what is wrong by that",
            100 * core_s / took_s,
        )
