r"""Options of many learners: `csa_options` alone, and beside HiGHS on one window.

    python benchmarks/bench_options.py            some minutes
    python benchmarks/bench_options.py --quick    the smallest alone

Learners of 600 to 2,200 samples/s behind links of 1 to 30 MB/s, 3,000 samples a head,
15 s; eight options: the model whole, halved or quartered in width, as it is or with 8
or 4 bits. Values are what options would have to be worth for a choice to be hard. With
coverage, each of three blocks is to have 0.3 of the samples. The value is beside csa's.

HiGHS is given the window of steps that ours found, as an integer program: one option
and number of steps for each learner, and samples. It has to come to the same value,
within our gap, or the benchmark fails. Seconds are the processor's.
"""

import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import diags_array, eye_array, hstack, kron

from melisma.provenance import provenance
from melisma.schemes.csa import csa
from melisma.schemes.csa_options import csa_options
from melisma.system import DelayLaw, Problem
from melisma.system.menu import Menu
from melisma.system.problem import MenuAllocation

out = Console(width=110)
COMPUTE = np.array([1.0, 1.02, 1.03, 0.27, 0.28, 0.08, 0.085, 0.09])
BYTES = np.array([1.0, 0.25, 0.13, 0.25, 0.07, 0.07, 0.02, 0.01])
VALUE = np.array([1.0, 0.97, 0.85, 0.28, 0.275, 0.083, 0.08, 0.07])
BLOCKS = np.repeat([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [3, 2, 3], 0)
COVERAGE = 0.3
#: Seconds after which HiGHS is stopped.
LIMIT_S = 60.0


def fleet(learners: int, seed: int = 0) -> tuple[Problem, Menu]:
    """Return learners with unlike clocks and links, and what they may choose from."""
    rng = np.random.default_rng([seed, learners])
    law = DelayLaw.from_rates(
        samples_per_s=rng.uniform(600, 2200, learners),
        bytes_per_s=np.exp(rng.uniform(np.log(1e6), np.log(3e7), learners)),
        sample_bytes=784,
        model_bytes=1.12e6,
    )
    options = DelayLaw(
        step_s=law.step_s[:, None] * COMPUTE,
        sample_s=np.repeat(law.sample_s[:, None], COMPUTE.size, axis=1),
        fixed_s=law.fixed_s[:, None] * BYTES,
    )
    value = VALUE * np.exp(0.1 * rng.standard_normal((learners, VALUE.size)))
    value[:, 0] = 1.0
    problem = Problem.of(law, samples=3000 * learners, deadline_s=15.0)
    return problem, Menu(law=options, value=value, blocks=BLOCKS)


def by_highs(problem: Problem, menu: Menu, a: int, b: int) -> float:
    """Return the value that HiGHS finds in a window of steps; nan: not in time."""
    K, D = problem.learners, problem.samples
    reach, slope = [], []
    for m in range(menu.options):
        law = menu.law_of(np.full(K, m))
        own = Problem.of(law, samples=D, deadline_s=problem.deadline_s)
        for tau in range(a, b + 1):
            reach.append(own.samples_within(tau))
            slope.append(menu.value[:, m] * tau)
    h, n = np.concatenate(reach), len(reach) * K
    one = kron(np.ones((1, len(reach))), eye_array(K))
    eye, low = eye_array(n), np.tile(problem.low, len(reach))
    answer = milp(
        np.concatenate([np.zeros(n), -np.concatenate(slope)]),
        integrality=np.ones(2 * n, dtype=np.int64),
        bounds=Bounds(0, np.concatenate([(h >= low).astype(float), h])),
        constraints=[
            LinearConstraint(hstack([one, 0 * one]), 1, 1),
            LinearConstraint(hstack([diags_array(-low.astype(np.float64)), eye]), lb=0),
            LinearConstraint(hstack([diags_array(-h.astype(np.float64)), eye]), ub=0),
            LinearConstraint(np.repeat([0.0, 1.0], n)[None], D, D),
        ],
        options={"mip_rel_gap": 0.0, "time_limit": LIMIT_S},
    )
    return -float(answer.fun) if answer.status == 0 else np.nan


def same(found: MenuAllocation, theirs: float) -> None:
    """Raise RuntimeError unless HiGHS has our value, within the gap."""
    low, high = found.value * (1 - 1e-6), found.bound * (1 + 1e-6)
    if not (np.isnan(theirs) or low <= theirs <= high):
        raise RuntimeError(f"ours is {found.value} to {found.bound}, HiGHS's {theirs}")


def row(learners: int, coverage: float, *, beside: bool) -> list[str]:
    """Return a row of the table: size, seconds, gap, and HiGHS's seconds."""
    problem, menu = fleet(learners)
    plain = csa(problem)
    began = time.process_time()
    found = csa_options(problem, menu, least_coverage=coverage)
    ours_s = time.process_time() - began
    ratio = found.value / float(plain.steps @ plain.samples)
    theirs = ""
    if beside:
        began = time.process_time()
        value = by_highs(problem, menu, int(found.steps.min()), int(found.steps.max()))
        same(found, value)
        spent = f"{time.process_time() - began:.3g}"
        theirs = f"not in {LIMIT_S:g}" if np.isnan(value) else spent
    gap = f"{found.gap:.1e}" if found.gap else "0, proven"
    cells = f"{coverage:g}", f"{ours_s:.3g}", gap, f"{ratio:.3f}", theirs
    return [f"{learners:,}", *cells]


def main(
    *,
    quick: Annotated[bool, typer.Option(help="The smallest alone.")] = False,
) -> None:
    """Print a table of times and gaps, and HiGHS's times."""
    out.print(provenance(), soft_wrap=True)
    table = Table(
        "learners × 8", "coverage", "ours (s)", "gap", "value / csa's", "HiGHS (s)"
    )
    for learners in [5] if quick else [10, 30, 100, 1000, 10_000, 100_000]:
        for coverage in (0.0, COVERAGE):
            beside = learners <= 100 and not coverage
            table.add_row(*row(learners, coverage, beside=beside))
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
