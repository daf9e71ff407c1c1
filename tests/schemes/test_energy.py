"""Least energy, and most samples within one: against every allocation."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from tests.schemes.problems import small, twins

from melisma.errors import InfeasibleError
from melisma.maths.arrays import Floats, Ints
from melisma.schemes import SCHEMES, Scheme, find
from melisma.schemes.energy import capacity, energy_least, energy_most
from melisma.system import Budget, EnergyLaw, Problem, Spending, learner_s


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


def reclaimed(seed: int, count: int) -> list[Problem]:
    """Problems of spot instances, some of them safe, half with a second budget."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for problem in cases(seed, count):
        assert problem.spending is not None
        K = problem.learners
        hazard = rng.uniform(0, 2, K) / problem.deadline_s * (rng.random(K) < 0.7)
        law = spending(problem, rng).cost
        budget = Budget(law, float(rng.integers(4, 120) / 4))
        others = (budget,) if rng.random() < 0.5 else ()
        spends = replace(problem.spending, hazard=hazard, others=others)
        found.append(replace(problem, spending=spends, least=1))
    return found


def paid_for(problem: Problem) -> list[Ints]:
    spends, tau = problem.spending, problem.steps
    assert spends is not None
    return [
        d
        for d in ways(problem)
        if all(b.law.joules(d, tau).sum() <= b.most for b in spends.budgets)
    ]


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))],
)
def test_no_plan_of_spot_instances_is_expected_to_do_better(seed: int) -> None:
    solved = 0
    for problem in reclaimed(seed, 12 if seed else 4):
        spends, tau, D = problem.spending, problem.steps, problem.samples
        assert spends is not None
        possible, h = paid_for(problem), np.asarray(spends.hazard)
        exponent = h * problem.seconds(capacity(problem), tau)
        # Until its work is done, if what is lost is ordered again: (eˣ − 1) / x.
        again = [np.expm1(x) / x if x else 1.0 for x in exponent.tolist()]
        costs = {
            tuple(d): float(spends.cost.joules(d, tau) @ again)
            for d in possible
            if d.sum() == D
        }
        if costs:
            d = energy_least(problem).samples
            assert costs[tuple(d)] == pytest.approx(min(costs.values()))
        else:
            with pytest.raises(InfeasibleError):
                energy_least(problem)

        def expected(d: Ints, problem: Problem = problem, h: Floats = h) -> float:
            return float(d @ np.exp(-h * problem.seconds(d, problem.steps)))

        best = max(expected(d) for d in possible)
        if not best:
            with pytest.raises(InfeasibleError):
                energy_most(problem)
            continue
        solved += 1
        d = energy_most(problem).samples
        assert any((d == way).all() for way in possible)
        # What is counted is less than what is expected by exp(h·t) at most.
        most = np.exp(np.max(exponent))
        assert best / most <= expected(d) <= best
        # Longer than 1/h nobody is to work. Of who does all else, just so much comes.
        each_s = problem.step_s * tau + problem.sample_s
        longest = [max(1, int(1 / x)) if x else D for x in (h * each_s).tolist()]
        full = np.minimum(capacity(problem), longest)
        value = np.exp(-h * problem.seconds(full, tau))
        counted = [value @ way for way in possible if (way <= full).all()]
        assert value @ d == pytest.approx(max(counted))
    assert solved


def test_a_safe_learner_is_worth_its_price_and_a_risky_one_is_not() -> None:
    cost = EnergyLaw(
        step_j=np.array([1.0, 1.5]), sample_j=np.zeros(2), fixed_j=np.zeros(2)
    )
    problem = replace(twins(), samples=100)
    for hazard, samples in ((0.0, [100, 0]), (10.0, [0, 100])):
        spends = Spending(cost=cost, hazard=np.array([hazard, 0.0]))
        found = energy_least(replace(problem, spending=spends))
        assert found.samples.tolist() == samples
    # 100 pay for 100 of the first, of which exp(−h·0.2 s) are expected to arrive, or
    # for 66 of the second, and one of the first.
    for hazard, samples in ((1.0, [100, 0]), (4.0, [1, 66])):
        spends = Spending(cost=cost, budget=100.0, hazard=np.array([hazard, 0.0]))
        found = energy_most(replace(problem, spending=spends))
        assert found.samples.tolist() == samples


def test_several_budgets_are_kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    law = partial(EnergyLaw, sample_j=np.zeros(2), fixed_j=np.zeros(2))
    money, carbon = law(step_j=np.array([1.0, 2.0])), law(step_j=np.array([3.0, 1.0]))
    spends = Spending(cost=money, budget=150.0, others=(Budget(carbon, 200.0),))
    problem = replace(twins(), samples=100, spending=spends)
    # d + 2·(100 − d) ≤ 150 and 3·d + (100 − d) ≤ 200: the first does 50.
    assert energy_least(problem).samples.tolist() == [50, 50]
    less = replace(spends, others=(Budget(carbon, 140.0),))
    with pytest.raises(InfeasibleError, match="within all of 150, 140"):
        energy_least(replace(problem, spending=less))
    # d₁ + 2·d₂ ≤ 150 and 3·d₁ + d₂ ≤ 140 meet at d₁ = 26, d₂ = 62.
    found = energy_most(replace(problem, spending=less)).samples
    assert found.tolist() == [26, 62]
    # Where the search ends without any, nothing is said of what would be enough.
    monkeypatch.setattr("melisma.schemes.energy.least_within", lambda *_: None)
    with pytest.raises(InfeasibleError, match="no way is known to share 150, 140 out"):
        energy_most(replace(problem, spending=less))


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
