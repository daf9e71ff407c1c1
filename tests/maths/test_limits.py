"""Tasks to workers within several limits: against every way, and with a true bound."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from melisma.maths.arrays import Floats, Ints
from melisma.maths.charges import most_value
from melisma.maths.limits import Limits, least_within


class Workers:
    """Workers of a seed: costs or gains, ties, charges, limits that bind or do not."""

    def __init__(self, seed: int, workers: int, tasks: int) -> None:
        rng = np.random.default_rng([seed, workers])
        self.most = rng.integers(0, tasks, workers)
        self.least = rng.integers(1, 3, workers) if seed % 2 else np.ones(workers, int)
        sign = 1.0 if seed % 3 else -1.0
        self.cost = sign * self._numbers(rng, seed, workers)
        self.charge = self._numbers(rng, seed, workers) * (rng.random(workers) < 0.5)
        rows = 1 + seed % 3
        use = np.stack([self._numbers(rng, seed, workers) for _ in range(rows)])
        charge = np.stack([self._numbers(rng, seed, workers) for _ in range(rows)])
        whole = Limits(use, charge, np.zeros(rows)).used(self.most)
        at_most = whole * rng.uniform(0.2, 1.1, rows)
        at_most[rng.random(rows) < 0.2] = np.inf
        self.limits = Limits(use, charge, np.round(at_most))
        self.number = int(rng.integers(0, self.most.sum() + 1)) if sign > 0 else None

    def _numbers(self, rng: np.random.Generator, seed: int, size: int) -> Floats:
        numbers: Floats = rng.uniform(0, 3, size)
        return np.round(numbers) if seed % 5 == 0 else numbers

    def price(self, tasks: Ints) -> float:
        return float(self.cost @ tasks + self.charge @ (tasks > 0))

    def ways(self) -> list[Ints]:
        ranges = [
            [0, *range(low, high + 1)]
            for low, high in zip(self.least.tolist(), self.most.tolist(), strict=True)
        ]
        every = [np.array(way) for way in product(*ranges)]
        return [
            way
            for way in every
            if self.limits.allow(way) and self.number in (None, way.sum())
        ]


@pytest.mark.parametrize(
    "seed",
    [*range(15), *(pytest.param(n, marks=pytest.mark.slow) for n in range(15, 300))],
)
def test_no_other_way_costs_less(seed: int) -> None:
    w = Workers(seed, workers=2 + seed % 3, tasks=6)
    found = least_within(w.cost, w.charge, w.least, w.most, w.limits, w.number)
    ways = w.ways()
    if not ways:
        assert found is None
        return
    assert found is not None
    assert any((found.tasks == way).all() for way in ways)
    assert found.objective == pytest.approx(w.price(found.tasks))
    best = min(w.price(way) for way in ways)
    assert found.objective == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert found.bound <= best + 1e-9 * (1 + abs(best))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_many_workers_are_within_the_limits_and_near_the_bound(seed: int) -> None:
    w = Workers(3 * seed, workers=3_000, tasks=200)
    found = least_within(w.cost, 0 * w.charge, w.least, w.most, w.limits, w.number)
    assert found is not None
    assert w.limits.allow(found.tasks)
    working = found.tasks > 0
    assert (found.tasks <= w.most).all()
    assert (found.tasks >= w.least)[working].all()
    assert found.gap <= 1e-3 * abs(found.bound)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 6])
def test_with_one_limit_it_is_what_charges_find(seed: int) -> None:
    w = Workers(seed, workers=300, tasks=50)
    use, charge = w.limits.use[:1], w.limits.charge[:1]
    at_most = 0.4 * Limits(use, charge, np.zeros(1)).used(w.most)
    one = replace(w.limits, use=use, charge=charge, most=at_most)
    found = least_within(w.cost, 0 * w.charge, w.least, w.most, one)
    best = most_value(-w.cost, use[0], charge[0], w.least, w.most, float(at_most[0]))
    assert found is not None
    assert best.is_proven
    assert -found.objective <= best.objective * (1 + 1e-9)
    assert -found.objective == pytest.approx(best.objective, rel=1e-4)
    assert -found.bound >= best.objective * (1 - 1e-9)
