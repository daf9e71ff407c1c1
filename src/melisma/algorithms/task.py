"""A task as the orchestrator schedules it, and the plan of a cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from melisma.algorithms.stopping import NEVER, Stop
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.protocols import Probed
from melisma.learning.data import Dataset
from melisma.learning.metrics import METRICS, Metric
from melisma.learning.parameters import Model
from melisma.learning.settings import Merging, Training
from melisma.maths.arrays import Floats, Ints
from melisma.system.energy import PowerProfile
from melisma.system.law import DelayLaw
from melisma.system.options import AS_NOW, Options
from melisma.system.problem import STEPS_LIMIT, Allocation

MEAN, TRAINING = Merging(), Training()
#: What of a plan is in the records, where it is known.
FACTS = ("predicted_s", "cost", "planned_s", "predicted_j", "battery_j", "risk")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduledTask:
    """Model, data and how training is allocated."""

    name: str
    model: Model
    data: Dataset  #: as it is stored
    scheme: str  #: a name in SCHEMES
    cycles: int
    deadline_s: float  #: of each cycle
    seed: int
    samples: int | None = None  #: D, to train on in a cycle; None: all there are
    shard: int = 1  #: samples that are allocated and travel together
    steps: int = 5  #: epochs, where the scheme does not choose them (DAB)
    steps_at_most: int = STEPS_LIMIT  #: epochs of a learner, where the scheme does
    batches: int | None = None  #: of each learner in place of those, where it is fixed
    least: int = 1  #: shards of a learner at least
    most: int | None = None  #: shards of a learner at most
    learners_at_most: int | None = None  #: in a cycle
    merging: Merging = MEAN
    ready: Dataset | None = None  #: as the model takes it, where it is; None: as stored
    training: Training = TRAINING
    metrics: tuple[Metric, ...] = (METRICS["accuracy"],)  #: the first is *the* metric
    federated: bool = False  #: learners train on data of their own
    stop: Stop = NEVER  #: before the last cycle
    options: Options = AS_NOW  #: of learners, from which the scheme may choose
    #: What records say of learners that take part in a way of their own, by name.
    fixed_ways: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("cycles", "shard", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.samples is not None and self.samples < self.shard:
            raise ConfigError(
                f"{self.samples} samples a cycle, in shards of {self.shard}: give at "
                "least one shard"
            )

    @property
    def taken(self) -> Dataset:
        """The data as the model takes it."""
        return self.ready or self.data

    def cycle_samples(self, own: Sequence[int] | None) -> int:
        """D, samples to train on in a cycle; ``own`` is the samples on each learner.

        Raises ConfigError if the task asks for more than there are.
        """
        rows = self.there(own)
        wanted = rows if self.samples is None else self.samples
        if not self.shard <= wanted <= rows:
            raise ConfigError(
                f"{wanted} samples a cycle: there are {rows} of {self.data.name} to "
                f"train on, in shards of {self.shard}"
            )
        return wanted

    def there(self, own: Sequence[int] | None) -> int:
        """Return how many samples there are to train on, in whole shards."""
        owned = [len(self.data.train)] if own is None else own
        # A learner's last samples may be too few for a shard.
        return sum(n - n % self.shard for n in owned)

    def for_those_there(self, own: Sequence[int] | None) -> "ScheduledTask":
        """Return the task with no more samples a cycle than there are.

        Raises InfeasibleError if there is not one shard.
        """
        rows = self.there(own)
        if rows < self.shard:
            raise InfeasibleError(
                f"none of {len(own or ())} learners has a shard of {self.shard} "
                "samples: use smaller shards"
            )
        if self.samples is None or self.samples <= rows:
            return self
        return replace(self, samples=rows - rows % self.shard)

    def fixed(self, samples: Ints) -> tuple[Ints, Ints]:
        """Return samples and epochs of learners that are to do all of their work."""
        if self.batches is None:
            return samples, np.where(samples > 0, self.steps, 0)
        each = (self.training.batch, self.shard)
        work = [
            in_batches(self.batches, n, *each) if n else (0, 0)
            for n in samples.tolist()
        ]
        some, steps = np.array(work, dtype=np.int64).reshape(-1, 2).T
        return some, steps

    def most_shards(self, learners: int, own: Sequence[int] | None) -> Ints:
        """Shards that each learner may take at most."""
        samples = [len(self.data.train)] * learners if own is None else own
        most = np.asarray(samples, dtype=np.int64) // self.shard
        return most if self.most is None else np.minimum(most, self.most)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Each learner's work in a cycle, in shards."""

    allocation: Allocation
    predicted_s: Floats | None  #: None where only the learners know (DAB)
    cost: Floats | None = None  #: price of each learner's work, where there are prices
    probed: Probed | None = None  #: if every learner has begun with a shard already
    planned_s: Floats | None = None  #: predicted with care, where lateness is limited
    law: DelayLaw | None = None  #: per sample, without that care
    known_s: Floats | None = None  #: the same of whole orders, where no law is known
    why: Sequence[str] = ()  #: each learner sits out, if it does
    predicted_j: Floats | None = None  #: where it is known what learners draw
    battery_j: Floats | None = None  #: left once that is spent; inf: the mains
    power: PowerProfile | None = None  #: what they draw
    risk: Floats | None = None  #: chance of each to be reclaimed at work; NaN: none
    spare_s: float = 0.0  #: before the deadline, once all have done as much as they may

    @property
    def has_work(self) -> bool:
        """Whether anybody has anything to do."""
        return bool(self.allocation.samples.any())

    def facts(self, k: int, task: ScheduledTask) -> dict[str, Any]:
        """Return what a record says of one learner's part."""
        work = self.allocation
        facts: dict[str, Any] = {name: _at(getattr(self, name), k) for name in FACTS}
        if work.options is not None and work.samples[k]:
            m = int(work.options[k])
            facts["option"] = task.options.names[m]
            facts["saved_bytes"] = task.options.saved_bytes(m)
        return facts | {
            "samples": int(work.samples[k]) * task.shard,
            "steps": int(work.steps[k]),
            "why": self.why[k] if self.why else "",
        }


def _at(values: Floats | None, k: int) -> float | None:
    """Return a learner's value; None for all that is not finite."""
    if values is None or not np.isfinite(values[k]):
        return None
    return float(values[k])


def in_batches(batches: int, samples: int, batch: int, shard: int) -> tuple[int, int]:
    """Return samples and epochs of an order of so many batches, or the next fewer.

    A learner has so many ``samples``, and repeats them where they do not suffice.

    >>> in_batches(7, samples=100, batch=32, shard=1)
    (96, 2)
    """
    epochs = -(-batches // -(-samples // batch))
    some = min(samples, batches // epochs * batch)
    return max(shard, some - some % shard), epochs
