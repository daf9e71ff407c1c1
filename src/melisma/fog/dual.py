"""A bound on the cost of any plan, for any prices.

A price π on the samples that each device processes in each slot takes (devices) apart:

    Σ over samples  min [ c_i(t) + π_i(t) | c_ij(t) + c_j(t+1) + π_j(t+1) | f_i(t) ]
  + Σ over devices  min over 0 ≤ G ≤ C of γ/√(G + g₀) − π·G

The first is a fractional knapsack for each source: the cheapest way first, up to the
capacity of its link and the room at its end. (devices) implies the latter; without it a
device with room for 1e-6 samples would be offered all data at a price slightly too low.
The second is closed: G = (γ / −2π)^⅔ − g₀, clipped. By weak duality no plan costs less
than the sum, whatever π is. Nothing here knows how prices were found.
"""

import numpy as np

from melisma.fog.movement import Movement
from melisma.maths.arrays import Floats


def bound(problem: Movement, prices: Floats) -> float:
    """Least cost of any flows, bounded from below; ``prices`` is (T + 1) × n."""
    gamma, idle = problem.sinks("gamma"), problem.sinks("idle_samples")
    room = problem.room()
    losses = least_loss(prices, gamma, idle, room)
    return _sources(problem, prices, room) + float(losses.sum())


def least_loss(price: Floats, gamma: Floats, idle: Floats, room: Floats) -> Floats:
    """Min over 0 ≤ G ≤ room of γ/√(G + g₀) − π·G, for each device."""
    pays = price < 0.0
    free = (gamma / np.where(pays, -2.0 * price, 1.0)) ** (2.0 / 3.0) - idle
    G = np.clip(np.where(pays, free, room), 0.0, room)
    # Without γ a price above 0 fills the device; one below empties it.
    loss: Floats = gamma / np.sqrt(np.where(gamma > 0.0, G + idle, 1.0)) - price * G
    return loss


def _sources(problem: Movement, prices: Floats, room: Floats) -> float:
    """What all samples cost if each goes the way that is cheapest at these prices."""
    links, n = problem.links, problem.devices
    full = problem.sinks("process_cost") + prices
    here = np.arange(problem.data.size)
    way = problem.link_cost + full[links.slot + 1, links.target]
    source = np.concatenate([links.slot * n + links.source, here, here])
    price = np.concatenate([way, full[:-1].ravel(), problem.discard_cost.ravel()])
    D = problem.data.ravel()
    sent = np.minimum(problem.most_sent(), room[links.slot + 1, links.target])
    most = np.concatenate([sent, np.minimum(D, room[:-1].ravel()), D])
    order = np.lexsort((price, source))
    source, price, most = source[order], price[order], most[order]
    before = np.cumsum(most) - most
    before -= before[np.searchsorted(source, here)][source]
    return float(np.clip(D[source] - before, 0.0, most) @ price)
