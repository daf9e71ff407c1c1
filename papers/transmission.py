"""Fair transmission: bounded queues, utility against backlog, log-utility and greedy.

    python papers/transmission.py   draws docs/papers/transmission_*.png

Paper: X. Wang et al., "Two-Stage Coded Federated Edge Learning: A Dynamic Partial
Gradient Coding Perspective", section 4.3. It proves no bound, prints no setting and no
figure of its queues; the setting here is ours.

Differences from the paper: those of ``melisma.coding.transmission``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse
from scipy.optimize import linprog

from melisma import plots
from melisma.coding.queues import Setting
from melisma.coding.slots import Run, jain, simulate
from melisma.coding.uploads import Uploads
from melisma.errors import SolverError
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval

FOLDER = Path(__file__).parents[1] / "docs" / "papers"
#: Okabe and Ito's, as in ``melisma.plots``.
BLUE, GREEN, ORANGE, PURPLE, GREY = (
    "#0072B2",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#777777",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every number the figures depend on. Workers 2 and 4 harvest little."""

    rate_mbps: tuple[float, ...] = (12.0, 10.0, 8.0, 6.0, 4.0, 2.0)
    harvest_j: tuple[float, ...] = (2.0, 0.6, 2.0, 0.6, 2.0, 2.0)
    shown: tuple[float, ...] = (1.0, 20.0, 200.0)  #: V whose queues are drawn
    weights: tuple[float, ...] = (1.0, 3.0, 10.0, 20.0, 30.0, 100.0, 200.0, 300.0)
    slots: int = 16_000
    settled: int = 12_000  #: slot from which means are taken
    drawn: int = 3_000  #: slots whose queues are drawn
    window: int = 50  #: slots of which the fullest is drawn
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

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
            energy_weight=10.0,
        )


def best_utility(run: Run, seed: int, tangents: int = 60) -> float:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The fullest queue of any worker in each window, windows × seeds; the bounds."""

    slot: Floats  #: at which a window ends

    data_mbit: Floats
    fairness_mbit: Floats
    battery: Floats  #: E / E_max
    work_gcycles: Floats
    server_gcycles: Floats
    most_data_mbit: float
    most_fairness_mbit: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """What one policy reaches once it has settled; over seeds."""

    throughput_mbit: Floats  #: seeds × workers, per slot
    utility: Floats
    rate_share: Floats  #: of a worker's greatest rate, mean over its airtime; workers
    airtime_s: float  #: of all workers, per slot
    backlog_mbit: Floats  #: the largest Q of the whole run
    work_gcycles: Floats  #: the largest R of the whole run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Data:
    """What the figures draw."""

    lyapunov: dict[float, Policy]  #: by V
    bound_mbit: dict[float, float]  #: Q_max by V
    traces: dict[float, Trace]  #: by V
    others: dict[str, Policy]
    best: Floats  #: the hindsight bound on utility, of each seed


def trace(run: Run, slots: int, window: int) -> Trace:
    """The fullest queues of the first slots."""
    queues, setting = run.queues, run.setting

    def fullest(queue: Floats) -> Floats:
        peaks = queue[:slots].max(axis=2)
        pooled: Floats = peaks.reshape(slots // window, window, -1).max(axis=1)
        return pooled

    return Trace(
        slot=np.arange(window, slots + 1, window, dtype=np.float64),
        data_mbit=fullest(queues.data_mbit),
        fairness_mbit=fullest(queues.fairness_mbit),
        battery=fullest(queues.battery_j / setting.most_battery_j),
        work_gcycles=fullest(queues.work_gcycles),
        server_gcycles=fullest(queues.server_gcycles),
        most_data_mbit=float(setting.most_data_mbit.max()),
        most_fairness_mbit=float(setting.most_fairness_mbit.max()),
    )


def reached(run: Run, settled: int) -> Policy:
    """What a run came to."""
    late = run.since(settled)
    airtime = late.done.airtime_s
    share = airtime * late.observed.rate_mbps / run.setting.rate_mbps
    total = airtime.sum(axis=(0, 1))
    return Policy(
        throughput_mbit=late.throughput_mbit,
        utility=late.utility,
        rate_share=share.sum(axis=(0, 1)) / np.where(total > 0, total, np.nan),
        airtime_s=float(airtime.sum(axis=2).mean()),
        backlog_mbit=run.largest_backlog_mbit,
        work_gcycles=run.queues.work_gcycles.max(axis=(0, 2)),
    )


def run(study: Study) -> Data:
    """Simulate every V, and the other policies once."""
    lyapunov, bound_mbit, traces = {}, {}, {}
    for V in study.weights:
        whole = simulate(study.setting(V), study.slots, study.seeds)
        lyapunov[V] = reached(whole, study.settled)
        bound_mbit[V] = float(whole.setting.most_data_mbit.max())
        if V in study.shown:
            traces[V] = trace(whole, study.drawn, study.window)
    late = whole.since(study.settled)  # what the slots bring is the same for each V
    best = [best_utility(late, seed) for seed in range(len(study.seeds))]
    others = {
        name: reached(
            simulate(whole.setting, study.slots, study.seeds, name), study.settled
        )
        for name in ("greedy", "printed")
    }
    return Data(
        lyapunov=lyapunov,
        bound_mbit=bound_mbit,
        traces=traces,
        others=others,
        best=np.array(best),
    )


def cycles(air: Uploads, settle: bool, seed: int, many: int = 300) -> list[float]:
    """Mean s to 8 of 10 gradients of 8 Mbit, least share and Jain's index of used."""
    rng, n = np.random.default_rng(seed), air.workers
    used, end_s = np.zeros(n), np.zeros(many)
    for cycle in range(many):
        rate_bps = np.linspace(12e6, 2e6, n) * rng.uniform(0.25, 1.0, n)
        plan = air.schedule(rng.uniform(0.0, 2.0, n), 8e6, rate_bps)
        end_s[cycle] = np.sort(plan.finish_s)[n - 3]
        used += plan.finish_s <= end_s[cycle]
        if settle:
            air.settle(plan, end_s[cycle])
    return [float(end_s.mean()), float(used.min() / many), float(jain(used))]


def first_turn(utility_weight: float) -> int:
    """The first cycle in which the slowest of four is among the first two."""
    air = Uploads(workers=4, channels=1, utility_weight=utility_weight)
    cycle, used = 0, False
    while not used:
        plan = air.schedule(0.0, 1.0, [8.0, 4.0, 2.0, 1.0])
        end_s = float(np.sort(plan.finish_s)[1])
        air.settle(plan, end_s)
        cycle, used = cycle + 1, bool(plan.finish_s[3] <= end_s)
    return cycle


def print_uploads(study: Study) -> None:
    """Print how long coded cycles wait for their uploads, and whose they use."""
    print(f"{'uploads':>24} {'8 of 10 (s)':>15} {'least used':>11} {'Jain':>6}")
    for name, channels, slot_s, settle in (
        ("owed", 2, inf, True),
        ("nothing owed", 2, inf, False),
        ("owed, 0.1 s", 2, 0.1, True),
        ("nothing owed, 0.1 s", 2, 0.1, False),
        ("a channel each", 10, inf, True),
    ):
        rows = []
        for seed in study.seeds:
            air = Uploads(workers=10, channels=channels, slot_s=slot_s)
            rows.append(cycles(air, settle, seed))
        (s, least, index), (half, _, _) = mean_interval(rows)
        print(f"{name:>24} {s:7.2f} ± {half:5.2f} {least:11.2f} {index:6.3f}")
    for V in (1.0, 10.0):
        print(f"rates 8, 4, 2, 1, V = {V:g}: first turn in cycle {first_turn(V)}")


def band(ax: Axes, x: Floats, values: Floats, colour: str, marker: str = "") -> None:
    """Draw the mean over the last axis as a line, the range as a band."""
    low, high = values.min(axis=-1), values.max(axis=-1)
    ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.plot(x, values.mean(axis=-1), color=colour, marker=marker, linewidth=1.2)


def name_end(ax: Axes, text: str, colour: str, height: float) -> None:
    """Write beside the right edge at a height; for axes of any scale."""
    ax.annotate(
        text,
        (1.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        annotation_clip=False,
    )


def queues_figure(drawing: Figure, traces: dict[float, Trace]) -> None:
    """Five panels over time: Q, H and E with their bounds dashed, R and R_s."""
    drawing.set_size_inches(10.2, 5.2)
    axes = drawing.subplots(2, 3, sharex=True).ravel()
    axes[5].remove()
    data, fairness, battery, work, server = axes[:5]
    ends: dict[Axes, list[tuple[str, str, float]]] = {battery: [], server: []}
    for (V, trace), colour in zip(traces.items(), (ORANGE, GREEN, BLUE), strict=True):
        for ax, values, most in (
            (data, trace.data_mbit, trace.most_data_mbit),
            (fairness, trace.fairness_mbit, trace.most_fairness_mbit),
            (battery, trace.battery, 1.0),
            (work, trace.work_gcycles, None),
            (server, trace.server_gcycles, None),
        ):
            band(ax, trace.slot, values, colour)
            if most is not None:
                ax.axhline(most, color=colour, linestyle="--", linewidth=1)
            name, height = f"V = {V:g}", float(values[-1].mean())
            if ax in ends:
                ends[ax].append((name, colour, height))
            else:
                name_end(ax, name, colour, height)
    data.set(title="Data Q", ylabel="fullest queue (Mbit)", yscale="log")
    fairness.set(title="Fairness H", ylabel="fullest queue (Mbit)", yscale="log")
    battery.set(title="Battery E", ylabel="fullest, share of its size")
    work.set(title="Work R", ylabel="fullest queue (Gcycles)", yscale="log")
    server.set(title="Server Rₛ", ylabel="work waiting (Gcycles)")
    server.set_ylim(bottom=0.0)
    battery.tick_params(labelbottom=True)  # nothing stands below it
    for ax in (battery, work, server):
        ax.set_xlabel("slot")
    for ax, texts in ends.items():
        plots.label_ends(ax, texts)


def tradeoff_figure(drawing: Figure, data: Data) -> None:
    """Three panels over V: utility, its distance from the best, the largest backlog."""
    drawing.set_size_inches(9.0, 3.0)
    V = np.array(list(data.lyapunov))
    utility = np.array([policy.utility for policy in data.lyapunov.values()])
    backlog = np.array([policy.backlog_mbit for policy in data.lyapunov.values()])
    bound = np.array(list(data.bound_mbit.values()))
    gap = data.best - utility
    left, middle, right = drawing.subplots(1, 3)
    band(left, V, utility, BLUE, "o")
    best, greedy = float(data.best.mean()), data.others["greedy"].utility
    left.axhline(best, color=GREY, linestyle="--", linewidth=1)
    left.axhline(float(greedy.mean()), color=ORANGE, linewidth=1)
    left.axhspan(greedy.min(), greedy.max(), color=ORANGE, alpha=0.25, linewidth=0)
    left.set(title="Utility", ylabel="Σ log₂(1 + λ·throughput)")
    plots.label_ends(
        left,
        [
            ("lyapunov", BLUE, float(utility[-1].mean())),
            ("hindsight", GREY, best),
            ("greedy", ORANGE, float(greedy.mean())),
        ],
    )
    band(middle, V, gap, BLUE, "o")
    line = gap[-1].mean() * V[-1] / V
    middle.plot(V[2:], line[2:], color=GREY, linestyle="--", linewidth=1)
    name_end(middle, "1/V", GREY, float(line[-1]) * 0.7)
    name_end(middle, "gap", BLUE, float(line[-1]) * 1.3)
    middle.set(title="Below hindsight", ylabel="utility missing", yscale="log")
    band(right, V, backlog, BLUE, "o")
    right.plot(V, bound, color=GREY, linestyle="--", linewidth=1)
    name_end(right, "bound", GREY, float(bound[-1]) * 1.05)
    name_end(right, "largest Q", BLUE, float(backlog[-1].mean()) / 1.15)
    right.set(title="Backlog", ylabel="largest queue (Mbit)", yscale="log")
    for ax in (left, middle, right):
        ax.set(xscale="log", xlabel="V (Mbit²)")


def fairness_figure(drawing: Figure, data: Data, rate_mbps: Floats) -> None:
    """Each worker's throughput under both policies, and Jain's index and utility."""
    drawing.set_size_inches(8.0, 3.2)
    each, index = drawing.subplots(1, 2, width_ratios=(2.2, 1))
    fair = list(data.lyapunov.values())[-1]
    policies = {"lyapunov": (fair, BLUE), "greedy": (data.others["greedy"], ORANGE)}
    workers = np.arange(1, rate_mbps.size + 1, dtype=np.float64)
    for place, (name, (policy, colour)) in enumerate(policies.items()):
        mean, half = mean_interval(policy.throughput_mbit)
        x = workers + 0.36 * (place - 0.5)
        each.bar(x, mean, 0.34, yerr=half, color=colour, label=name, capsize=2)
        mean, half = mean_interval(jain(policy.throughput_mbit))
        index.bar(place, float(mean), 0.6, yerr=float(half), color=colour, capsize=2)
        index.text(place, float(mean) + 0.03, f"{mean:.3f}", ha="center", color=colour)
    each.legend()
    each.set(title="Throughput", ylabel="Mbit per slot")
    ticks = [f"{m}\n≤ {r:g} Mbit/s" for m, r in enumerate(rate_mbps, start=1)]
    each.set_xticks(workers, ticks, fontsize=8)
    each.set_xlabel("worker (2 and 4 harvest little energy)")
    index.set(title="Jain's index", ylim=(0, 1.1), xticks=(0, 1))
    index.set_xticks((0, 1), list(policies))
    for ax in (each, index):
        ax.grid(axis="x", visible=False)


def main() -> None:
    """Print the tables and draw the figures."""
    study = Study()
    data = run(study)
    print(f"hindsight bound on utility: {data.best.mean():.3f}")
    print("    V  utility    gap  gap·V      Q  Q_max      R  airtime  rate share")
    for V, policy in data.lyapunov.items():
        gap = float((data.best - policy.utility).mean())
        print(
            f"{V:5g} {policy.utility.mean():8.3f} {gap:6.3f} {gap * V:6.2f} "
            f"{policy.backlog_mbit.max():6.1f} {data.bound_mbit[V]:6.1f} "
            f"{policy.work_gcycles.max():6.1f} {policy.airtime_s:8.2f} "
            f"{policy.rate_share.min():5.2f} to {policy.rate_share.max():.2f}"
        )
    print("        policy Mbit/slot  utility   Jain  worst  airtime  rate share")
    last = f"lyapunov V={study.weights[-1]:g}"
    rows = {last: data.lyapunov[study.weights[-1]], **data.others}
    for name, policy in rows.items():
        total = policy.throughput_mbit.sum(axis=1).mean()
        worst = policy.throughput_mbit.min(axis=1).mean()
        print(
            f"{name:>14} {total:9.2f} {policy.utility.mean():8.3f} "
            f"{jain(policy.throughput_mbit).mean():6.3f} {worst:6.3f} "
            f"{policy.airtime_s:8.2f} "
            f"{policy.rate_share.min():5.2f} to {policy.rate_share.max():.2f}"
        )
    print_uploads(study)
    FOLDER.mkdir(parents=True, exist_ok=True)
    rates = np.array(study.rate_mbps)
    pictures: dict[str, Callable[[Figure], None]] = {
        "queues": lambda drawing: queues_figure(drawing, data.traces),
        "tradeoff": lambda drawing: tradeoff_figure(drawing, data),
        "fairness": lambda drawing: fairness_figure(drawing, data, rates),
    }
    for name, draw in pictures.items():
        plots.save(FOLDER / f"transmission_{name}.png", draw)
        print(f"drawn: transmission_{name}.png")


if __name__ == "__main__":
    main()
