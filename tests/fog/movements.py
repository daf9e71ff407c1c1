"""Movements that the tests share, and their optimum straight from the definition."""

from dataclasses import replace

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_array

from melisma.fog import Links, Movement
from melisma.maths.arrays import Floats


def pair(**changes: object) -> Movement:
    """Two devices, two slots, 10 samples each in the first; 0 can send to 1.

    Processing costs 5 on device 0 and 1 on device 1, sending 1, discarding 3.
    """
    fields: dict[str, object] = {
        "data": np.array([[10.0, 10.0], [0.0, 0.0]]),
        "process_cost": np.array([[5.0, 1.0], [5.0, 1.0]]),
        "links": Links.always(2, 2, [0], [1]),
        "link_cost": np.array(1.0),
        "discard_cost": np.array(3.0),
    }
    return Movement(**{**fields, **changes})  # type: ignore[arg-type]


def some(seed: int, *, gamma: bool = False) -> Movement:
    """Up to 6 devices and slots, links that come and go, of every kind.

    Numbers are smooth, few (many ties), of many sizes, or often 0; capacities, too.
    """
    rng = np.random.default_rng(seed)
    n, T, kind = (int(rng.integers(1, most)) for most in (7, 7, 5))
    there = rng.random((T, n, n)) < rng.random()
    there[:, np.arange(n), np.arange(n)] = False
    slot, source, target = np.nonzero(there)

    def numbers(size: int | tuple[int, ...], high: float) -> Floats:
        smooth = rng.uniform(0.0, high, size)
        few = rng.integers(0, 4, size) * (high / 4.0)
        sizes = smooth * 10.0 ** rng.integers(-3, 3, size)
        often = np.where(rng.random(size) < 0.3, 0.0, smooth)
        return np.asarray([smooth, few, sizes, often][kind % 4])

    endless = rng.random((T, n)) < rng.choice([0.0, 0.5])
    free = rng.random() < 0.3
    return Movement(
        data=numbers((T, n), 30.0),
        process_cost=numbers((T, n), 1.0),
        links=Links(devices=n, slots=T, slot=slot, source=source, target=target),
        link_cost=numbers(slot.size, 0.3),
        discard_cost=numbers((T, n), 1.5),
        gamma=np.array(rng.choice([1.0, 10.0, 100.0]) if gamma else 0.0),
        capacity=np.where(endless, np.inf, numbers((T, n), 60.0)),
        link_capacity=np.array(np.inf) if free else numbers(slot.size, 20.0),
    )


def cramped(seed: int, *, gamma: bool = False, least: float = 1e-12) -> Movement:
    """``some``, but devices and links have room for ``least`` to 1 samples.

    All of them, half, or a tenth; in every order of size alike.
    """
    problem = some(seed, gamma=gamma)
    rng = np.random.default_rng([seed, 1])

    def narrowed(limit: Floats) -> Floats:
        narrow = rng.random(limit.shape) < rng.choice([0.1, 0.5, 1.0])
        return np.where(narrow, least ** rng.random(limit.shape), limit)

    return replace(
        problem,
        capacity=narrowed(problem.capacity),
        link_capacity=narrowed(problem.link_capacity),
    )


def disturbed(problem: Movement, seed: int) -> Movement:
    """The same devices in another order, in other units, every number rounded anew.

    Sums are taken in another order then, and no intermediate result has the same last
    digits: as on a CPU that rounds otherwise.
    """
    rng = np.random.default_rng([seed, 2])
    new = rng.permutation(problem.devices)
    samples, costs = rng.uniform(0.1, 10.0, 2)

    def rounded(array: Floats, unit: float) -> Floats:
        last = rng.integers(-1, 2, array.shape) * np.finfo(np.float64).eps
        return array * unit * (1.0 + last)

    old, links = np.argsort(new), problem.links
    source, target = new[links.source], new[links.target]
    order = np.lexsort((target, source, links.slot))
    return Movement(
        data=rounded(problem.data[:, old], samples),
        process_cost=rounded(problem.process_cost[:, old], costs),
        links=replace(links, source=source[order], target=target[order]),
        link_cost=rounded(problem.link_cost[order], costs),
        discard_cost=rounded(problem.discard_cost[:, old], costs),
        gamma=rounded(problem.gamma[:, old], costs * samples**1.5),
        idle_samples=rounded(problem.idle_samples[:, old], samples),
        capacity=rounded(problem.capacity[:, old], samples),
        link_capacity=rounded(problem.link_capacity[order], samples),
    )


def optimum(problem: Movement) -> float:
    """Least cost, every way of every sample being a variable; γ by tangents.

    With γ the tangents are added until the program below them and the cost of its
    answer are equal: an answer from below.
    """
    T, n, links = problem.slots, problem.devices, problem.links
    arcs = len(links)
    kept, lost, total = arcs, arcs + T * n, arcs + 2 * T * n + T * n
    cost = np.zeros(total)  # sent, kept, discarded, error of each device
    rows = lil_array((T * n, total))
    load = lil_array(((T + 1) * n, total))
    last = np.vstack([problem.process_cost, problem.process_cost[-1:]])
    room = np.vstack([problem.capacity, problem.capacity[-1:]]).ravel()
    for e in range(arcs):
        t, i, j = int(links.slot[e]), int(links.source[e]), int(links.target[e])
        cost[e] = problem.link_cost[e] + last[t + 1, j]
        rows[t * n + i, e] = 1.0
        load[(t + 1) * n + j, e] = 1.0
    for k in range(T * n):
        cost[kept + k] = problem.process_cost.ravel()[k]
        cost[lost + k] = problem.discard_cost.ravel()[k]
        cost[lost + T * n + k] = 1.0
        rows[k, kept + k] = rows[k, lost + k] = load[k, kept + k] = 1.0
    limited = np.isfinite(room)
    A, b = load.toarray()[limited], room[limited]
    most = np.append(problem.link_capacity, np.full(total - arcs, np.inf))
    bounds = [(0.0, float(high)) for high in most]
    gamma, idle = problem.gamma.ravel(), problem.idle_samples.ravel()
    loads = load.toarray()[: T * n]
    while True:
        answer = linprog(
            cost,
            A_ub=A if A.size else None,
            b_ub=b if A.size else None,
            A_eq=rows.toarray(),
            b_eq=problem.data.ravel(),
            bounds=bounds,
        )
        assert answer.x is not None, answer.message
        assert answer.fun is not None
        G = loads @ answer.x + idle
        true = gamma / np.sqrt(G)
        below = answer.x[lost + T * n :]
        if (true - below).sum() <= 1e-7 * (1.0 + answer.fun):
            return float(answer.fun)
        # e ≥ φ(G) + φ′(G)·(load + g₀ − G)
        slope = -0.5 * gamma * G**-1.5
        cut = slope[:, None] * loads
        cut[:, lost + T * n :] -= np.eye(T * n)
        A = np.vstack([A, cut]) if A.size else cut
        b = np.append(b, slope * (G - idle) - true)
