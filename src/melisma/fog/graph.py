"""A movement as a graph: sources, sinks, and the arcs between them that may be used.

A source is a device that collects in a slot, a sink a device that processes in one. A
sample that is kept is an arc like one that is sent. Arcs that no best plan needs are
left out first:

1. without data at their source, or without capacity on the way or room at their sink:
   less than rounding of those data is none;
2. no cheaper than discarding, even if the sink's error falls by all that it can;
3. no cheaper than keeping the sample on a device that cannot be full, where no device
   has a γ (with one it may be worth its price to send elsewhere).
"""

from dataclasses import dataclass

import numpy as np

from melisma.fog.movement import Flows, Movement
from melisma.maths.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """What a solver sees of a movement."""

    supply: Floats  #: samples of each source; twice what can leave, if that is less
    discard: Floats  #: cost of discarding one of them
    room: (
        Floats  #: samples that each sink can take; twice what can come, if that is less
    )
    gamma: Floats  #: of each sink
    idle: Floats  #: g₀ of each sink
    source: Ints  #: of each arc, ascending
    sink: Ints  #: of each arc
    cost: Floats  #: of a sample on each arc, sent and processed
    most: Floats  #: samples on each arc, by its link, its source and its sink
    capped: Bools  #: where it is the link that limits it
    origin: Ints  #: number of each arc: links first, then kept samples
    sinks: Ints  #: slot · n + device of each sink

    @property
    def size(self) -> tuple[int, int, int]:
        """How many arcs, sources and sinks."""
        return self.cost.size, self.supply.size, self.room.size

    def out(self, x: Floats) -> Floats:
        """Sum over the arcs of each source."""
        return np.bincount(self.source, x, self.supply.size).astype(np.float64)

    def into(self, x: Floats) -> Floats:
        """Sum over the arcs of each sink."""
        return np.bincount(self.sink, x, self.room.size).astype(np.float64)


def graph_of(problem: Movement) -> Graph:
    """The graph of a movement, without arcs that are never needed."""
    links, n = problem.links, problem.devices
    here = np.arange(problem.data.size)
    source = np.concatenate([links.slot * n + links.source, here])
    sink = np.concatenate([(links.slot + 1) * n + links.target, here])
    cost = problem.sinks("process_cost").ravel()[sink]
    cost[: len(links)] += problem.link_cost
    D, room = problem.data.ravel(), problem.room().ravel()
    # A limit that is never met would only blur the price of one that is: out of reach.
    never_full = room < problem.sinks("capacity").ravel()
    most = np.minimum(np.concatenate([problem.most_sent(), D]), room[sink])
    limit = np.concatenate([problem.link_capacity, np.full(D.size, np.inf)])
    capped = (limit < D[source]) & (never_full[sink] | (limit < room[sink]))
    kept = np.flatnonzero(_useful(problem, source, sink, cost, most, never_full))
    kept = kept[np.lexsort((sink[kept], source[kept]))]
    sources, source = np.unique(source[kept], return_inverse=True)
    sinks, sink = np.unique(sink[kept], return_inverse=True)
    leaves = np.bincount(source, most[kept], sources.size)
    return Graph(
        supply=np.minimum(D[sources], 2.0 * leaves),
        discard=problem.discard_cost.ravel()[sources],
        room=np.where(never_full, 2.0 * room, room)[sinks],
        gamma=problem.sinks("gamma").ravel()[sinks],
        idle=problem.sinks("idle_samples").ravel()[sinks],
        source=source.astype(np.int64),
        sink=sink.astype(np.int64),
        cost=cost[kept],
        most=most[kept],
        capped=capped[kept],
        origin=kept,
        sinks=sinks,
    )


def _useful(
    problem: Movement,
    source: Ints,
    sink: Ints,
    cost: Floats,
    most: Floats,
    never_full: Bools,
) -> Bools:
    gain = _gain(problem).ravel()
    ceiling = problem.discard_cost.ravel()[source] + gain[sink]
    least = np.finfo(np.float64).eps * problem.data.ravel()[source]
    useful = (most > least) & (cost < ceiling)
    if not gain.any():
        away = np.arange(source.size) < len(problem.links)
        dear = cost >= problem.process_cost.ravel()[source]
        useful &= ~(away & dear & never_full[source])
    return np.asarray(useful)


def _gain(problem: Movement) -> Floats:
    """The most by which a sample lessens the error of a device, (T + 1) × n: −φ′(0)."""
    gamma, idle = problem.sinks("gamma"), problem.sinks("idle_samples")
    return gamma / 2.0 * np.where(gamma > 0.0, idle, 1.0) ** -1.5


def prices_of(problem: Movement, graph: Graph, prices: Floats) -> Floats:
    """Prices of all devices, (T + 1) × n, of those of the sinks.

    Where no arc is left, a price at which nothing is worth sending: φ′(0), or high
    where there is no room, as that costs the bound nothing.
    """
    gain = _gain(problem)
    high = float(problem.discard_cost.max() + gain.max())
    every = np.where(problem.room() > 0.0, -gain, high)
    every.ravel()[graph.sinks] = prices
    return every


def flows_of(problem: Movement, graph: Graph, x: Floats) -> Flows:
    """Flows near x, a number for each arc, that keep every constraint exactly."""
    x = np.clip(x, 0.0, graph.most)
    x = x * _shrink(graph.room, graph.into(x))[graph.sink]
    x = x * _shrink(graph.supply, graph.out(x))[graph.source]
    every = np.zeros(len(problem.links) + problem.data.size)
    every[graph.origin] = x
    sent = every[: len(problem.links)]
    kept = every[len(problem.links) :].reshape(problem.data.shape)
    left = problem.data - kept - problem.departures(sent)
    return Flows(kept=kept, sent=sent, discarded=np.maximum(left, 0.0))


def _shrink(limit: Floats, amount: Floats) -> Floats:
    """Factor of at most 1 that brings each amount down to its limit."""
    over = amount > limit
    return np.where(over, limit / np.where(over, amount, 1.0), 1.0)
