"""Moving data slot by slot: plans made by what is known, carried out on what comes.

A planner says in each slot what it would do; ``Course`` does it under the real
constraints, whatever was believed. A link carries no more than it can; a device that
will have too little room in the next slot refuses in proportion, before anything is
sent. What is refused is kept where there is room and keeping is no dearer than
discarding, else discarded. Data that have been sent have precedence over the receiver's
own.

    Alone      every device processes what it can of its own data
    Known      the best plan of all slots that are left
    Windows    the paper's way: slots are divided into windows; in each, the movement is
               planned by the averages of the window before, and shares of that plan are
               carried out on the data that really come; the first window works alone
    Rolling    a plan anew in each slot over the slots ahead, by what is believed of
               them, of which the first slot is carried out

Differences from the paper:
1. It does not say what happens where a capacity was overestimated: the rules above.
2. Discard costs are the operator's own and known; all else is averaged.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from melisma.errors import ConfigError
from melisma.fog.forecasts import Forecast, average
from melisma.fog.movement import Flows, Movement
from melisma.fog.solve import move
from melisma.maths.arrays import Floats, Ints
from melisma.maths.remainders import handed_out


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """What is to be done in one slot."""

    belief: Movement  #: slots as they were expected to be
    flows: Flows  #: in them
    row: int  #: the slot's place among them


class Planner(Protocol):
    """Decides on a slot by what it may know; None: everybody works alone."""

    def __call__(self, problem: Movement, slot: int, arrived: Floats) -> Planned | None:
        """Plan a slot in which each device was sent ``arrived`` samples before."""


class Alone:
    """Nobody sends anything."""

    def __call__(self, problem: Movement, slot: int, arrived: Floats) -> None:
        """Let everybody process its own."""


class Known:
    """The best plan of all slots that are left, made once for each movement."""

    def __init__(self) -> None:
        self._problem: Movement | None = None

    def __call__(self, problem: Movement, slot: int, arrived: Floats) -> Planned:
        """Plan to the end, unless this movement was planned before."""
        if problem is not self._problem:
            self._problem, self._start = problem, slot
            self._ahead = problem.between(slot, problem.slots)
            self._flows = first_slot(self._ahead, arrived)
        return Planned(self._ahead, self._flows, slot - self._start)


class Windows:
    """A plan for each window, by the averages of the one before.

    It is made anew when devices have come or gone.
    """

    def __init__(self, windows: int) -> None:
        self._windows = windows
        self._plan: tuple[tuple[int, bytes], Movement, Flows] | None = None

    def __call__(self, problem: Movement, slot: int, arrived: Floats) -> Planned | None:
        """Plan the slot's window, unless it was; ConfigError if slots are too few."""
        if not 1 <= self._windows <= problem.slots:
            raise ConfigError(
                f"{self._windows} windows of {problem.slots} slots: "
                f"give 1 to {problem.slots}"
            )
        edges = np.linspace(0, problem.slots, self._windows + 1).round().astype(int)
        which = int(np.searchsorted(edges, slot, side="right")) - 1
        if which == 0:
            return None
        before, start, stop = edges[which - 1 : which + 2].tolist()
        key = which, problem.there[slot].tobytes()
        if self._plan is None or self._plan[0] != key:
            belief = replace(
                average(problem, before, start, stop - start),
                discard_cost=problem.discard_cost[start:stop],
                there=np.tile(problem.there[slot], (stop - start, 1)),
            )
            self._plan = key, belief, move(belief, gap=1e-6).flows
        _, belief, flows = self._plan
        return Planned(belief, flows, slot - start)


class Rolling:
    """A plan anew in each slot, of which the first slot is carried out."""

    def __init__(self, horizon: int, forecast: Forecast) -> None:
        if horizon < 1:
            raise ConfigError(f"horizon of {horizon} slots: give at least 1")
        self._horizon, self._forecast = horizon, forecast

    def __call__(self, problem: Movement, slot: int, arrived: Floats) -> Planned:
        """Plan the slots ahead."""
        ahead = self._forecast(problem, slot, min(self._horizon, problem.slots - slot))
        return Planned(ahead, first_slot(ahead, arrived), 0)


def alone(problem: Movement) -> Flows:
    """Every device processes what it can of its own data and discards the rest."""
    kept = np.minimum(problem.data, problem.capacity)
    sent = np.zeros(len(problem.links))
    return Flows(kept=kept, sent=sent, discarded=problem.data - kept)


def estimated(problem: Movement, windows: int) -> Flows:
    """Flows by the averages of the window before; slots are divided evenly.

    Raises ConfigError if there are more windows than slots.
    """
    return carried_out(problem, Windows(windows))


def rolling(problem: Movement, horizon: int, forecast: Forecast) -> Flows:
    """Flows of a plan made anew in each slot over ``horizon`` slots."""
    return carried_out(problem, Rolling(horizon, forecast))


def carried_out(problem: Movement, planner: Planner, *, whole: bool = False) -> Flows:
    """Flows of a planner in all slots; in ``whole`` samples, if D and C are whole."""
    course = Course(problem, whole=whole)
    for t in range(problem.slots):
        course.follow(t, planner(problem, t, course.arrived))
    return course.flows()


def first_slot(ahead: Movement, arrived: Floats) -> Flows:
    """Flows of a plan for the slots ahead, of which the first is to be done.

    ``arrived`` are the samples of each device that others sent in the slot before.
    """
    arrives = np.zeros_like(ahead.data)
    arrives[0] = arrived
    capacity = np.maximum(ahead.capacity - arrives, 0.0)
    now = replace(ahead, capacity=capacity, idle_samples=ahead.idle_samples + arrives)
    # The slot after the last is like the last, but for what arrives in the first.
    after = now if ahead.slots > 1 else _followed(now, ahead.capacity)
    flows = move(after, gap=1e-6).flows
    rows = slice(ahead.slots)
    return replace(flows, kept=flows.kept[rows], discarded=flows.discarded[rows])


def _followed(now: Movement, capacity: Floats) -> Movement:
    """One slot, and another of this capacity in which nothing is collected."""

    def twice(name: str) -> Floats:
        return np.tile(getattr(now, name), (2, 1))

    nothing = np.zeros_like(now.data)
    return Movement(
        data=np.concatenate([now.data, nothing]),
        process_cost=twice("process_cost"),
        links=replace(now.links, slots=2),
        link_cost=now.link_cost,
        discard_cost=twice("discard_cost"),
        gamma=np.concatenate([now.gamma, nothing]),
        idle_samples=twice("idle_samples"),
        capacity=np.concatenate([now.capacity, capacity]),
        link_capacity=now.link_capacity,
    )


class Course:
    """Carries out plans slot by slot under the real constraints.

    ``problem`` may be replaced on the way by another with the same links. In ``whole``
    samples each source hands out its last ones where the plan's remainders are largest
    and there is room.
    """

    def __init__(self, problem: Movement, *, whole: bool = False) -> None:
        self.problem, self._whole = problem, whole
        self._kept = np.zeros_like(problem.data)
        self._sent = np.zeros(len(problem.links))
        self._data = np.zeros_like(problem.data)
        #: Samples that each device was sent in the slot before.
        self.arrived = np.zeros(problem.devices)

    def follow(self, t: int, plan: Planned | None) -> Flows:
        """Carry out slot t by the shares of a plan; return the slot's own flows.

        Of the links, those that are there in this slot.
        """
        problem, n = self.problem, self.problem.devices
        entries = problem.links.between(t, t + 1)
        source, target = problem.links.source[entries], problem.links.target[entries]
        D = problem.data[t]
        keep, send = np.ones(n), np.zeros(source.size)
        if plan is not None:
            keep, send = _shares(plan, source * n + target)
        want = send * D[source]
        sent = np.minimum(want, problem.link_capacity[entries])
        inflow = np.bincount(target, sent, n)
        most = problem.sinks("capacity")[t + 1]
        over = inflow > most
        sent = sent * np.where(over, most / np.where(over, inflow, 1.0), 1.0)[target]
        refused = np.bincount(source, want - sent, n)
        worth = problem.process_cost[t] <= problem.discard_cost[t]
        free = np.maximum(problem.capacity[t] - self.arrived, 0.0)
        kept = np.minimum(keep * D + np.where(worth, refused, 0.0), free)
        if self._whole:
            kept, sent = self._rounded(t, kept, sent, free)
        self._kept[t], self._sent[entries], self._data[t] = kept, sent, D
        self.arrived = np.bincount(target, sent, n).astype(np.float64)
        gone = kept + np.bincount(source, sent, n)
        return Flows(kept=kept, sent=sent, discarded=np.maximum(D - gone, 0.0))

    def _rounded(
        self, t: int, kept: Floats, sent: Floats, free: Floats
    ) -> tuple[Floats, Floats]:
        """The same in whole samples, of each the one below or the one above."""
        problem, n = self.problem, self.problem.devices
        entries = problem.links.between(t, t + 1)
        source, target = problem.links.source[entries], problem.links.target[entries]
        gone = kept + np.bincount(source, sent, n)
        amounts = np.concatenate([kept, sent, problem.data[t] - gone])
        every = np.arange(n)
        whole = handed_out(
            amounts,
            source=np.concatenate([every, source, every]),
            # Room now, room in the next slot, and discarding has no end.
            sink=np.concatenate([every, n + target, np.full(n, 2 * n)]),
            room=np.concatenate([free, problem.sinks("capacity")[t + 1], [np.inf]]),
            most=np.concatenate(
                [np.full(n, np.inf), problem.link_capacity[entries], np.full(n, np.inf)]
            ),
        )
        return whole[:n], whole[n : n + sent.size]

    def flows(self) -> Flows:
        """All that was carried out."""
        gone = self._kept + self.problem.departures(self._sent)
        discarded = np.maximum(self._data - gone, 0.0)
        return Flows(kept=self._kept, sent=self._sent, discarded=discarded)


def _shares(plan: Planned, pairs: Ints) -> tuple[Floats, Floats]:
    """Parts of the data that a plan keeps, and sends over each pair, in its slot.

    A device of which the plan expects no data keeps what it has.
    """
    belief, flows, row = plan.belief, plan.flows, plan.row
    D, n = belief.data[row], belief.devices
    whole = np.where(D > 0.0, D, 1.0)
    keep = np.where(D > 0.0, flows.kept[row] / whole, 1.0)
    entries = belief.links.between(row, row + 1)
    source, target = belief.links.source[entries], belief.links.target[entries]
    planned = source * n + target
    share = flows.sent[entries] / whole[source]
    if not planned.size:
        return keep, np.zeros(pairs.size)
    at = np.minimum(np.searchsorted(planned, pairs), planned.size - 1)
    return keep, np.where(planned[at] == pairs, share[at], 0.0)
