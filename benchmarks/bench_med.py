"""Several tasks, one budget: our solver beside HiGHS and CP-SAT.

    python benchmarks/bench_med.py                     sizes up to 10,000 × 20
    python benchmarks/bench_med.py --limit 5           peers stop after 5 s each
    python benchmarks/bench_med.py --peers ''          ours alone

HiGHS is the one in scipy. CP-SAT has an environment of its own, which ``make bench``
sets up, or ``make .venv-ortools/ready``; without it there are no rows of CP-SAT. A
budget is given in parts of what the best assignment without one costs; ours is the best
of five runs up to 50 learners.

Shown here on two cores of a shared Xeon, 60 s for each peer, seed 7:

                 budget  ours                       HiGHS           CP-SAT
    10 × 4       none    45.587 s, 0 %,    8 ms     45.835, 51 %    45.587, 60 %
    10 × 4       95 %    46.393 s, 0 %,    50 ms    46.393, 33 %    46.445, 65 %
    50 × 5       none    97.315 s, 0.54 %, 0.14 s   138.8, 84 %     102.8, 79 %
    50 × 5       85 %    104.09 s, 0.75 %, 0.37 s
    200 × 10     none    175.49 s, 0.59 %, 0.51 s   507.7, 96 %     273.1, 100 %
    200 × 10     85 %    189.64 s, 0.69 %, 1.5 s
    1,000 × 10   none    161.77 s, 0.51 %, 1.7 s    509.5, 96 %     446.3, 100 %
    1,000 × 10   85 %    173.18 s, 0.55 %, 6.0 s
    10,000 × 20  none    318.88 s, 0.67 %, 14 s     1004.8, 100 %   nothing
    10,000 × 20  85 %    340.96 s, 0.75 %, 54 s

Σz, the proven gap to the optimum, and time. More in ``docs/multitask.md``.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from peers.environments import python_of
from peers.med_instance import Outcome, problem_of, run_peer

from melisma.provenance import provenance
from melisma.schemes.multitask import solve
from melisma.system import MultiTaskProblem

SIZES = [(10, 3), (10, 4), (50, 5), (200, 10), (1000, 10), (10_000, 20)]
ENVIRONMENTS = {"highs": "", "cpsat": "ortools"}  #: "": this one
BUDGETS = [0.95, 0.85]  #: of what the best assignment without a budget costs


def ours(problem: MultiTaskProblem, repeats: int) -> tuple[Outcome, float]:
    """The best time of several runs, and the cost."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        solved = solve(problem)
        times.append(time.perf_counter() - start)
    assert not problem.violations(solved.assignment)
    outcome = Outcome(
        seconds=min(times), objective_s=solved.objective_s, bound_s=solved.bound_s
    )
    return outcome, problem.cost(solved.assignment)


def line(size: str, budget: str, solver: str, outcome: Outcome) -> str:
    """A row of the table."""
    found = outcome.objective_s < np.inf
    return (
        f"{size:>11}  {budget:<6}  {solver:<8}{outcome.seconds:>10.3f} s"
        + (f"{outcome.objective_s:>12.3f} s" if found else f"{'nothing':>14}")
        + (f"{outcome.gap:>10.2%}" if found else f"{'':>10}")
        + (f"  {outcome.note}" if outcome.note else "")
    )


def pythons_of(peers: Iterable[str]) -> dict[str, Path]:
    """Return the Python of each peer; say which are left out, and why."""
    pythons = {}
    for peer in peers:
        try:
            own = ENVIRONMENTS[peer]
            pythons[peer] = python_of(own) if own else Path(sys.executable)
        except FileNotFoundError as error:
            print(f"{peer} is left out: {error}")
    return pythons


def main(
    limit: Annotated[float, typer.Option(help="seconds for each peer")] = 60.0,
    seeds: Annotated[
        str, typer.Option(help="seeds, of which peers get the first")
    ] = "7",
    peers: Annotated[str, typer.Option(help="of highs,cpsat")] = "highs,cpsat",
    largest: Annotated[int, typer.Option(help="learners at most")] = 10_000,
    repeats: Annotated[int, typer.Option(help="runs of ours, up to 50 learners")] = 5,
    bound_to: Annotated[int, typer.Option(help="learners, peers with a budget")] = 200,
) -> None:
    """Print the table."""
    print(provenance(), flush=True)
    pythons = pythons_of(peer for peer in peers.split(",") if peer)
    first, *others = [int(seed) for seed in seeds.split(",")]
    print(
        f"{'learners':>11}  {'budget':<6}  {'solver':<8}{'time':>12}{'Σz':>14}"
        f"{'gap':>10}"
    )
    for n, m in [size for size in SIZES if size[0] <= largest]:
        size = f"{n:,} × {m}"
        for seed in (first, *others):
            free = problem_of(n, m, seed)
            runs = repeats if n <= 50 else 1
            outcome, cost = ours(free, runs)
            print(line(size, "none", "ours", outcome), flush=True)
            for peer, python in pythons.items() if seed == first else ():
                found = run_peer(python, f"med_{peer}", free, limit)
                print(line(size, "none", peer, found), flush=True)
            for part in BUDGETS:
                bound = replace(free, budget=part * cost)
                outcome, _ = ours(bound, runs)
                print(line(size, f"{part:.0%}", "ours", outcome), flush=True)
                if seed != first or n > bound_to:
                    continue
                for peer, python in pythons.items():
                    found = run_peer(python, f"med_{peer}", bound, limit)
                    print(line(size, f"{part:.0%}", peer, found), flush=True)


if __name__ == "__main__":
    typer.run(main)
