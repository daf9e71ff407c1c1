"""The plan of least cost, its bound, and HiGHS."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.fog_theorems import unconstrained
from tests.fog.movements import cramped, disturbed, optimum, pair, some

from melisma.errors import ConfigError, SolverError
from melisma.fog import alone, bound, check, cost, move, move_lp
from melisma.fog.graph import graph_of
from melisma.fog.movement import Movement, Plan
from melisma.fog.normal import Normal
from melisma.fog.settings import draw
from melisma.maths.arrays import Floats


def test_samples_go_where_they_are_cheapest() -> None:
    # Device 0: 1 + 1 by sending, 3 by discarding, 5 here. Device 1: 1 here.
    plan = move(pair())
    assert plan.flows.sent == pytest.approx([10, 0], abs=1e-4)
    assert plan.flows.kept[0] == pytest.approx([0, 10], abs=1e-4)
    assert plan.costs.total == pytest.approx(30.0)


def test_what_does_not_fit_is_discarded() -> None:
    # The link takes 8 and device 1 has room for 6 in the slot after: 6 go at 2 each,
    # 4 are discarded at 3 each; 10 stay on device 1 at 1 each.
    capacity = np.array([[9.0, 10.0], [9.0, 6.0]])
    plan = move(pair(capacity=capacity, link_capacity=np.array(8.0)))
    assert plan.flows.sent[0] == pytest.approx(6.0, abs=1e-4)
    assert plan.flows.discarded[0] == pytest.approx([4, 0], abs=1e-4)
    assert plan.costs.total == pytest.approx(12.0 + 12.0 + 10.0)
    # A place more on device 1 in slot 1 would save 3 − 2.
    assert plan.prices[1, 1] == pytest.approx(1.0, abs=1e-4)


def test_nothing_to_move_costs_nothing() -> None:
    plan = move(pair(data=np.array(0.0)))
    assert (plan.costs.total, plan.bound, plan.gap) == (0.0, 0.0, 0.0)


def test_where_all_is_dear_all_is_discarded() -> None:
    plan = move(pair(discard_cost=np.array(0.5)))
    assert plan.flows.discarded.tolist() == [[10, 10], [0, 0]]
    assert plan.gap == 0.0


def test_a_device_takes_samples_until_they_are_not_worth_it() -> None:
    # γ/2·(G + 1)^−1.5 = c at G = (γ/2c)^⅔ − 1 = (64)^⅔ − 1 = 15 for γ = 128, c = 1.
    problem = pair(
        data=np.array(50.0), discard_cost=np.array(0.0), gamma=np.array(128.0)
    )
    G = move(problem).flows.kept
    assert G[0, 1] == pytest.approx(15.0, rel=1e-3)
    assert G[0, 0] == pytest.approx((128 / 10) ** (2 / 3) - 1, rel=1e-3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_no_plan_is_cheaper(seed: int) -> None:
    problem = some(seed)
    plan, best = move(problem), optimum(problem)
    assert check(problem, plan.flows) == []
    assert plan.costs.total == pytest.approx(best, rel=1e-6, abs=1e-7)
    assert plan.bound <= best + 1e-9 * (1.0 + best)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_no_plan_is_cheaper_where_errors_are_convex(seed: int) -> None:
    problem = some(seed, gamma=True)
    plan, best = move(problem), optimum(problem)
    assert check(problem, plan.flows) == []
    assert plan.costs.total == pytest.approx(best, rel=2e-6, abs=1e-6)
    assert plan.bound <= best * (1.0 + 1e-6) + 1e-6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_highs_finds_the_same(seed: int) -> None:
    problem = some(seed)
    plan, best = move_lp(problem), optimum(problem)
    assert check(problem, plan.flows, tolerance=1e-7) == []
    assert plan.costs.total == pytest.approx(best, rel=1e-6, abs=1e-7)
    assert plan.bound == pytest.approx(best, rel=1e-6, abs=1e-7)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.booleans(), st.integers(0, 100))
def test_no_prices_prove_more_than_the_truth(
    seed: int, gamma: bool, draw_: int
) -> None:
    problem = some(seed, gamma=gamma)
    rng = np.random.default_rng(draw_)
    prices = rng.normal(0.0, 1.0, (problem.slots + 1, problem.devices))
    if not gamma:
        prices = np.abs(prices)
    best = move(problem).costs.total
    assert bound(problem, prices) <= best + 1e-6 * (1.0 + best)


def test_negative_prices_prove_nothing_false_either() -> None:
    problem = some(5)
    prices = np.full((problem.slots + 1, problem.devices), -1.0)
    assert bound(problem, prices) <= move(problem).costs.total


@pytest.mark.parametrize("capacities", [False, True])
def test_the_papers_size_is_solved_like_by_highs(capacities: bool) -> None:
    problem = draw(
        np.random.default_rng(1),
        devices=12,
        slots=30,
        steady=False,
        capacities=capacities,
    )
    plan, reference = move(problem), move_lp(problem)
    assert plan.gap <= 1e-6
    assert plan.costs.total <= reference.costs.total * (1.0 + 1e-6)


@pytest.mark.parametrize("gamma", [0.0, 200.0])
def test_many_devices_are_proven_optimal(gamma: float) -> None:
    problem = draw(
        np.random.default_rng(2), devices=40, slots=20, samples=48_000, steady=False
    )
    problem = Movement(
        data=problem.data,
        process_cost=problem.process_cost,
        links=problem.links,
        link_cost=problem.link_cost,
        discard_cost=problem.discard_cost,
        gamma=np.array(gamma),
        capacity=np.array(70.0),
        link_capacity=np.array(9.0),
    )
    plan = move(problem)
    assert check(problem, plan.flows) == []
    assert plan.gap <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [False, True])
def test_a_thousand_movements_of_every_kind_are_solved(gamma: bool) -> None:
    for seed in range(20_000, 21_000):
        problem = some(seed, gamma=gamma)
        plan = move(problem)
        assert check(problem, plan.flows) == []
        apart = cost(problem, alone(problem)).total
        assert plan.costs.total <= apart * (1 + 1e-6) + 1e-7


def proven(problem: Movement, plan: Plan) -> bool:
    """Whether a plan is feasible and within 1e-6 of its bound, or of nothing at all."""
    nothing = 1e-8 * float((problem.discard_cost * problem.data).sum())
    near = plan.gap <= 1e-6 or plan.costs.total <= nothing
    return near and check(problem, plan.flows) == []


@pytest.mark.parametrize("seed", range(60))
def test_hardly_any_room_costs_what_highs_finds(seed: int) -> None:
    problem = cramped(seed)
    plan, best = move(problem), optimum(problem)
    assert proven(problem, plan)
    assert plan.costs.total == pytest.approx(best, rel=2e-6, abs=1e-6)
    assert plan.bound <= best + 1e-6 * (1.0 + best)


@pytest.mark.parametrize("seed", [*range(30), 3703, 4150])
def test_hardly_any_room_costs_what_tangents_prove(seed: int) -> None:
    problem = cramped(seed, gamma=True)
    plan, best = move(problem), optimum(problem)
    assert proven(problem, plan)
    assert plan.costs.total == pytest.approx(best, rel=2e-6, abs=1e-6)
    assert plan.bound <= best + 1e-6 * (1.0 + best)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [False, True])
@pytest.mark.parametrize("least", [1e-300, 1e-12, 1e-6])
def test_a_cpu_that_rounds_otherwise_proves_as_much(
    least: float, gamma: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    exact = Normal.solve

    def noisy(a: Floats) -> Floats:
        return a * (1.0 + rng.uniform(-1e-14, 1e-14, a.size))

    def rough(*args: Any) -> tuple[Floats, Floats]:
        u, p = exact(*args)
        return noisy(u), noisy(p)

    monkeypatch.setattr(Normal, "solve", rough)
    for seed in range(100, 300):
        problem = disturbed(cramped(seed, gamma=gamma, least=least), seed)
        assert proven(problem, move(problem)), seed


@pytest.mark.parametrize("seed", range(30))
def test_pruning_leaves_the_cheapest_ways(seed: int) -> None:
    # Without capacities and γ a best plan uses one way a source: it is never pruned.
    problem = some(seed)
    free = Movement(
        data=problem.data,
        process_cost=problem.process_cost,
        links=problem.links,
        link_cost=problem.link_cost,
        discard_cost=problem.discard_cost,
    )
    used = np.flatnonzero(unconstrained(free).sent > 0.0)
    assert set(used.tolist()) <= set(graph_of(free).origin.tolist())


def test_arcs_dearer_than_discarding_are_pruned() -> None:
    # Ways of device 0: 5 here, 2 to device 1; of device 1: 1 here. Slot 1 has no data.
    graph = graph_of(pair(capacity=np.array(9.0)))
    assert sorted(graph.cost.tolist()) == [1.0, 2.0]


def test_highs_does_not_take_a_convex_error() -> None:
    with pytest.raises(ConfigError, match="gamma above 0"):
        move_lp(pair(gamma=np.array(1.0)))


def test_a_gap_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("melisma.fog.solve.STEPS", 3)
    with pytest.raises(
        SolverError, match=r"a gap of 1\.0e-06 was not reached within 3"
    ):
        move(draw(np.random.default_rng(0), devices=4, slots=4))
