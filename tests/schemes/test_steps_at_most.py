"""Steps that no learner may pass: every scheme under them, against slow oracles."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.menus import check, most_value, with_menu
from tests.schemes.oracle import Merit, best, reached, splits, steps
from tests.schemes.problems import capped, heterogeneous, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.schemes import SCHEMES, Scheme
from melisma.schemes.checked import checked
from melisma.schemes.choosing import chosen
from melisma.schemes.csa import csa, csa_strict
from melisma.schemes.csa_options import csa_options, csa_with_options
from melisma.schemes.csa_relaxed import csa_relaxed
from melisma.schemes.csa_sai import csa_sai
from melisma.schemes.dab import dab
from melisma.schemes.energy import energy_least
from melisma.schemes.eta import eta
from melisma.schemes.sync import sync
from melisma.system import Allocation, Problem, learner_s, max_staleness


def test_twins_stop_at_it_and_share_equally() -> None:
    # 50 samples each would make 19 steps.
    allocation = csa(replace(twins(), steps_at_most=7))
    assert allocation.samples.tolist() == [50, 50]
    assert allocation.steps.tolist() == [7, 7]


def test_a_cap_that_nobody_reaches_changes_nothing() -> None:
    for seed in range(3):
        problem = heterogeneous(seed)
        for name in ("csa", "csa-strict", "sync", "eta", "csa-sai", "csa-testbed"):
            free = SCHEMES[name](problem)
            high = replace(problem, steps_at_most=int(free.steps.max()) + 1)
            assert SCHEMES[name](high).samples.tolist() == free.samples.tolist()
            assert SCHEMES[name](high).steps.tolist() == free.steps.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "enough"), [(csa, 1), (csa_strict, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_no_allocation_under_it_is_better(
    scheme: Scheme, enough: int, seed: int
) -> None:
    for problem in capped(seed, 300):
        merit = best(problem, enough=enough, least_steps=1)
        assert reached(scheme, problem, enough) == merit, problem


def test_it_binds_in_many_of_the_small_problems() -> None:
    at_cap = 0
    for problem in capped(0, 300):
        merit: Merit | None = best(problem, enough=0, least_steps=1)
        at_cap += merit is not None and -merit[1] == problem.steps_at_most
    assert 60 < at_cap < 240


@pytest.mark.slow
def test_sync_does_as_many_common_steps_as_there_can_be() -> None:
    for problem in capped(4, 300):
        found = _found(sync, problem)
        d = splits(problem.samples, problem.learners)
        d = d[((d >= problem.low) & (d <= problem.high)).all(axis=1)]
        common = steps(problem)[np.arange(problem.learners), d].min(axis=1)
        most = int(common.max(initial=0))
        assert (0 if found is None else int(found.steps[0])) == max(most, 0), problem
        if found is not None:
            assert found.samples.sum() == problem.samples
            assert (found.steps == found.steps[0]).all()
            assert (learner_s(problem, found) <= problem.deadline_s).all()


@pytest.mark.parametrize("scheme", [csa, sync])
def test_where_all_stop_at_it_the_last_is_done_as_soon_as_can_be(
    scheme: Scheme,
) -> None:
    seen = 0
    for problem in capped(5, 300):
        found = _found(scheme, problem)
        P = problem.steps_at_most
        if found is None or (found.steps < P).any():
            continue
        d = splits(problem.samples, problem.learners)
        d = d[((d >= problem.low) & (d <= problem.high)).all(axis=1)]
        soonest_s = min(float(problem.seconds(row, P).max()) for row in d)
        done_s = float(learner_s(problem, found).max())
        assert done_s <= soonest_s + problem.deadline_s * 2e-6, problem
        seen += 1
    assert seen > 50


def test_eta_and_the_heuristics_do_all_that_fits_up_to_it() -> None:
    for scheme in (eta, csa_sai, csa_relaxed):
        for problem in capped(6, 100):
            found = _found(scheme, problem)
            if found is None:
                continue
            d, K = found.samples, problem.learners
            assert d.sum() == problem.samples
            most = np.maximum(steps(problem)[np.arange(K), d], 0)
            assert found.steps.tolist() == most.tolist(), (scheme, problem)


def test_suggest_and_improve_finds_an_allocation_just_where_there_is_one() -> None:
    for problem in capped(7, 300):
        found = reached(csa_sai, problem, 1)
        exact = best(problem, enough=1, least_steps=1)
        assert (found is None) == (exact is None), problem
        assert found is None or exact is None or found >= exact, problem


@pytest.mark.parametrize("seed", range(2))
def test_no_plan_with_options_is_worth_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for problem in capped(8 + seed, 25):
        menu = with_menu(problem, int(rng.integers(1, 4)), rng)
        try:
            plain = csa(problem)
        except InfeasibleError:
            z = 1
        else:
            z = max(1, max_staleness(plain.steps))
        value = most_value(problem, menu, z, np.zeros(0))
        try:
            found = csa_options(problem, menu)
        except InfeasibleError:
            assert value is None, problem
            continue
        assert value is not None, problem
        check(problem, menu, found, z, np.zeros(0))
        assert found.steps.max() <= problem.steps_at_most
        assert found.bound >= value * (1 - 1e-9)
        if menu.options > 1:
            assert found.value == pytest.approx(value, rel=1e-9)


def test_csa_with_options_keeps_to_it() -> None:
    rng = np.random.default_rng(3)
    problem = replace(heterogeneous(3), steps_at_most=4)
    found = csa_with_options(problem.with_menu(with_menu(problem, 3, rng)))
    assert found.steps.tolist() == [4] * problem.learners
    assert found.samples.sum() == problem.samples


def test_who_takes_part_is_whoever_can_do_as_much_as_is_allowed() -> None:
    # Alone the fast learner does 9 steps over 100 samples, and the slow one holds it
    # back; where no more than 2 are allowed, both take part.
    problem = replace(twins(), step_s=np.array([1e-3, 3e-1]), samples=100)
    assert chosen(problem).tolist() == [True, False]
    assert chosen(replace(problem, steps_at_most=2)).tolist() == [True, True]


def test_given_steps_are_never_above_it() -> None:
    problem = replace(twins(), steps=9, steps_at_most=4)
    assert problem.steps == 4
    assert energy_least(problem).steps.max() == 4
    # (1,000 − 1)/(4 + 1), and before the deadline: 199 samples, of which 100 are there.
    assert dab(problem, steps=9).steps.tolist() == [4, 4]


def test_a_scheme_of_ones_own_is_cut_to_it() -> None:
    def eager(problem: Problem) -> Allocation:
        return Allocation(samples=np.array([50, 50]), steps=np.array([900, 3]))

    allocation = checked("eager", eager)(replace(twins(), steps_at_most=5))
    assert allocation.steps.tolist() == [5, 3]


def test_it_is_at_least_one() -> None:
    with pytest.raises(ConfigError, match="steps_at_most"):
        replace(twins(), steps_at_most=0)


def _found(
    scheme: Callable[[Problem], Allocation], problem: Problem
) -> Allocation | None:
    try:
        return scheme(problem)
    except InfeasibleError:
        return None
