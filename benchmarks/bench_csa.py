"""Exact CSA beside the paper's own route: time, staleness and steps.

    python benchmarks/bench_csa.py                   20 to 10⁶ learners
    python benchmarks/bench_csa.py --learners 20     some; repeatable

Learners differ in clock (0.7 to 2.4 GHz) and distance (5 to 50 m); 3,000 samples a
head, 15 s. The bound-binding case gives nobody more than 3,300, which forces a window
of three levels or more. Beside ``csa`` and ``csa-strict``:

csa-relaxed     problem (8) by SLSQP with exact derivatives and two bounds, top and
                bottom, in place of all pairs: the fastest form that we found of it
(8) as printed  the same with |τₖ − τₗ| ≤ z for all pairs and numerical derivatives

The best of several runs counts, on one core: a second thread of BLAS helps nobody at
this size, and makes the solver up to 70 times slower where others use the cores.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from melisma.maths.apportion import nearest
from melisma.maths.arrays import Floats
from melisma.provenance import provenance
from melisma.schemes import SCHEMES, Scheme
from melisma.system import (
    CSA_WORKLOAD,
    Allocation,
    Channel,
    DelayLaw,
    Problem,
    max_staleness,
    mean_staleness,
)

SEED = 0
SIZES = (20, 100, 200, 1000, 10**5, 10**6)
BOUND_SIZES = (20, 1000, 10**6)
MOST = 3300  #: samples of a learner in the bound-binding case
RELAXED_LIMIT = 200  #: learners; SLSQP takes seconds there, and grows with K³
PRINTED_LIMIT = 20

BAR_S = 2.0  #: 10⁶ learners
BAR_RATIO = 100.0  #: times faster than the solver at K = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scheme on one problem."""

    learners: int
    case: str
    scheme: str
    seconds: float
    allocation: Allocation


def problem_of(learners: int) -> Problem:
    """The same learners for the same number of them."""
    rng = np.random.default_rng([SEED, learners])
    law = DelayLaw.from_channel(
        CSA_WORKLOAD,
        clock_hz=rng.uniform(0.7e9, 2.4e9, learners),
        rate_bps=Channel().rate_bps(rng.uniform(5.0, 50.0, learners)),
    )
    return Problem.of(law, samples=3000 * learners, deadline_s=15.0)


def printed(problem: Problem) -> Allocation:
    """Problem (8) with all pairs, over x = (z, τ, d·K/D), then rounded."""
    K, unit, T = (
        problem.learners,
        problem.samples / problem.learners,
        problem.deadline_s,
    )
    c2, c1 = problem.step_s * unit / T, problem.sample_s * unit / T
    room = 1.0 - problem.fixed_s / T
    first, second = np.array(list(combinations(range(K), 2))).T
    tau = (room - c1) / c2

    def width(x: Floats) -> float:
        return float(x[0])

    def apart(x: Floats) -> Floats:
        gap = x[1:][first] - x[1:][second]
        return np.concatenate([x[0] - gap, x[0] + gap])

    def busy(x: Floats) -> Floats:
        tau, d = x[1:].reshape(2, K)
        return np.append((c2 * tau + c1) * d - room, d.sum() - K)

    constraints: Any = [{"type": "ineq", "fun": apart}, {"type": "eq", "fun": busy}]
    answer = minimize(
        width,
        np.r_[np.ptp(tau), tau, np.ones(K)],
        method="SLSQP",
        bounds=[(0.0, None)] * (1 + K) + [(1.0 / unit, float(K))] * K,
        constraints=constraints,
        options={"maxiter": 200, "ftol": 1e-9},
    )
    assert answer.success, answer.message
    d = nearest(answer.x[1 + K :] * unit, problem.low, problem.high, problem.samples)
    return Allocation(samples=d, steps=problem.steps_within(d))


def best_s(run: Callable[[], Allocation], at_least_s: float) -> float:
    """Seconds of the fastest of three runs, or of as many as take ``at_least_s``."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < at_least_s:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measured(learners: int, case: str, scheme: str, at_least_s: float) -> Row:
    """Run one scheme on one problem."""
    problem = problem_of(learners)
    if case == "bounds":
        problem = replace(problem, most=MOST)
    function: Scheme = SCHEMES.get(scheme, printed)
    return Row(
        learners=learners,
        case=case,
        scheme=scheme,
        seconds=best_s(lambda: function(problem), at_least_s),
        allocation=function(problem),
    )


def rows_of(learners: int, case: str, at_least_s: float) -> list[Row]:
    """Every scheme that finishes on this problem in a few seconds."""
    schemes = ["csa", "csa-strict"]
    if learners <= RELAXED_LIMIT:
        schemes.append("csa-relaxed")
    if learners <= PRINTED_LIMIT and case == "free":
        schemes.append("(8) as printed")
    return [measured(learners, case, scheme, at_least_s) for scheme in schemes]


def line(row: Row, csa: Row) -> str:
    """A row of the table."""
    tau = row.allocation.steps
    return (
        f"{row.learners:>9,}  {row.case:<6}  {row.scheme:<14}"
        f"{row.seconds * 1e3:>12.3f} ms{row.seconds / csa.seconds:>10.1f} x"
        f"{max_staleness(tau):>7}{mean_staleness(tau):>8.3f}{tau.sum():>12,}"
    )


def verdict(claim: str, met: bool) -> str:
    """A line that says whether a bar is met."""
    return f"{'met   ' if met else 'MISSED'}  {claim}"


def main(
    learners: Annotated[list[int] | None, typer.Option(help="[20 … 1000000]")] = None,
    at_least: Annotated[float, typer.Option(help="Seconds of each, repeated.")] = 1.0,
) -> None:
    """Print the table and hold it against the bars."""
    print(provenance(), flush=True)
    threadpool_limits(1)
    print(
        f"{'learners':>9}  {'case':<6}  {'scheme':<14}{'time':>15}{'of csa':>12}"
        f"{'max':>7}{'mean':>8}{'Σ τ':>12}"
    )
    table: dict[tuple[int, str, str], Row] = {}
    cases = [(K, "free") for K in learners or SIZES]
    cases += [(K, "bounds") for K in learners or BOUND_SIZES]
    for K, case in cases:
        rows = rows_of(K, case, at_least)
        table |= {(K, case, row.scheme): row for row in rows}
        print(*(line(row, rows[0]) for row in rows), sep="\n")
    print()
    print(*verdicts(table), sep="\n")


def verdicts(table: dict[tuple[int, str, str], Row]) -> list[str]:
    """The bars: speed at 10⁶, speed and staleness beside the solver at K = 20.

    A bar of a size that was not measured is left out.
    """
    lines = []
    if large := table.get((10**6, "free", "csa")):
        claim = f"10⁶ learners under {BAR_S:g} s: {large.seconds:.3f} s"
        lines.append(verdict(claim, large.seconds < BAR_S))
    if small := table.get((20, "free", "csa")):
        for peer in ("csa-relaxed", "(8) as printed"):
            ratio = table[20, "free", peer].seconds / small.seconds
            claim = f"K = 20 {BAR_RATIO:g} times faster than {peer}: {ratio:.0f} times"
            lines.append(verdict(claim, ratio >= BAR_RATIO))
    staler = [
        key
        for key, row in table.items()
        if key[2] == "csa-relaxed"
        and max_staleness(row.allocation.steps)
        < max_staleness(table[*key[:2], "csa-strict"].allocation.steps)
    ]
    lines.append(verdict("csa-strict never staler than csa-relaxed", not staler))
    return lines


if __name__ == "__main__":
    typer.run(main)
