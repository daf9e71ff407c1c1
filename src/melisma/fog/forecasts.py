"""Forecasts of the slots to come."""

from collections.abc import Callable

import numpy as np

from melisma.fog.links import Links
from melisma.fog.movement import Movement
from melisma.maths.arrays import Floats

#: Of (problem, t, horizon): slots t … t + horizon − 1 as slot t expects them. The
#: first is certain.
Forecast = Callable[[Movement, int, int], Movement]


def known(problem: Movement, slot: int, horizon: int) -> Movement:
    """The true slots: a perfect forecast."""
    return problem.between(slot, slot + horizon)


def averages(problem: Movement, slot: int, horizon: int) -> Movement:
    """A forecast by the averages of all slots so far; discard costs are known.

    Devices that are there now stay, and the others stay away.
    """
    now = problem.between(slot, slot + 1)
    if horizon == 1:
        return now
    later = average(problem, 0, slot + 1, horizon - 1)

    def rows(name: str) -> Floats:
        return np.concatenate([getattr(now, name), getattr(later, name)])

    return Movement(
        data=rows("data"),
        process_cost=rows("process_cost"),
        links=Links(
            devices=problem.devices,
            slots=horizon,
            slot=np.append(now.links.slot, later.links.slot + 1),
            source=np.append(now.links.source, later.links.source),
            target=np.append(now.links.target, later.links.target),
        ),
        link_cost=rows("link_cost"),
        discard_cost=problem.discard_cost[slot : slot + horizon],
        gamma=rows("gamma"),
        idle_samples=rows("idle_samples"),
        capacity=rows("capacity"),
        link_capacity=rows("link_capacity"),
        there=np.tile(problem.there[slot], (horizon, 1)),
    )


def average(problem: Movement, start: int, stop: int, slots: int) -> Movement:
    """``slots`` slots that are all like the mean of slots start … stop − 1.

    A link that was there at times is there always, with its mean cost when it was and
    its mean capacity over all slots. A device that was there at times collects as it
    did then.
    """
    past = problem.between(start, stop)
    pair = past.links.source * problem.devices + past.links.target
    pairs, which = np.unique(pair, return_inverse=True)
    times = np.bincount(which, minlength=pairs.size)
    cost = np.bincount(which, past.link_cost, pairs.size) / times
    capacity = np.bincount(which, past.link_capacity, pairs.size) / (stop - start)
    source, target = np.divmod(pairs, problem.devices)

    def mean(array: Floats) -> Floats:
        return np.tile(array.mean(axis=0), (slots, 1))

    share = past.there.mean(axis=0)
    share = np.where(share > 0.0, share, 1.0)
    return Movement(
        data=mean(past.data / share),
        process_cost=mean(past.process_cost),
        links=Links.always(problem.devices, slots, source, target),
        link_cost=np.tile(cost, slots),
        discard_cost=mean(past.discard_cost),
        gamma=mean(past.gamma / share),
        idle_samples=mean(past.idle_samples),
        capacity=mean(past.capacity),
        link_capacity=np.tile(capacity, slots),
    )
