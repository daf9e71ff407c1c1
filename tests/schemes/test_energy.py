"""Least energy, and most samples within one: against every allocation."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.schemes.problems import small, twins

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Ints
from melisma.schemes import SCHEMES, Scheme, find
from melisma.schemes.energy import energy_least, energy_most
from melisma.system import EnergyLaw, Problem, Spending, learner_s


def spending(problem: Problem, rng: np.random.Generator) -> Spending:
    """Energies in quarters, exact in binary; half without e⁰, half with batteries."""
    K = problem.learners
    fixed = rng.integers(0, 20, K) / 4 * rng.integers(0, 2)
    cost = EnergyLaw(
        step_j=rng.integers(0, 8, K) / 4,
        sample_j=rng.integers(0, 8, K) / 4,
        fixed_j=fixed,
    )
    battery_j = np.where(rng.random(K) < 0.3, rng.integers(0, 60, K) / 4, np.inf)
    budget = float(rng.integers(0, 160) / 4) if rng.random() < 0.7 else np.inf
    return Spending(cost=cost, battery_j=battery_j, budget=budget)


def cases(seed: int, count: int) -> list[Problem]:
    rng = np.random.default_rng(seed)
    return [
        replace(p, steps=int(rng.integers(1, 4)), spending=spending(p, rng))
        for p in small(seed, count)
    ]


def joules(problem: Problem, d: Ints) -> float:
    assert problem.spending is not None
    return float(problem.spending.cost.joules(d, problem.steps).sum())


def ways(problem: Problem) -> list[Ints]:
    """Return every allocation within time, batteries, least and most."""
    spends = problem.spending
    assert spends is not None
    choices = [
        [0, *range(low, high + 1)]
        for low, high in zip(problem.low.tolist(), problem.high.tolist(), strict=True)
    ]
    every = [np.array(d) for d in product(*choices) if sum(d) <= problem.samples]
    return [
        d
        for d in every
        if (problem.seconds(d, problem.steps) <= problem.deadline_s).all()
        and (spends.cost.joules(d, problem.steps) <= spends.battery_j).all()
    ]


@pytest.mark.parametrize(
    "seed",
    [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 15))],
)
def test_no_other_allocation_spends_less_or_trains_more(seed: int) -> None:
    for problem in cases(seed, 20):
        assert problem.spending is not None
        possible, budget = ways(problem), problem.spending.budget
        whole = [joules(problem, d) for d in possible if d.sum() == problem.samples]
        if whole and min(whole) <= budget:
            d = energy_least(problem).samples
            assert d.sum() == problem.samples
            assert joules(problem, d) == min(whole)
        else:
            with pytest.raises(InfeasibleError):
                energy_least(problem)
        paid = [d for d in possible if joules(problem, d) <= budget]
        best = max(int(d.sum()) for d in paid)
        if not best:
            with pytest.raises(InfeasibleError):
                energy_most(problem)
            continue
        allocation = energy_most(problem)
        d = allocation.samples
        assert any((d == way).all() for way in paid)
        assert (learner_s(problem, allocation) <= problem.deadline_s).all()
        if (problem.low <= 1).all():
            assert d.sum() == best


def test_the_cheapest_learner_takes_what_it_can_by_the_deadline() -> None:
    # 1 ms to receive, 1 ms a step: in 0.2 s with 4 steps each can take 40 samples.
    cost = EnergyLaw(
        step_j=np.array([2.0, 1.0]), sample_j=np.zeros(2), fixed_j=np.zeros(2)
    )
    spends = Spending(cost=cost)
    problem = replace(twins(0.2), steps=4, samples=60, spending=spends)
    assert energy_least(problem).samples.tolist() == [20, 40]
    assert energy_least(problem).steps.tolist() == [4, 4]
    # 10 samples of the second cost 4 J each, so 40 J pay for them alone.
    spends = Spending(cost=cost, budget=40.0)
    assert energy_most(replace(problem, spending=spends)).samples.tolist() == [0, 10]


def test_who_costs_much_to_wake_sleeps_while_few_samples_are_to_be_done() -> None:
    cost = EnergyLaw(
        step_j=np.array([1.0, 2.0]),
        sample_j=np.zeros(2),
        fixed_j=np.array([9.0, 0.0]),
    )
    problem = replace(twins(), spending=Spending(cost=cost))
    assert energy_least(replace(problem, samples=8)).samples.tolist() == [0, 8]
    assert energy_least(replace(problem, samples=10)).samples.tolist() == [10, 0]


def test_a_battery_of_joules_holds_where_money_is_spent() -> None:
    energy = EnergyLaw(
        step_j=np.array([1.0, 1.0]), sample_j=np.zeros(2), fixed_j=np.zeros(2)
    )
    price = EnergyLaw(
        step_j=np.array([0.1, 5.0]), sample_j=np.zeros(2), fixed_j=np.zeros(2)
    )
    spends = Spending(cost=price, energy=energy, battery_j=np.array([30.0, np.inf]))
    problem = replace(twins(), spending=spends)
    assert energy_least(problem).samples.tolist() == [30, 70]


def test_without_a_word_on_energy_the_time_of_all_is_least() -> None:
    problem = replace(twins(), step_s=np.array([2e-3, 1e-3]))
    assert energy_least(problem).samples.tolist() == [0, 100]


def test_both_are_found_by_name() -> None:
    assert find("energy-least") is energy_least
    assert SCHEMES["energy-most"] is energy_most


@pytest.mark.parametrize("scheme", [energy_least, energy_most])
def test_empty_batteries_are_named(scheme: Scheme) -> None:
    spends = Spending(cost=Spending.of_time(twins()).cost, battery_j=np.zeros(2))
    with pytest.raises(InfeasibleError, match="in 1 s and batteries: 0 do"):
        scheme(replace(twins(), spending=spends))


def test_a_budget_that_is_too_small_is_named_with_one_that_would_do() -> None:
    spends = Spending(cost=Spending.of_time(twins()).cost, budget=0.1)
    problem = replace(twins(), spending=spends)
    with pytest.raises(
        InfeasibleError, match=r"need 0\.2 at least, and the budget is 0\.1"
    ):
        energy_least(problem)
    spends = replace(spends, budget=1e-3)
    with pytest.raises(InfeasibleError, match=r"learner 0 comes nearest with 0\.002"):
        energy_most(replace(problem, spending=spends))
