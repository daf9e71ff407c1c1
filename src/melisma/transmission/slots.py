"""Fair transmission slot by slot, beside a greedy policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import TypeVar

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats
from melisma.transmission.queues import Decisions, Observed, Queues, Setting
from melisma.transmission.rules import affordable, after, lyapunov, transmission

T = TypeVar("T", Observed, Queues, Decisions)
Policy = Callable[[Setting, Queues, Observed], Decisions]

#: Rates are drawn from this share of the greatest upwards.
FADED = 0.25


def greedy(setting: Setting, queues: Queues, observed: Observed) -> Decisions:
    """Admit all, compute what can be, send at the highest rates first.

    The most data that one slot can carry. Queues count only for what they hold; the
    battery has the size that ``lyapunov`` needs.
    """
    f = affordable(setting, queues)
    r = np.broadcast_to(observed.rate_mbps, queues.data_mbit.shape)
    v = transmission(setting, queues, observed, f, r)
    return Decisions(
        auxiliary_mbit=np.zeros_like(v),
        admitted_mbit=observed.arrival_mbit,
        stored_j=np.minimum(
            observed.harvest_j, setting.most_battery_j - queues.battery_j
        ),
        computed_gcycles=f,
        airtime_s=v,
        sent_mbit=np.minimum(queues.data_mbit, r * v),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Every slot of a simulation: slots × seeds × workers."""

    setting: Setting
    observed: Observed
    queues: Queues  #: at the beginning of each slot
    done: Decisions

    def since(self, slot: int) -> "Trace":
        """What came from this slot on."""
        return Trace(
            setting=self.setting,
            observed=_each(self.observed, itemgetter(slice(slot, None))),
            queues=_each(self.queues, itemgetter(slice(slot, None))),
            done=_each(self.done, itemgetter(slice(slot, None))),
        )

    @property
    def throughput_mbit(self) -> Floats:
        """Mbit that each worker sent per slot: seeds × workers."""
        mean: Floats = self.done.sent_mbit.mean(axis=0)
        return mean

    @property
    def utility(self) -> Floats:
        """Σ log₂(1 + λ·throughput) of each seed."""
        return utility(self.setting, self.throughput_mbit)

    @property
    def largest_backlog_mbit(self) -> Floats:
        """The largest Q of any worker in any slot, of each seed."""
        largest: Floats = self.queues.data_mbit.max(axis=(0, 2))
        return largest


def utility(setting: Setting, throughput_mbit: Floats) -> Floats:
    """Σₘ log₂(1 + λₘ·throughput), the last axis being workers."""
    logs = np.log2(1 + setting.fairness_per_mbit * throughput_mbit)
    return np.asarray(logs.sum(-1))


def jain(throughput: Floats) -> Floats:
    """Jain's index (Σx)² / (M·Σx²) over the last axis: 1 equal, 1/M all to one.

    Undefined, NaN, where nobody got anything.
    """
    total, squares = throughput.sum(-1), (throughput**2).sum(-1)
    index: Floats = np.full_like(total, np.nan)
    np.divide(total**2, throughput.shape[-1] * squares, out=index, where=squares > 0)
    return index


def draw(setting: Setting, slots: int, rng: np.random.Generator) -> Observed:
    """Draw what each slot brings, slots × workers: uniform up to the most it can be."""

    def uniform(most: Floats, least: float = 0.0) -> Floats:
        return most * rng.uniform(least, 1.0, size=(slots, setting.workers))

    return Observed(
        rate_mbps=uniform(setting.rate_mbps, FADED),
        arrival_mbit=uniform(setting.arrival_mbit),
        harvest_j=uniform(setting.harvest_j),
        work_gcycles=uniform(setting.work_gcycles),
    )


def simulate(
    setting: Setting, slots: int, seeds: Sequence[int], policy: Policy = lyapunov
) -> Trace:
    """Run a policy from empty queues and batteries, once with each seed's draws.

    A seed brings the same slots to every policy and every V. Raises ConfigError for no
    slots or no seeds.
    """
    if slots < 1 or not seeds:
        raise ConfigError(
            f"{slots} slots with {len(seeds)} seeds: give at least one of each"
        )
    draws = [draw(setting, slots, np.random.default_rng(seed)) for seed in seeds]
    observed = _stack(draws, axis=1)
    queues = Queues.empty(len(seeds), setting.workers)
    before, done = [], []
    for slot in range(slots):
        now = _each(observed, itemgetter(slot))
        before.append(queues)
        done.append(policy(setting, queues, now))
        queues = after(setting, queues, now, done[-1])
    return Trace(
        setting=setting,
        observed=observed,
        queues=_stack(before, axis=0),
        done=_stack(done, axis=0),
    )


def _each(arrays: T, change: Callable[[Floats], Floats]) -> T:
    """The same with every array changed."""
    return type(arrays)(
        **{field.name: change(getattr(arrays, field.name)) for field in fields(arrays)}
    )


def _stack(items: Sequence[T], axis: int) -> T:
    """The arrays of all items, stacked along a new axis."""
    names = [field.name for field in fields(items[0])]
    return type(items[0])(
        **{
            name: np.stack([getattr(item, name) for item in items], axis)
            for name in names
        }
    )
