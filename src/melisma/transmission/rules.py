"""Fair transmission: who sends for how long in a slot, knowing nothing of the next.

    maximise    Σₘ log₂(1 + λₘ d̄ₘ)                        d̄: mean data admitted per slot
    subject to  0 ≤ vₘ ≤ T,  Σₘ vₘ ≤ T·L                   (channels)
                0 ≤ dₘ ≤ Dₘ                                (arrivals)
                p·vₘ + δ·fₘ ≤ Eₘ,  0 ≤ stored ≤ E^Hₘ       (battery)
                queues Q, R, R_s stay bounded              (stability)

Each slot minimises a bound on the growth of

    ½ Σₘ [ Hₘ² + Qₘ² + βₘ(Eₘ − θₘ)² + Rₘ² ] + ½ R_s²    less    V·Σₘ log₂(1 + λₘ yₘ)

which falls apart into five decisions, each with a closed form. H is a virtual queue
that makes the mean of d follow that of the auxiliary y. Backlog grows like V, and the
utility's distance from the best shrinks like 1/V.

Paper: X. Wang et al., "Two-Stage Coded Federated Edge Learning: A Dynamic Partial
Gradient Coding Perspective", section 4.3.

Differences from the paper:
1. y = V/(H ln 2) − 1/λ, up to D_max; printed are 1/ln 2, which does not maximise
   log₂(1 + λy), and the slot's arrival as the bound.
2. The battery enters as E − θ. As printed (E²) nothing is ever stored and nothing sent.
3. The weight of sending holds the server's queue R_s; P7 prints the worker's own R,
   and energy with the sign that rewards spending it.
4. Computing has a rule of its own; the paper has none. Work arrives at R; (12) only
   drains it.
5. f is min(f_max, R, E/δ), the exact minimiser: all that the battery affords, where it
   does not afford all.
"""

from dataclasses import replace
from math import log

import numpy as np

from melisma.maths.arrays import Floats
from melisma.transmission.queues import Decisions, Observed, Queues, Setting


def auxiliary(setting: Setting, queues: Queues) -> Floats:
    """y, Mbit: the most of V·log₂(1 + λy) − H·y in [0, D_max]."""
    V, lam = setting.utility_weight, setting.fairness_per_mbit
    return asked(V, lam, queues.fairness_mbit, setting.arrival_mbit)


def asked(V: float, lam: Floats | float, H: Floats, most: Floats | float) -> Floats:
    """Where V·log₂(1 + λy) − H·y is largest in [0, most].

    >>> asked(1.0, 1.0, np.array([0.0, 1.0, 9.0]), 6.0).round(3).tolist()
    [6.0, 0.443, 0.0]
    """
    with np.errstate(divide="ignore", over="ignore"):  # H = 0: as much as may come
        y: Floats = np.clip(V / (H * log(2)) - 1 / lam, 0.0, most)
    return y


def admission(queues: Queues, observed: Observed) -> Floats:
    """d, Mbit: the least of (Q − H)·d in [0, D]."""
    room = queues.data_mbit < queues.fairness_mbit
    return np.where(room, observed.arrival_mbit, 0.0)


def storage(setting: Setting, queues: Queues, observed: Observed) -> Floats:
    """J to store: the least of (E − θ)·stored in [0, E^H]."""
    return np.where(queues.battery_j < setting.target_j, observed.harvest_j, 0.0)


def computing(setting: Setting, queues: Queues) -> Floats:
    """f, Gcycles: the least of (β(θ − E)δ − R)·f that the battery affords."""
    R, E, delta = queues.work_gcycles, queues.battery_j, setting.compute_j_per_gcycle
    price = setting.energy_weight * (setting.target_j - E) * delta
    return np.where(price < R, affordable(setting, queues), 0.0)


def affordable(setting: Setting, queues: Queues) -> Floats:
    """Gcycles that can be computed in the slot: min(f_max, R, E/δ)."""
    delta = setting.compute_j_per_gcycle
    most = np.minimum(setting.compute_gcycles, queues.work_gcycles)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(most * delta > queues.battery_j, queues.battery_j / delta, most)


def weight(setting: Setting, queues: Queues, observed: Observed) -> Floats:
    """What a second of sending takes off the bound: r(Q − ξR_s) + β(E − θ)p."""
    saved = queues.data_mbit - setting.server_gcycles_per_mbit * queues.server_gcycles
    spare = setting.energy_weight * (queues.battery_j - setting.target_j)
    gain: Floats = observed.rate_mbps * saved + spare * setting.power_w
    return gain


def transmission(
    setting: Setting,
    queues: Queues,
    observed: Observed,
    computed_gcycles: Floats,
    weight: Floats,
) -> Floats:
    """v, s: the most of Σ weight·v with v ≤ min(T, Q/r, (E − fδ)/p), Σv ≤ T·L."""
    T, r = setting.slot_s, observed.rate_mbps
    left_j = queues.battery_j - computed_gcycles * setting.compute_j_per_gcycle
    emptied_s = np.zeros(np.broadcast_shapes(r.shape, left_j.shape))
    np.divide(queues.data_mbit, r, out=emptied_s, where=r > 0)
    most_s = np.minimum(
        np.minimum(T, emptied_s), np.maximum(left_j, 0) / setting.power_w
    )
    return knapsack(weight, most_s, T * setting.channels)


def knapsack(weight: Floats, most: Floats, total: float) -> Floats:
    """The largest Σ weight·v with 0 ≤ v ≤ most, Σv ≤ total: the heaviest first.

    >>> knapsack(np.array([2.0, -1.0, 3.0]), np.array([0.5, 1.0, 0.75]), 1.0).tolist()
    [0.25, 0.0, 0.75]
    """
    most = np.where(weight > 0, most, 0.0)
    order = np.argsort(-weight, axis=-1, kind="stable")
    sizes = np.take_along_axis(most, order, axis=-1)
    before = np.cumsum(sizes, axis=-1) - sizes
    taken = np.clip(total - before, 0.0, sizes)
    v = np.empty_like(most)
    np.put_along_axis(v, order, taken, axis=-1)
    return v


def lyapunov(setting: Setting, queues: Queues, observed: Observed) -> Decisions:
    """All decisions of a slot."""
    f = computing(setting, queues)
    gain = weight(setting, queues, observed)
    v = transmission(setting, queues, observed, f, gain)
    return Decisions(
        auxiliary_mbit=auxiliary(setting, queues),
        admitted_mbit=admission(queues, observed),
        stored_j=storage(setting, queues, observed),
        computed_gcycles=f,
        airtime_s=v,
        sent_mbit=np.minimum(queues.data_mbit, observed.rate_mbps * v),
    )


def after(
    setting: Setting, queues: Queues, observed: Observed, done: Decisions
) -> Queues:
    """The queues at the end of a slot in which this was done."""
    p, delta = setting.power_w, setting.compute_j_per_gcycle
    spent_j = p * done.airtime_s + delta * done.computed_gcycles
    received = (done.sent_mbit * setting.server_gcycles_per_mbit).sum(-1, keepdims=True)
    served = np.maximum(queues.server_gcycles - setting.server_gcycles, 0.0)
    worked = np.maximum(queues.work_gcycles - done.computed_gcycles, 0.0)
    asked = queues.fairness_mbit + done.auxiliary_mbit
    return replace(
        queues,
        data_mbit=queues.data_mbit + done.admitted_mbit - done.sent_mbit,
        fairness_mbit=np.maximum(asked - done.admitted_mbit, 0.0),
        # No decision spends more than E; a difference of equals may round below 0.
        battery_j=np.maximum(queues.battery_j - spent_j, 0.0) + done.stored_j,
        work_gcycles=worked + observed.work_gcycles,
        server_gcycles=served + received,
    )


def step(
    setting: Setting, queues: Queues, observed: Observed
) -> tuple[Queues, Decisions]:
    """Decide for one slot, and let it pass."""
    done = lyapunov(setting, queues, observed)
    return after(setting, queues, observed, done), done
