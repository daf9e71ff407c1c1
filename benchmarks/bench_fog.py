"""Moving data between devices: our solver beside HiGHS and Clarabel.

    python benchmarks/bench_fog.py                     10 to 1,000 devices, 100 slots
    python benchmarks/bench_fog.py --limit 5           peers stop after 5 s each
    python benchmarks/bench_fog.py --peers ''          ours alone
    python benchmarks/bench_fog.py --dense             ours alone, denser networks
    python benchmarks/bench_fog.py --paper             the paper's costs, ours
    python benchmarks/bench_fog.py --trace FILE.csv    a trace beside the models

HiGHS is the one in scipy (dual simplex, as it is the faster here) and solves the linear
error alone. Clarabel is called through cvxpy, where that can be imported. Both get the
arcs that are left after pruning, and no more time than the limit.

Networks: up to 200 devices everyone is linked to everyone, with the paper's costs and
capacities, drawn for each slot (``fog.settings``). 1,000 devices are a random graph of
10 links each on average; c_ij ~ U(0, 1/10) and C_ij ~ U(0, 4·max D/10), as 1/n would
leave links that carry a quarter of a sample. Linear: f(t) = 2/√t (``--discard``).
Convex: γ = 200, for which a device that pays ½ a sample would process 33, and f = 0.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from melisma.errors import SolverError
from melisma.fog import Flows, Links, Movement, check, cost, move, move_lp, traces
from melisma.fog.graph import graph_of
from melisma.fog.profiles import LTE, WIFI, Profile
from melisma.fog.settings import SETTINGS, draw, run
from melisma.fog.topologies import full, hierarchical, random_graph, social
from melisma.maths.statistics import mean_interval
from melisma.provenance import provenance

SIZES = [(10, 0), (50, 0), (100, 0), (200, 0), (1000, 10)]  #: degree 0: everyone
DENSE = [(1000, 20), (1000, 50)]
GAMMA = 200.0
SLOTS = 100
START_S = 30.0  #: that a peer's process may take to start and to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a solver reached."""

    seconds: float
    objective: float = np.nan
    gap: float = np.nan  #: proven by ``fog.bound``
    note: str = ""


def problem_of(
    devices: int, degree: int, kind: str, seed: int, discard: float
) -> Movement:
    """A movement of the benchmark."""
    rng = np.random.default_rng([seed, devices])
    samples = 60 * devices * SLOTS  # D up to 60, whatever n
    if degree:
        problem = sparse(devices, degree, rng, discard)
    else:
        problem = draw(
            rng,
            devices=devices,
            slots=SLOTS,
            samples=samples,
            discard=discard,
            steady=False,
            capacities=True,
        )
    if kind == "linear":
        return problem
    return replace(problem, gamma=np.array(GAMMA), discard_cost=np.array(0.0))


def sparse(
    devices: int, degree: int, rng: np.random.Generator, discard: float
) -> Movement:
    """A random graph with the paper's costs, n put for the number of neighbours."""
    shape = (SLOTS, devices)
    links = random_graph(devices, SLOTS, degree / (devices - 1), rng)
    data = np.round(rng.uniform(0.0, 60.0, shape))
    falls = discard / np.sqrt(np.arange(1.0, SLOTS + 1.0))
    return Movement(
        data=data,
        process_cost=rng.uniform(0.0, 1.0, shape),
        links=links,
        link_cost=rng.uniform(0.0, 1.0 / degree, len(links)),
        discard_cost=np.tile(falls[:, None], devices),
        capacity=rng.uniform(0.0, 4.0 * data.max(), shape),
        link_capacity=rng.uniform(0.0, 4.0 * data.max() / degree, len(links)),
    )


def ours(problem: Movement, repeats: int) -> Outcome:
    """The best time of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        plan = move(problem)
        seconds.append(time.perf_counter() - start)
    assert not check(problem, plan.flows)
    return Outcome(seconds=min(seconds), objective=plan.costs.total, gap=plan.gap)


def highs(problem: Movement, limit_s: float) -> Outcome:
    """The linear program on HiGHS."""
    start = time.perf_counter()
    try:
        plan = move_lp(problem, limit_s=limit_s)
    except SolverError:
        return Outcome(seconds=time.perf_counter() - start, note="stopped")
    seconds = time.perf_counter() - start
    assert not check(problem, plan.flows, tolerance=1e-6)
    return Outcome(seconds=seconds, objective=plan.costs.total, gap=plan.gap)


def clarabel(problem: Movement, limit_s: float) -> Outcome:
    """The same arcs as a cone program by cvxpy."""
    try:
        import cvxpy as cp
        from scipy.sparse import csr_array
    except ImportError:
        return Outcome(seconds=0.0, note="cvxpy is not installed")
    start = time.perf_counter()
    graph = graph_of(problem)
    a, m, k = graph.size
    ones, arcs = np.ones(a), np.arange(a)
    out = csr_array((ones, (graph.source, arcs)), shape=(m, a))
    into = csr_array((ones, (graph.sink, arcs)), shape=(k, a))
    x, load = cp.Variable(a), cp.Variable(k)
    left = problem.data.ravel()
    everything = float((problem.discard_cost.ravel() * left).sum())
    total = (graph.cost - graph.discard[graph.source]) @ x + everything
    at = graph.gamma > 0
    if at.any():
        loss = cp.power(load[np.flatnonzero(at)] + graph.idle[at], -0.5)
        idle = int((problem.gamma > 0).sum() - at.sum())  # devices nothing can reach
        total = total + graph.gamma[at] @ loss + GAMMA * idle
    limits = [x >= 0, x <= graph.most, out @ x <= graph.supply]
    task = cp.Problem(
        cp.Minimize(total), [*limits, into @ x == load, load <= graph.room]
    )
    try:
        task.solve(solver=cp.CLARABEL, time_limit=limit_s)
    except cp.SolverError:
        return Outcome(seconds=time.perf_counter() - start, note="stopped")
    note = "" if task.status == "optimal" else str(task.status)
    seconds = time.perf_counter() - start
    return Outcome(seconds=seconds, objective=float(task.value), note=note)


Peer = Callable[[Movement, float], Outcome]
PEERS: dict[str, Peer] = {"highs": highs, "clarabel": clarabel}


def _answer(pipe: Connection, peer: str, problem: Movement, limit_s: float) -> None:
    pipe.send(PEERS[peer](problem, limit_s))


def run_peer(peer: str, problem: Movement, limit_s: float) -> Outcome:
    """Run a peer in a process of its own, which ends a little after its limit."""
    context = get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=_answer, args=(there, peer, problem, limit_s))
    child.start()
    there.close()
    outcome = Outcome(seconds=limit_s, note="stopped")
    try:
        if here.poll(limit_s * 1.1 + START_S):
            outcome = here.recv()
    except EOFError:
        outcome = Outcome(seconds=limit_s, note="out of memory")
    child.kill()
    child.join()
    return outcome


def line(size: str, kind: str, solver: str, outcome: Outcome, best: float) -> str:
    """A row of the table; the last number is the cost relative to ours."""
    found = not np.isnan(outcome.objective)
    proven = "" if np.isnan(outcome.gap) else f"{outcome.gap:.1e}"
    more = f"{outcome.objective / best - 1:+.1e}" if found and solver != "ours" else ""
    return (
        f"{size:>20}  {kind:<7} {solver:<9}{outcome.seconds:>9.2f} s"
        + (f"{outcome.objective:>16.3f}" if found else f"{'':>16}")
        + f"{proven:>10}{more:>10}  {outcome.note}"
    )


def unit(problem: Movement, flows: Flows) -> list[float]:
    """Cost of processing, transfers and errors, and all, per sample collected."""
    parts = cost(problem, flows)
    all_ = float(problem.data.sum())
    each = [parts.process, parts.transfer, parts.error, parts.total]
    return [part / all_ for part in each]


def spread(rows: list[list[float]]) -> str:
    """Means of columns; of the last with its 95 % interval."""
    mean, half = mean_interval(rows)
    return "".join(f"{x:>9.3f}" for x in mean) + f" ± {half[-1]:.3f}"


def paper(seeds: int = 10) -> None:
    """Print Table III, what f does to it, and Figs. 5, 7 and 8, without training."""
    head = f"{'process':>9}{'transfer':>9}{'discard':>9}{'unit':>9}"
    for steady in (True, False):
        print(f"costs drawn {'once' if steady else 'for each slot'}\n{'':>14}{head}")
        for discard in (0.5, 1.0, 2.0, 5.0, 20.0):
            for name in SETTINGS:
                rows = []
                for seed in range(seeds):
                    rng = np.random.default_rng(seed)
                    rows.append(unit(*run(name, rng, discard=discard, steady=steady)))
                print(f"f = {discard:>4}/√t, {name} {spread(rows)}", flush=True)
    print(f"setting B by devices and density; offloaded\n{'':>14}{head}")
    for n, density in [(n, 1.0) for n in (5, 10, 20, 50)] + [
        (10, rho) for rho in (0.0, 0.1, 0.3, 0.5)
    ]:
        rows, moved = [], []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            problem = thinned(draw(rng, devices=n), density, rng)
            flows = move(problem).flows
            rows.append(unit(problem, flows))
            moved.append(float(flows.sent.sum() / problem.data.sum()))
        print(
            f"n = {n:>3}, ρ = {density}{spread(rows)}  {np.mean(moved):.0%}", flush=True
        )
    print(f"30 devices, f = 1\n{'':>20}{head}")
    for medium, profile in {"LTE": LTE, "WiFi": WIFI}.items():
        for topology in ("social", "hierarchical", "full"):
            rows = [on_medium(profile, topology, seed) for seed in range(seeds)]
            print(f"{medium:<5}{topology:<15}{spread(rows)}", flush=True)


def thinned(problem: Movement, density: float, rng: np.random.Generator) -> Movement:
    """The same with each link there for good with probability ``density``."""
    links, n = problem.links, problem.devices
    there = (rng.random(n * n) < density)[links.source * n + links.target]
    kept = Links(
        devices=n,
        slots=links.slots,
        slot=links.slot[there],
        source=links.source[there],
        target=links.target[there],
    )
    return replace(
        problem,
        links=kept,
        link_cost=problem.link_cost[there],
        link_capacity=problem.link_capacity[there],
    )


def on_medium(profile: Profile, topology: str, seed: int) -> list[float]:
    """Unit costs of 30 devices over WiFi or LTE."""
    n, rng = 30, np.random.default_rng(seed)
    process = profile.process_cost(n, SLOTS, rng)
    if topology == "full":
        links = full(n, SLOTS)
    elif topology == "social":
        links = social(n, SLOTS, rng)
    else:
        links = hierarchical(process.mean(axis=0), SLOTS, rng)
    problem = Movement(
        data=np.round(rng.uniform(0.0, 60.0, (SLOTS, n))),
        process_cost=process,
        links=links,
        link_cost=profile.link_cost(links, rng),
        discard_cost=np.array(1.0),
    )
    return unit(problem, move(problem).flows)


def describe(trace: traces.Trace) -> None:
    """Print what a trace's costs are like over slots, and what the models' are.

    Costs are in units of a sample on the slowest device in its median slot.
    """
    n, T, rng = trace.devices, trace.slots, np.random.default_rng(0)
    links, seconds = full(n, T), trace.process_s(T)
    unit_s = np.median(seconds, axis=0).max()
    rows = {"measured": (seconds / unit_s, trace.link_s(links) / unit_s)}
    for name, profile in (("model: WiFi", WIFI), ("model: LTE", LTE)):
        process = profile.process_cost(n, T, rng)
        rows[name] = process, profile.link_cost(links, rng)
    for note in trace.notes:
        print(note)
    print(f"{'':<24}{'mean':>8}{'spread':>8}{'autocorrelation':>17}")
    for name, (process, transfer) in rows.items():
        for what, costs in (("train", process), ("send", transfer.reshape(T, -1))):
            mean, spread, again = traces.series(costs)
            print(
                f"{f'{name}, {what}':<24}{mean:>8.3f}{spread:>8.2f}{again or 0:>17.2f}"
            )


def main(
    limit: Annotated[float, typer.Option(help="seconds for each peer")] = 120.0,
    peers: Annotated[str, typer.Option(help="highs,clarabel")] = "highs,clarabel",
    seed: Annotated[int, typer.Option(help="of the networks")] = 0,
    largest: Annotated[int, typer.Option(help="devices at most")] = 1000,
    smallest: Annotated[int, typer.Option(help="devices at least")] = 1,
    kinds: Annotated[str, typer.Option(help="linear,convex")] = "linear,convex",
    discard: Annotated[float, typer.Option(help="f(t)·√t, linear")] = 2.0,
    dense: Annotated[bool, typer.Option(help="denser networks, ours alone")] = False,
    costs: Annotated[bool, typer.Option("--paper", help="the paper's costs")] = False,
    trace: Annotated[Path | None, typer.Option(help="measured costs")] = None,
) -> None:
    """Print the table."""
    print(provenance(), flush=True)
    if trace:
        describe(traces.read(trace))
        return
    if costs:
        paper()
        return
    chosen = [peer for peer in peers.split(",") if peer and not dense]
    print(
        f"{'devices, arcs kept':>20}  {'error':<7} {'solver':<9}{'time':>11}"
        f"{'cost':>16}{'gap':>10}{'to ours':>10}"
    )
    for n, degree in DENSE if dense else SIZES:
        for kind in kinds.split(",") if smallest <= n <= largest else []:
            problem = problem_of(n, degree, kind, seed, discard)
            size = f"{n:,}, {graph_of(problem).cost.size:,}"
            mine = ours(problem, 3 if n <= 50 else 1)
            print(line(size, kind, "ours", mine, mine.objective), flush=True)
            for peer in chosen:
                if (peer, kind) != ("highs", "convex"):
                    outcome = run_peer(peer, problem, limit)
                    print(line(size, kind, peer, outcome, mine.objective), flush=True)


if __name__ == "__main__":
    typer.run(main)
