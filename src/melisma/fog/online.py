"""Moving data without knowing the future: by averages, or over a rolling horizon.

``estimated`` is the paper's way. Slots are divided into windows; in each, the movement
is planned by the averages of the window before, and shares of that plan are carried
out on the data that really come. In the first window every device works alone.

``rolling`` plans anew in each slot over the slots ahead, by what is known or believed
of them, and carries out the first slot of the plan.

What is carried out keeps the real constraints, whatever was believed. A link carries no
more than it can; a device that will have too little room in the next slot refuses in
proportion, before anything is sent. What is refused is kept where there is room and
keeping is no dearer than discarding, else discarded. Data that have been sent have
precedence over the receiver's own.

Differences from the paper:
1. It does not say what happens where a capacity was overestimated: the rules above.
2. Discard costs are the operator's own and known; all else is averaged.
"""

from dataclasses import replace

import numpy as np

from melisma.errors import ConfigError
from melisma.fog.forecasts import Forecast, average
from melisma.fog.movement import Flows, Movement
from melisma.fog.solve import move
from melisma.maths.arrays import Floats, Ints


def alone(problem: Movement) -> Flows:
    """Every device processes what it can of its own data and discards the rest."""
    kept = np.minimum(problem.data, problem.capacity)
    sent = np.zeros(len(problem.links))
    return Flows(kept=kept, sent=sent, discarded=problem.data - kept)


def estimated(problem: Movement, windows: int) -> Flows:
    """Flows by the averages of the window before; slots are divided evenly.

    Raises ConfigError if there are more windows than slots.
    """
    if not 1 <= windows <= problem.slots:
        raise ConfigError(
            f"{windows} windows of {problem.slots} slots: give 1 to {problem.slots}"
        )
    edges = np.linspace(0, problem.slots, windows + 1).round().astype(int).tolist()
    run = _Run(problem)
    for t in range(edges[1]):
        run.follow(t, None, 0)
    for before, start, stop in zip(edges, edges[1:], edges[2:], strict=False):
        belief = replace(
            average(problem, before, start, stop - start),
            discard_cost=problem.discard_cost[start:stop],
        )
        plan = (belief, move(belief, gap=1e-6).flows)
        for t in range(start, stop):
            run.follow(t, plan, t - start)
    return run.flows()


def rolling(problem: Movement, horizon: int, forecast: Forecast) -> Flows:
    """Flows of a plan made anew in each slot over ``horizon`` slots."""
    if horizon < 1:
        raise ConfigError(f"horizon of {horizon} slots: give at least 1")
    run = _Run(problem)
    for t in range(problem.slots):
        ahead = forecast(problem, t, min(horizon, problem.slots - t))
        run.follow(t, (ahead, first_slot(ahead, run.arrived)), 0)
    return run.flows()


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


class _Run:
    """Carries out plans slot by slot under the real constraints."""

    def __init__(self, problem: Movement) -> None:
        self._problem = problem
        self._kept = np.zeros_like(problem.data)
        self._sent = np.zeros(len(problem.links))
        self._room = problem.sinks("capacity")
        self.arrived = np.zeros(problem.devices)

    def follow(self, t: int, plan: tuple[Movement, Flows] | None, row: int) -> None:
        """Carry out slot t by the shares of a row of a plan; None: alone."""
        problem, n = self._problem, self._problem.devices
        some = problem.links.between(t, t + 1)
        source, target = problem.links.source[some], problem.links.target[some]
        D = problem.data[t]
        keep, send = np.ones(n), np.zeros(source.size)
        if plan is not None:
            keep, send = _shares(*plan, row, source * n + target)
        want = send * D[source]
        sent = np.minimum(want, problem.link_capacity[some])
        inflow = np.bincount(target, sent, n)
        most = self._room[t + 1]
        over = inflow > most
        sent = sent * np.where(over, most / np.where(over, inflow, 1.0), 1.0)[target]
        refused = np.bincount(source, want - sent, n)
        worth = problem.process_cost[t] <= problem.discard_cost[t]
        free = np.maximum(problem.capacity[t] - self.arrived, 0.0)
        self._kept[t] = np.minimum(keep * D + np.where(worth, refused, 0.0), free)
        self._sent[some] = sent
        self.arrived = np.bincount(target, sent, n).astype(np.float64)

    def flows(self) -> Flows:
        """All that was carried out."""
        gone = self._kept + self._problem.departures(self._sent)
        discarded = np.maximum(self._problem.data - gone, 0.0)
        return Flows(kept=self._kept, sent=self._sent, discarded=discarded)


def _shares(
    belief: Movement,
    flows: Flows,
    row: int,
    pairs: Ints,
) -> tuple[Floats, Floats]:
    """Parts of the data that a plan keeps, and sends over each pair, in one slot.

    A device of which the plan expects no data keeps what it has.
    """
    D, n = belief.data[row], belief.devices
    whole = np.where(D > 0.0, D, 1.0)
    keep = np.where(D > 0.0, flows.kept[row] / whole, 1.0)
    some = belief.links.between(row, row + 1)
    planned = belief.links.source[some] * n + belief.links.target[some]
    share = flows.sent[some] / whole[belief.links.source[some]]
    if not planned.size:
        return keep, np.zeros(pairs.size)
    at = np.minimum(np.searchsorted(planned, pairs), planned.size - 1)
    return keep, np.where(planned[at] == pairs, share[at], 0.0)
