"""Exact allocators of other papers, from their descriptions, on tables of costs.

    OLAR       each task to the worker who would be done with it first (a heap)
               L. L. Pilla, "Optimal Task Assignment for Heterogeneous Federated
               Learning Devices", IPDPS 2021
    Fed-LBAP   the least threshold by which all tasks fit, by bisection over all costs
               C. Wang et al., "Optimize Scheduling of Federated Learning on
               Battery-powered Mobile Devices", IPDPS 2020
    (MC)²MKP   least total cost, whatever costs look like: dynamic programming
               L. L. Pilla, "Scheduling Algorithms for Federated Learning with Minimal
               Energy Consumption", TPDS 2023
    ECMTC      the same of what ends by a deadline
               A. L. Nunes et al., "Optimal Time and Energy-Aware Client Selection
               Algorithms for Federated Learning on Heterogeneous Resources",
               Euro-Par 2024

A table has a row for each worker: its cost of 0, 1, 2, … tasks. The dynamic program is
written with numpy, and some hundred times as fast as plain loops; `ecmtc_loops` has
these, as the authors' own program does, but on lists, which is faster than theirs.
"""

import heapq

import numpy as np

from melisma.maths.arrays import Floats, Ints


def olar(times: Floats, number: int) -> Ints:
    """Return an assignment that ends the soonest."""
    tasks = np.zeros(len(times), dtype=np.int64)
    heap = [(float(row[1]), k) for k, row in enumerate(times)]
    heapq.heapify(heap)
    for _ in range(number):
        _, k = heapq.heappop(heap)
        tasks[k] += 1
        if tasks[k] + 1 < times.shape[1]:
            heapq.heappush(heap, (float(times[k, tasks[k] + 1]), k))
    return tasks


def fed_lbap(times: Floats, number: int) -> Ints:
    """Return an assignment that ends the soonest."""
    thresholds = np.unique(times[:, 1:])
    low, high = 0, len(thresholds) - 1
    while low < high:
        middle = (low + high) // 2
        if _by(times, thresholds[middle]).sum() >= number:
            high = middle
        else:
            low = middle + 1
    tasks = _by(times, thresholds[low])
    ends = np.where(tasks > 0, times[np.arange(len(tasks)), tasks], -np.inf)
    for k in np.argsort(-ends, kind="stable")[: int(tasks.sum()) - number]:
        tasks[k] -= 1
    return tasks


def _by(times: Floats, threshold: float) -> Ints:
    """Tasks of each worker by a time, whose rows rise."""
    return np.array([np.searchsorted(row[1:], threshold, "right") for row in times])


def mc2mkp(costs: Floats, number: int) -> Ints:
    """Return an assignment of the least total cost; infinite costs are not allowed."""
    best = np.full(number + 1, np.inf)
    best[0] = 0.0
    chosen = np.zeros((len(costs), number + 1), dtype=np.int32)
    for k, row in enumerate(costs):
        after = best + row[0]
        for more in range(1, min(number, len(row) - 1) + 1):
            if np.isinf(row[more]):
                continue
            tried = best[: number + 1 - more] + row[more]
            better = np.flatnonzero(tried < after[more:]) + more
            after[better] = tried[better - more]
            chosen[k, better] = more
        best = after
    tasks, left = np.zeros(len(costs), dtype=np.int64), number
    for k in reversed(range(len(costs))):
        tasks[k] = chosen[k, left]
        left -= tasks[k]
    return tasks


def ecmtc(costs: Floats, times: Floats, deadline: float, number: int) -> Ints:
    """Return the assignment of the least total cost that ends by a deadline."""
    return mc2mkp(np.where(times <= deadline, costs, np.inf), number)


def ecmtc_loops(costs: Floats, times: Floats, deadline: float, number: int) -> Ints:
    """Return the same, and of these what ends the soonest, by loops in plain Python."""
    never = float("inf")
    energies, ends = [[0.0] + [never] * number, [0.0] + [never] * number]
    chosen = []
    for cost, time in zip(costs.tolist(), times.tolist(), strict=True):
        least, soonest = [never] * (number + 1), [never] * (number + 1)
        picks = [0] * (number + 1)
        for more in range(min(number, len(cost) - 1) + 1):
            if time[more] > deadline:
                continue
            own, own_end = cost[more], time[more]
            for total in range(more, number + 1):
                energy = energies[total - more] + own
                if energy > least[total]:
                    continue
                end = max(ends[total - more], own_end)
                if energy < least[total] or end < soonest[total]:
                    least[total], soonest[total] = energy, end
                    picks[total] = more
        energies, ends = least, soonest
        chosen.append(picks)
    tasks, left = np.zeros(len(costs), dtype=np.int64), number
    for k in reversed(range(len(costs))):
        tasks[k] = chosen[k][left]
        left -= int(tasks[k])
    return tasks
