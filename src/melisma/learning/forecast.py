"""The time of a training cycle on this machine: predicted in two ways, and measured.

Transfers are left out: `melisma join` measures them where there is a network.
"""

from dataclasses import dataclass

import numpy as np

from melisma.errors import ConfigError
from melisma.learning.benchmark import (
    Machine,
    flops,
    machine,
    sizes_of,
    time_cycle,
    time_training,
)
from melisma.learning.data import Dataset
from melisma.learning.losses import transform_of
from melisma.learning.models import cycles_per_sample
from melisma.learning.parameters import Model
from melisma.learning.samples import Part, transformed
from melisma.learning.settings import Training

#: Samples of a shard, where a job has none: the papers' number.
SHARD = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Speed of this machine, cycle times predicted from it, and the measured one."""

    samples_per_s: float  #: one pass, by the subset benchmark
    shards_per_s: float
    latency_s: float  #: of one call, however many samples
    flops: float  #: FLOP/s of matrix products
    machine: Machine  #: before the benchmark
    subset_s: float  #: the cycle, by the subset benchmark
    flops_s: float | None  #: the cycle, by FLOPS; None where operations are unknown
    trained_s: float | None  #: the cycle, measured; None if it was not trained

    @property
    def errors_percent(self) -> tuple[float | None, float | None]:
        """Predicted minus trained time of subset and FLOPS, in % of the trained one."""
        if self.trained_s is None:
            return None, None
        subset = 100.0 * (self.subset_s / self.trained_s - 1.0)
        if self.flops_s is None:
            return subset, None
        return subset, 100.0 * (self.flops_s / self.trained_s - 1.0)


def shard_size(given: int, shards: int, samples: int) -> int:
    """Return the samples of a shard: the job's number, or 500 if there are enough.

    Raises ConfigError if there are not enough samples for so many shards.

    >>> shard_size(1, 8, 60_000), shard_size(1, 8, 800), shard_size(20, 8, 800)
    (500, 100, 20)
    """
    size = given if given > 1 else min(SHARD, samples // shards)
    if not 1 <= size * shards <= samples:
        raise ConfigError(
            f"{shards} shards of {max(size, 1)} samples: there are {samples} samples; "
            "take fewer shards or smaller ones"
        )
    return size


def operations_of(model: Model, data: Dataset) -> float | None:
    """Return operations to train on a sample once, None where a layer's are unknown."""
    try:
        return float(cycles_per_sample(model, data.input_shape))
    except ConfigError:
        return None


def forecast(
    model: Model,
    data: Dataset,
    training: Training,
    *,
    samples: int,
    steps: int,
    shard: int,
    shards: int,
    sizes: int,
    repeats: int,
    operations: float | None,
    check: bool,
) -> Forecast:
    """Benchmark with ``shards``; predict ``steps`` over ``samples``.

    With two ``sizes`` half of the shards are timed too. ``operations`` are for one pass
    over one sample. With ``check`` the cycle is trained and timed as well.
    """
    ready, before = transformed(data.train, transform_of(training)), machine()
    timed = [n * shard for n in sizes_of(shards, sizes)]
    line = time_training(model, ready, training, sizes=timed, repeats=repeats)
    score = flops()
    work = steps * samples
    trained_s = None
    if check:
        cycle = Part(ready, np.arange(samples))
        trained_s = time_cycle(model, cycle, training, steps=steps)
    return Forecast(
        samples_per_s=line.rate,
        shards_per_s=line.rate / shard,
        latency_s=line.latency_s,
        flops=score,
        machine=before,
        subset_s=line.seconds(work),
        flops_s=None if operations is None else work * operations / score,
        trained_s=trained_s,
    )
