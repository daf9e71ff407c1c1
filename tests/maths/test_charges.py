"""Tasks to workers that cost something to start: every way, and a general solver."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from melisma.errors import InfeasibleError
from melisma.maths import charges
from melisma.maths.arrays import Floats, Ints
from melisma.maths.charges import Certified, least_cost, most_value


class Workers:
    """Workers of a seed: with and without charges, least tasks, ties and values."""

    def __init__(self, seed: int, workers: int, tasks: int) -> None:
        rng = np.random.default_rng([seed, workers])
        self.most = rng.integers(0, tasks, workers)
        self.least = (
            rng.integers(1, 4, workers) if seed % 2 else np.ones_like(self.most)
        )
        self.cost = rng.uniform(0, 3, workers)
        self.charge = rng.uniform(0, 2.5 * tasks / 3, workers)
        self.charge *= rng.random(workers) < rng.choice([0.0, 0.5, 1.0])
        self.value = np.ones(workers)
        if seed % 3 == 0:
            self.value = rng.integers(0, 6, workers).astype(np.float64)
        elif seed % 3 == 1:
            self.value = rng.uniform(0, 3, workers)
        self.number = int(rng.integers(0, self.most.sum() + 1))
        self.budget = float(rng.uniform(0, 0.8) * self.price(self.most))
        if seed % 5 == 0:  # ties
            self.cost, self.charge = np.round(self.cost), np.round(self.charge)
            self.budget = float(np.round(self.budget))

    def price(self, tasks: Ints) -> float:
        return float(self.cost @ tasks + self.charge @ (tasks > 0))

    def may(self, tasks: Ints) -> bool:
        bounded = (tasks >= self.least) & (tasks <= self.most)
        return bool((bounded | (tasks == 0)).all())

    def cheapest(self) -> Certified:
        return least_cost(self.cost, self.charge, self.least, self.most, self.number)

    def best(self) -> Certified:
        return most_value(
            self.value, self.cost, self.charge, self.least, self.most, self.budget
        )

    def ways(self) -> list[Ints]:
        ranges = [
            [0, *range(low, high + 1)]
            for low, high in zip(self.least.tolist(), self.most.tolist(), strict=True)
        ]
        return [np.array(way) for way in product(*ranges)]


@pytest.mark.parametrize("seed", range(400))
def test_no_other_way_is_better(seed: int) -> None:
    w = Workers(seed, workers=1 + seed % 4, tasks=6)
    ways = w.ways()
    in_budget = [way for way in ways if w.price(way) <= w.budget]
    found = w.best()
    assert w.may(found.tasks)
    assert w.price(found.tasks) <= w.budget
    assert found.is_proven
    assert found.objective == pytest.approx(float(w.value @ found.tasks))
    assert found.objective == pytest.approx(max(w.value @ x for x in in_budget))
    of_so_many = [w.price(way) for way in ways if way.sum() == w.number]
    if not of_so_many:
        with pytest.raises(InfeasibleError, match=f"{w.number} tasks for"):
            w.cheapest()
        return
    found = w.cheapest()
    assert w.may(found.tasks)
    assert found.tasks.sum() == w.number
    assert found.is_proven
    assert found.objective == pytest.approx(w.price(found.tasks))
    assert found.objective == pytest.approx(min(of_so_many))


def by_highs(
    w: Workers, objective: Floats, row: Floats, at: tuple[float, float]
) -> float:
    """Return the least of an objective over tasks and starts, by HiGHS."""
    K = len(w.cost)
    each, none = np.eye(K), np.zeros((K, K))
    answer = milp(
        objective,
        integrality=np.ones(2 * K, dtype=np.int64),
        bounds=Bounds(0, np.concatenate([w.most, np.ones(K)])),
        constraints=[
            LinearConstraint(row[None], *at),
            LinearConstraint(np.hstack([each, none - np.diag(w.most)]), -np.inf, 0),
            LinearConstraint(np.hstack([each, none - np.diag(w.least)]), 0, np.inf),
        ],
        options={"mip_rel_gap": 1e-10},
    )
    return float(answer.fun) if answer.fun is not None else np.inf


@pytest.mark.parametrize(
    "seed",
    [*range(25), *(pytest.param(n, marks=pytest.mark.slow) for n in range(25, 100))],
)
def test_a_general_solver_finds_nothing_better(seed: int) -> None:
    w = Workers(seed, workers=5 + seed % 20, tasks=60)
    zero = np.zeros(len(w.cost))
    priced = np.concatenate([w.cost, w.charge])
    count = np.concatenate([zero + 1, zero])
    best = w.best()
    theirs = -by_highs(w, np.concatenate([-w.value, zero]), priced, (-np.inf, w.budget))
    assert best.is_proven
    assert w.price(best.tasks) <= w.budget
    assert best.objective == pytest.approx(theirs, rel=1e-6)
    least = w.cheapest()
    theirs = by_highs(w, priced, count, (w.number, w.number))
    assert least.is_proven
    assert least.tasks.sum() == w.number
    assert least.objective == pytest.approx(theirs, rel=1e-6)


def test_a_search_that_is_cut_short_says_so_and_bounds_the_best() -> None:
    rng = np.random.default_rng(0)
    cost, charge = rng.uniform(0.3, 3, 300), rng.uniform(0, 50, 300)
    least, most = np.ones(300, dtype=np.int64), rng.integers(1, 60, 300)
    short = least_cost(cost, charge, least, most, 3000, work=0)
    best = least_cost(cost, charge, least, most, 3000)
    assert best.is_proven
    assert not short.is_proven
    assert short.bound <= best.objective <= short.objective
    assert short.gap < 0.01 * best.objective


@pytest.mark.parametrize("seed", range(20))
def test_of_many_not_all_need_to_be_sorted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    K = 2000
    cost, charge = rng.uniform(0.3, 3, K), rng.uniform(0, 50, K)
    if seed % 2:  # ties, of which a sample shows little
        cost, charge = np.ceil(cost), np.round(charge / 25)
    least, most = np.ones(K, dtype=np.int64), rng.integers(1, 60, K)
    number = int(rng.uniform(0, 1) ** 2 * most.sum())
    value, budget = np.ones(K), float(rng.uniform(0, 1) ** 2 * (cost @ most))

    def solve() -> tuple[Certified, Certified]:
        return (
            least_cost(cost, charge, least, most, number, work=0),
            most_value(value, cost, charge, least, most, budget, work=0),
        )

    sorted_all = solve()
    monkeypatch.setattr(charges, "MANY", 10)
    monkeypatch.setattr(charges, "SAMPLED", 100)
    monkeypatch.setattr(charges, "MARGIN", 5 + seed)
    ours = solve()
    for found, full in zip(ours, sorted_all, strict=True):
        assert found.bound == pytest.approx(full.bound)
    assert ours[0].tasks.sum() == number
    paid = ours[1].tasks
    assert cost @ paid + charge @ (paid > 0) <= budget


def test_a_charge_is_worth_it_for_many_tasks_alone() -> None:
    # 9 + x against 2x: the second is cheaper up to 9 tasks.
    cost, charge = np.array([1.0, 2.0]), np.array([9.0, 0.0])
    least, most = np.ones(2, dtype=np.int64), np.array([20, 20])
    assert least_cost(cost, charge, least, most, 8).tasks.tolist() == [0, 8]
    assert least_cost(cost, charge, least, most, 10).tasks.tolist() == [10, 0]


def test_a_budget_that_pays_for_nothing_buys_nothing() -> None:
    one = np.ones(2)
    none = most_value(one, one, one, np.array([1, 1]), np.array([5, 5]), 1.5)
    assert none.tasks.tolist() == [0, 0]
    assert none.is_proven


def test_tasks_that_cost_nothing_are_all_taken() -> None:
    zero, one = np.zeros(2), np.ones(2)
    found = most_value(one, zero, zero, np.array([1, 1]), np.array([5, 7]), 0.0)
    assert found.tasks.tolist() == [5, 7]
