"""Theorems 1 to 6 of the fog paper, each held against what it speaks of.

Descent, a simulated queue, the optimiser, a search, draws of costs; the formulas are
those of ``fog_theorems``, which says what was corrected.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.optimize import minimize

from melisma.fog import cost, move, settings, topologies
from melisma.maths import Floats, mean_interval

from .claims import Claim, Kind, at_most, exact, mean_of, near, of_kind
from .fog_theorems import (
    expected_violations,
    hierarchy,
    hierarchy_optimum,
    loss_bound,
    offloading_value,
    sampled_violations,
    unconstrained,
    waiting_capacity,
)
from .kit import Cells, Data, Spread, in_order

#: n, D, c, c_s + c_t and γ of Theorem 4: with much data, and with little.
MUCH, LITTLE = (6, 500.0, 0.8, 0.3, 40.0), (6, 3.0, 0.8, 0.3, 40.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoremsStudy:
    """Every number that the rows depend on."""

    seeds: int = 100
    slots: int = 60  #: of descent
    period: int = 6
    step: float = 0.5
    rate: float = 3.0  #: μ of the queue
    wait: float = 1.0  #: σ
    samples: int = 100_000  #: that pass through the queue
    devices: int = 400  #: of Theorems 5 and 6
    most: float = 240.0  #: capacities are even from 0 up to this
    data: float = 60.0  #: D
    draws: int = 100


def run_theorems(study: TheoremsStudy, spread: Spread = in_order) -> Data:
    """Measure what each theorem is about, seed by seed."""
    rows = spread(measured, [(study, seed) for seed in range(study.seeds)])
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def measured(todo: tuple[TheoremsStudy, int]) -> dict[str, float]:
    """One seed of everything."""
    study, seed = todo
    rng = np.random.default_rng([seed, 6])
    return {
        "loss": loss_of_bound(study, rng),
        "wait": waited(study, rng) / study.wait,
        "cheapest": cheapest_of_optimum(rng),
        **{
            f"hierarchy/{name}": hierarchy_of_optimum(case)
            for name, case in (("much", MUCH), ("little", LITTLE))
        },
        **offloading(study, rng),
    }


def loss_of_bound(study: TheoremsStudy, rng: np.random.Generator) -> float:
    """Theorem 1: largest loss of a device over its bound in federated descent.

    Devices have losses ½(w − a)ᵀH(w − a): ∇L_i − ∇L does not depend on w.
    """
    n, H = 4, rng.uniform(0.1, 1.0, 3)
    a = rng.normal(0.0, 0.3, (n, 3))
    best, beta = a.mean(axis=0), float(H.max())
    delta = np.linalg.norm(H * (a - best), axis=1)
    w, v = np.tile(rng.normal(0.0, 2.0, 3), (n, 1)), np.zeros(3)
    steepest, near_, rows = 0.0, np.inf, list[tuple[int, float, Floats]]()
    for t in range(1, study.slots + 1):
        if t % study.period == 1:
            v = w[0]
            near_ = min(near_, 1.0 / max(float(((v - best) ** 2).sum()), 1e-30))
        w, v = w - study.step * H * (w - a), v - study.step * H * (v - best)
        reach = np.vstack([w, v]) - best
        steepest = max(steepest, float(np.linalg.norm(H * reach, axis=1).max()))
        rows.append((t, near_, 0.5 * (H * (w - best) ** 2).sum(axis=1)))
        if t % study.period == 0:
            w = np.tile(w.mean(axis=0), (n, 1))
    return max(
        float(loss[i])
        / loss_bound(
            slot=t,
            period=study.period,
            step=study.step,
            lipschitz=steepest,
            smooth=beta,
            divergence=float(delta[i]),
            mean_divergence=float(delta.mean()),
            nearness=omega,
        )
        for t, omega, loss in rows
        for i in range(n)
    )


def waited(study: TheoremsStudy, rng: np.random.Generator) -> float:
    """Theorem 2: mean wait where samples come as often as it says (Lindley)."""
    between = 1.0 / waiting_capacity(study.rate, study.wait)
    steps = rng.exponential(1.0 / study.rate, study.samples) - between
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    # W after k samples is the walk less its least so far; the first tenth settles.
    waits = walk - np.minimum.accumulate(walk)
    return float(waits[study.samples // 10 :].mean())


def cheapest_of_optimum(rng: np.random.Generator) -> float:
    """Theorem 3: cost of the cheapest ways over that of the optimum."""
    problem = settings.draw(rng, devices=6, slots=8, samples=1_000)
    return cost(problem, unconstrained(problem)).total / move(problem).costs.total


def hierarchy_of_optimum(case: tuple[int, float, float, float, float]) -> float:
    """Theorem 4: cost of (13) and (14) over the least that a search finds."""
    n, D, c, server, gamma = case

    def total(r: float, s: float) -> float:
        here, there = max(1.0 - r - s, 1e-9) * D, max(s, 1e-9) * n * D
        errors = n * gamma / sqrt(here) + gamma / sqrt(there)
        return n * here * c + there * server + errors

    def of_rest(parts: Floats) -> float:
        """Sent is a share of what is not discarded: all shares will do."""
        r, sent = float(parts[0]), float(parts[1])
        return total(r, (1.0 - r) * sent)

    starts = [np.array([r, s]) for r in (0.0, 0.3, 0.8) for s in (0.1, 0.5)]
    found = [minimize(of_rest, start, bounds=[(0.0, 1.0)] * 2) for start in starts]
    least = min(float(one.fun) for one in found)
    return total(*hierarchy(*case)) / min(least, total(*hierarchy_optimum(*case)))


def offloading(study: TheoremsStudy, rng: np.random.Generator) -> dict[str, float]:
    """Theorems 5 and 6 on a scale-free network: formula over draws of costs."""
    n = study.devices
    links = topologies.scale_free(n, 1, rng)
    degree = np.bincount(links.source, minlength=n)
    costs = rng.random((study.draws, n))
    least = costs.copy()
    for source, target in zip(links.source, links.target, strict=True):
        np.minimum(least[:, source], costs[:, target], out=least[:, source])
    parts = np.bincount(degree) / n

    def below(x: float) -> float:
        return min(x / study.most, 1.0)

    number, _ = sampled_violations(
        n, links.source, links.target, study.data, below, rng, draws=study.draws
    )
    formula = expected_violations(degree, links.source, links.target, study.data, below)
    saved = offloading_value(parts.tolist(), 1.0)
    return {
        "saving": saved / float((costs - least).mean()),
        "violations": formula / number,
    }


ROWS = {
    "loss": ("1", "largest loss of a device, of its bound"),
    "wait": ("2", "mean wait in a simulated queue, of the one asked for"),
    "cheapest": ("3", "cost of the cheapest ways, of the optimum"),
    "hierarchy/much": ("4", "cost of (13) and (14), of the least, D = 500"),
    "hierarchy/little": ("4", "cost of (13) and (14), of the least, D = 3"),
    "saving": ("5", "saving by the formula, of that drawn"),
    "violations": ("6", "devices over capacity by the formula, of those drawn"),
}


def table_of_theorems(data: Data) -> Cells:
    """A row for each: how many times what it speaks of its number is."""
    rows = [["theorem", "measured", "ours"]]
    for name, (theorem, what) in ROWS.items():
        mean, half = mean_interval(data[name])
        rows.append([theorem, what, f"{float(mean):.4f} ± {float(half):.4f}"])
    return rows


def claims_of_theorems(data: Data) -> list[Claim]:
    """What each theorem says, as printed where that can be computed."""

    def row(name: str, **fields: object) -> Claim:
        theorem, what = ROWS[name]
        values = {
            "what": f"Theorem {theorem}: {what}",
            "printed": "1",
            "ours": mean_of(data[name]),
            "rule": near(1.0, 0.02, weaker=0.1),
            "unit": "times",
            **fields,
        }
        return Claim(**values)  # type: ignore[arg-type]

    largest = exact(float(data["loss"].max()))
    bound = row("loss", printed="≤ 1", ours=largest, rule=at_most(1.0))
    little = row(
        "hierarchy/little",
        why="(13) and (14) need more data than there are; all of it is then processed",
    )
    violations = row(
        "violations",
        why="the formula takes the mean load of devices of a degree for that of each",
    )
    return [
        # Corrected: the printed ε₀ lacks a ρ.
        *of_kind(Kind.OWN, [bound]),
        row("wait", rule=near(1.0, 0.05, weaker=0.2)),
        row("cheapest", rule=near(1.0, 1e-6)),
        row("hierarchy/much", rule=near(1.0, 1e-3)),
        little,
        row("saving"),
        violations,
    ]
