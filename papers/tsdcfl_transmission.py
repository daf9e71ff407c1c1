"""Fair transmission of the two-stage paper, section 4.3: queues, utility, fairness.

The paper proves no bound, prints no setting and no figure of its queues; the setting
here is ours.
"""

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from melisma.errors import SolverError
from melisma.maths import Floats
from melisma.transmission import (
    FADED,
    Decisions,
    Observed,
    Policy,
    Queues,
    Setting,
    Trace,
    greedy,
    lyapunov,
    simulate,
    transmission,
)

from .kit import Data, Spread, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class TransmissionStudy:
    """Every number the figures depend on. Workers 2 and 4 harvest little."""

    rate_mbps: tuple[float, ...] = (12.0, 10.0, 8.0, 6.0, 4.0, 2.0)
    harvest_j: tuple[float, ...] = (2.0, 0.6, 2.0, 0.6, 2.0, 2.0)
    shown: tuple[float, ...] = (1.0, 20.0, 200.0)  #: V whose queues are drawn
    weights: tuple[float, ...] = (1.0, 3.0, 10.0, 20.0, 30.0, 100.0, 200.0, 300.0)
    slots: int = 16_000
    settled: int = 12_000  #: slot from which means are taken
    drawn: int = 3_000  #: slots whose queues are drawn
    window: int = 50  #: slots of which the fullest is drawn
    seeds: int = 5

    def setting(self, utility_weight: float) -> Setting:
        """The cell with one V."""
        every = np.ones(len(self.rate_mbps))
        return Setting(
            rate_mbps=np.array(self.rate_mbps),
            arrival_mbit=6.0 * every,
            harvest_j=np.array(self.harvest_j),
            work_gcycles=1.0 * every,
            compute_gcycles=2.0 * every,
            power_w=1.0 * every,
            compute_j_per_gcycle=0.2 * every,
            server_gcycles_per_mbit=0.1 * every,
            server_gcycles=4.0,
            channels=2,
            utility_weight=utility_weight,
            fairness_per_mbit=every,
            energy_weight=10.0 * every,
        )


def best_utility(run: Trace, seed: int, tangents: int = 60) -> float:
    """A utility above that of every policy whose queues end as they began.

    All slots are known, and only means count: a linear program over airtime v, mean
    throughput x and utility u, with log₂ replaced by the least of its tangents.

        maximise Σ u   s.t.  u ≤ tangents(x),  x ≤ mean D,  x ≤ mean r·v,  v ≤ T,
        Σv ≤ T·L,  mean p·v ≤ mean E^H − δ·mean work,  Σ ξ·x ≤ F
    """
    setting, seen = run.setting, run.observed
    r = seen.rate_mbps[:, seed]
    (n, M), lam = r.shape, setting.fairness_per_mbit
    D = seen.arrival_mbit[:, seed].mean(axis=0)
    work_j = setting.compute_j_per_gcycle * seen.work_gcycles[:, seed].mean(axis=0)
    energy_s = (seen.harvest_j[:, seed].mean(axis=0) - work_j) / setting.power_w
    each, none = sparse.identity(M), sparse.csr_array((M, M))
    mean = sparse.kron(np.full((1, n), 1 / n), each)
    at = np.linspace(np.zeros(M), D, tangents)  # tangents × workers
    slope = lam / (1 + lam * at) / log(2)
    rows: list[list[Any]] = [
        [sparse.kron(sparse.identity(n), np.ones((1, M))), None, None],
        [-mean.multiply(r.reshape(1, -1)), each, none],
        [mean, none, none],
        [None, setting.server_gcycles_per_mbit.reshape(1, -1), np.zeros((1, M))],
        *([None, -sparse.diags_array(steep), each] for steep in slope),
    ]
    limits = [
        np.full(n, setting.slot_s * setting.channels),
        np.zeros(M),
        energy_s,
        [setting.server_gcycles],
        (np.log2(1 + lam * at) - slope * at).ravel(),
    ]
    matrix: Any = sparse.block_array(rows, format="csr")
    found = linprog(
        np.concatenate([np.zeros(n * M + M), -np.ones(M)]),
        A_ub=matrix,
        b_ub=np.concatenate(limits),
        bounds=[(0, setting.slot_s)] * (n * M) + [(0, d) for d in D] + [(0, None)] * M,
    )
    if found.status != 0 or found.fun is None:
        raise SolverError(f"the best utility was not found: {found.message}")
    return float(-found.fun)


def printed(setting: Setting, queues: Queues, observed: Observed) -> Decisions:
    """P4 to P7 as the paper prints them: min E·stored stores nothing."""
    done = lyapunov(setting, queues, observed)
    V, H = setting.utility_weight, queues.fairness_mbit
    with np.errstate(divide="ignore"):
        y = np.clip((V / H - 1) / log(2), 0.0, observed.arrival_mbit)
    f = np.zeros_like(done.computed_gcycles)  # the paper has no rule for it
    worker = setting.server_gcycles_per_mbit * queues.work_gcycles
    gain = (
        queues.battery_j * setting.power_w
        + (queues.data_mbit - worker) * observed.rate_mbps
    )
    v = transmission(setting, queues, observed, f, gain)
    return replace(
        done,
        auxiliary_mbit=np.where(V / log(2) <= H, 0.0, y),
        stored_j=np.zeros_like(done.stored_j),
        computed_gcycles=f,
        airtime_s=v,
        sent_mbit=np.minimum(queues.data_mbit, observed.rate_mbps * v),
    )


POLICIES: dict[str, Policy] = {
    "lyapunov": lyapunov,
    "greedy": greedy,
    "printed": printed,
}


def most_server_gcycles(setting: Setting) -> float:
    """Bound on R_s: beyond the first part nobody sends, the second is one slot's."""
    xi, r = setting.server_gcycles_per_mbit, setting.rate_mbps
    energy = setting.energy_weight * setting.harvest_j * setting.power_w / (FADED * r)
    stops = (setting.most_data_mbit + energy) / xi
    sending = min(setting.channels, setting.workers) * setting.slot_s
    return float(stops.max() + sending * (xi * r).max())


def reached(run: Trace, settled: int) -> Data:
    """What a policy came to: means once it has settled, extremes of the whole run."""
    late, queues, setting = run.since(settled), run.queues, run.setting
    airtime = late.done.airtime_s
    share = airtime * late.observed.rate_mbps / setting.rate_mbps
    total = airtime.sum(axis=(0, 1))
    middle = run.since(settled // 2).queues.work_gcycles[: settled // 2]
    return {
        "throughput": late.throughput_mbit,  # seeds × workers, per slot
        "utility": late.utility,
        # Of a worker's greatest rate, mean over its airtime.
        "rate share": share.sum(axis=(0, 1)) / np.where(total > 0, total, np.nan),
        "airtime": airtime.sum(axis=2).mean(axis=0),
        "backlog": run.largest_backlog_mbit,
        "work": queues.work_gcycles.max(axis=(0, 2)),
        "work grows": late.queues.work_gcycles.mean(axis=(0, 2))
        / middle.mean(axis=(0, 2)),
        "least battery": queues.battery_j.min(axis=(0, 2)),
        # The fullest that each queue was, over its bound.
        "over/data": (queues.data_mbit / setting.most_data_mbit).max(axis=(0, 2)),
        "over/fairness": (queues.fairness_mbit / setting.most_fairness_mbit).max(
            axis=(0, 2)
        ),
        "over/battery": (queues.battery_j / setting.most_battery_j).max(axis=(0, 2)),
        "over/server": queues.server_gcycles.max(axis=(0, 2))
        / most_server_gcycles(setting),
    }


def traced(run: Trace, slots: int, window: int) -> Data:
    """The fullest queue of any worker in each window, windows × seeds."""
    queues, setting = run.queues, run.setting

    def fullest(queue: Floats) -> Floats:
        peaks = queue[:slots].max(axis=2)
        pooled: Floats = peaks.reshape(slots // window, window, -1).max(axis=1)
        return pooled

    return {
        "trace/data": fullest(queues.data_mbit),
        "trace/fairness": fullest(queues.fairness_mbit),
        "trace/battery": fullest(queues.battery_j / setting.most_battery_j),
        "trace/work": fullest(queues.work_gcycles),
        "trace/server": fullest(queues.server_gcycles),
    }


def policy_of(todo: tuple[TransmissionStudy, float, str]) -> Data:
    """Simulate one policy, with one V."""
    study, V, policy = todo
    run = simulate(study.setting(V), study.slots, range(study.seeds), POLICIES[policy])
    found = reached(run, study.settled)
    if policy == "lyapunov":
        found["most/data"] = np.array(run.setting.most_data_mbit.max())
        found["most/fairness"] = np.array(run.setting.most_fairness_mbit.max())
        found["most/battery"] = np.array(1.0)
        found |= traced(run, study.drawn, study.window)
    return found


def best_of(todo: tuple[TransmissionStudy, int]) -> float:
    """The bound in hindsight of one seed; what slots bring is the same for each V."""
    study, seed = todo
    run = simulate(study.setting(1.0), study.slots, [seed], greedy)
    return best_utility(run.since(study.settled), 0)


def run_transmission(study: TransmissionStudy, spread: Spread = in_order) -> Data:
    """Simulate every V, the other policies once, and bound them in hindsight."""
    most = study.weights[-1]
    todo = [(study, V, "lyapunov") for V in study.weights]
    todo += [(study, most, policy) for policy in ("greedy", "printed")]
    *fair, greedy, printed = spread(policy_of, todo)
    data: Data = {
        name: np.array([one[name] for one in fair]) for name in fair[0]
    }  # V on the first axis
    data |= {f"greedy/{name}": value for name, value in greedy.items()}
    data |= {f"printed/{name}": value for name, value in printed.items()}
    data["V"], data["shown"] = np.array(study.weights), np.array(study.shown)
    data["slot"] = np.arange(study.window, study.drawn + 1.0, study.window)
    data["rate"] = np.array(study.rate_mbps)
    data["best"] = np.array(
        spread(best_of, [(study, seed) for seed in range(study.seeds)])
    )
    return data


def at(data: Data, name: str, V: float) -> Floats:
    """What came of one V."""
    found: Floats = data[name][data["V"].tolist().index(V)]
    return found
