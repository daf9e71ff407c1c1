"""Moving data between devices: the problem, a plan, and what it costs.

In slot t device i collects D samples. Each is processed at once, sent to a device j
that processes it in slot t + 1, or discarded:

    minimise    Σ c_i(t)·G_i(t) + Σ c_ij(t)·x_ij(t)
                + Σ f_i(t)·ρ_i(t) + Σ γ/√(G_i(t) + g₀)
    subject to  ρ_i(t) + Σⱼ x_ij(t) = D_i(t)                             (all data)
                G_i(t) = x_ii(t) + Σⱼ x_ji(t−1) ≤ C_i(t)                  (devices)
                x_ij(t) ≤ C_ij(t),  links of slot t alone,  x, ρ ≥ 0      (links)

Devices enter and leave: those of V(t) are there in slot t. The others collect nothing,
take nothing and have no error. What was sent to a device that is gone in the next slot
is lost, at the price of discarding it.

Paper: Y. Tu et al., "Network-Aware Optimization of Distributed Learning for Fog
Computing", INFOCOM 2020, (5) to (9).

Differences from the paper:
1. Data sent in the last slot T is processed in a slot T + 1, at the cost and within the
   capacity of slot T. It bears no γ: the paper sums errors over slots 1 … T.
2. The linear error is a positive cost of discarding; the paper's sign slips.
3. γ/√(G + g₀) for γ/√G, with g₀ = 1 sample unless said otherwise: a device that
   processes nothing has a finite error. Both kinds of error may be there at once.
4. Parts of samples may move.
5. The paper has V(t), and does not say what becomes of data on its way to a device that
   leaves: it is lost with it.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from melisma.errors import ConfigError
from melisma.fog.links import Links
from melisma.maths.arrays import Bools, Floats, Ints, set_counts, set_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Movement:
    """Data to be moved over T slots and n devices.

    Arrays are T × n, or one number for all; those of links have one number for each
    entry of ``links``. Costs are per sample, in one unit of the caller's choice.
    """

    data: Floats  #: D_i(t), samples collected
    process_cost: Floats  #: c_i(t)
    links: Links  #: E(t)
    link_cost: Floats  #: c_ij(t)
    #: f_i(t)
    discard_cost: Floats = field(default_factory=lambda: np.array(0.0))
    #: γ, cost of the error of a device at G + g₀ = 1
    gamma: Floats = field(default_factory=lambda: np.array(0.0))
    #: g₀
    idle_samples: Floats = field(default_factory=lambda: np.array(1.0))
    #: C_i(t), samples
    capacity: Floats = field(default_factory=lambda: np.array(np.inf))
    #: C_ij(t), samples
    link_capacity: Floats = field(default_factory=lambda: np.array(np.inf))
    #: V(t): whether each device is there
    there: Bools = field(default_factory=lambda: np.array(True))

    def __post_init__(self) -> None:
        shape = (self.links.slots, self.links.devices)
        each = (len(self.links),)
        for name in ("data", "process_cost", "discard_cost", "gamma", "idle_samples"):
            set_numbers(self, name, shape=shape)
        set_numbers(self, "capacity", shape=shape, endless=True)
        set_numbers(self, "link_cost", shape=each)
        set_numbers(self, "link_capacity", shape=each, endless=True)
        if ((self.gamma > 0) & (self.idle_samples <= 0)).any():
            raise ConfigError(
                "idle_samples of 0 beside gamma: give more than 0 samples"
            )
        there = set_counts(self, "there", shape=shape, most=1).astype(bool)
        object.__setattr__(self, "there", there)
        if not there.all():
            self._clear(there)

    def _clear(self, there: Bools) -> None:
        """Leave nothing to devices that are not there, nor to their links."""
        slot, source, target = self.links.slot, self.links.source, self.links.target
        both = there[slot, source] & there[slot, target]
        for name, kept in (("data", there), ("gamma", there), ("link_capacity", both)):
            object.__setattr__(self, name, np.where(kept, getattr(self, name), 0.0))

    @property
    def slots(self) -> int:
        """T."""
        return self.links.slots

    @property
    def devices(self) -> int:
        """n."""
        return self.links.devices

    def between(self, start: int, stop: int) -> "Movement":
        """The same in slots start … stop − 1 alone."""
        links, entries = self.links, self.links.between(start, stop)
        return Movement(
            data=self.data[start:stop],
            process_cost=self.process_cost[start:stop],
            links=Links(
                devices=self.devices,
                slots=stop - start,
                slot=links.slot[entries] - start,
                source=links.source[entries],
                target=links.target[entries],
            ),
            link_cost=self.link_cost[entries],
            discard_cost=self.discard_cost[start:stop],
            gamma=self.gamma[start:stop],
            idle_samples=self.idle_samples[start:stop],
            capacity=self.capacity[start:stop],
            link_capacity=self.link_capacity[entries],
            there=self.there[start:stop],
        )

    def without(self, devices: Ints, start: int) -> "Movement":
        """The same, but from slot ``start`` on these devices are not there.

        Their links stay in place, but nothing goes over them.
        """
        there = self.there.copy()
        there[start:, devices] = False
        return replace(self, there=there)

    def foreseen(self) -> "Movement":
        """The same, but nothing goes to a device that is gone in the next slot."""
        if self.there.all():
            return self
        room = np.where(self.loses(), 0.0, self.link_capacity)
        return replace(self, link_capacity=room)

    def loses(self) -> Bools:
        """Whether each link loses what it carries: its target is gone by then."""
        stays = np.concatenate([self.there, self.there[-1:]])
        return ~stays[self.links.slot + 1, self.links.target]

    def sinks(self, name: str) -> Floats:
        """A field of T × n with a row more: slot T + 1, like slot T; its γ is 0."""
        array: Floats = getattr(self, name)
        last = np.zeros_like(array[-1:]) if name == "gamma" else array[-1:]
        return np.concatenate([array, last])

    def arrivals(self, sent: Floats) -> Floats:
        """Σᵢ x_ij(t−1), (T + 1) × n, of samples sent over each link."""
        links, n = self.links, self.devices
        total = np.bincount(
            (links.slot + 1) * n + links.target, sent, (self.slots + 1) * n
        )
        return total.astype(np.float64).reshape(-1, n)  # whole if there is no link

    def departures(self, sent: Floats) -> Floats:
        """Σⱼ x_ij(t), T × n, of samples sent over each link."""
        links, n = self.links, self.devices
        total = np.bincount(links.slot * n + links.source, sent, self.slots * n)
        return total.astype(np.float64).reshape(-1, n)  # whole if there is no link

    def most_sent(self) -> Floats:
        """The most that each link can carry: its capacity, or all that there is."""
        return np.minimum(
            self.link_capacity, self.data[self.links.slot, self.links.source]
        )

    def room(self) -> Floats:
        """The most that each device can process, (T + 1) × n; always finite."""
        most = self.arrivals(self.most_sent())
        most[:-1] += self.data
        return np.minimum(self.sinks("capacity"), most)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flows:
    """What happens to the data, in samples."""

    kept: Floats  #: x_ii(t), processed at once, T × n
    sent: Floats  #: x_ij(t), of each entry of the links
    discarded: Floats  #: ρ_i(t), T × n


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The parts of the objective."""

    process: float
    transfer: float
    error: float  #: of discarding, and of devices that process little

    @property
    def total(self) -> float:
        """Their sum."""
        return self.process + self.transfer + self.error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Flows, what they cost, and how far from the least cost they can be at most."""

    flows: Flows
    costs: Costs
    prices: Floats  #: of a sample's room on each device, (T + 1) × n
    bound: float  #: no flows cost less

    @property
    def gap(self) -> float:
        """(cost − bound) / cost; 0: optimal."""
        total = self.costs.total
        return max((total - self.bound) / total, 0.0) if total else 0.0


def processed(problem: Movement, flows: Flows) -> Floats:
    """G_i(t), samples, (T + 1) × n: the last row is what the last slot sent."""
    G = problem.arrivals(np.where(problem.loses(), 0.0, flows.sent))
    G[:-1] += flows.kept
    return G


def cost(problem: Movement, flows: Flows) -> Costs:
    """What flows cost, feasible or not."""
    G = processed(problem, flows)
    loss = problem.gamma / np.sqrt(G[:-1] + problem.idle_samples)
    error = float((problem.discard_cost * flows.discarded).sum() + loss.sum())
    if (lost := problem.loses()).any():
        links = problem.links
        fares = problem.discard_cost[links.slot[lost], links.source[lost]]
        error += float(fares @ flows.sent[lost])
    return Costs(
        process=float((problem.sinks("process_cost") * G).sum()),
        transfer=float(problem.link_cost @ flows.sent),
        error=error,
    )


def check(problem: Movement, flows: Flows, tolerance: float = 1e-9) -> list[str]:
    """Say in words which constraints flows break; none: an empty list.

    ``tolerance`` is relative to the largest D.
    """
    expected = (problem.data.shape, problem.link_cost.shape, problem.data.shape)
    if (flows.kept.shape, flows.sent.shape, flows.discarded.shape) != expected:
        return ["shape"]
    slack = tolerance * max(1.0, float(problem.data.max()))
    out = flows.kept + problem.departures(flows.sent) + flows.discarded
    least = min(a.min(initial=0.0) for a in (flows.kept, flows.sent, flows.discarded))
    over = processed(problem, flows) - problem.sinks("capacity")
    broken = {
        "no less than nothing": not least >= -slack,
        "all data": not np.abs(out - problem.data).max() <= slack,
        "devices": not over.max() <= slack,
        "links": not (flows.sent <= problem.link_capacity + slack).all(),
    }
    return [name for name, is_broken in broken.items() if is_broken]
