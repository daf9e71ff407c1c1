from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.schemes.menus import check, most_value, small_menus, with_menu
from tests.schemes.problems import heterogeneous, small, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Floats
from melisma.schemes.csa import csa
from melisma.schemes.csa_options import csa_options, csa_with_options
from melisma.system import DelayLaw, Problem, max_staleness
from melisma.system.menu import Menu
from melisma.system.problem import MenuAllocation


def some_slow(seeds: int) -> list[Any]:
    """Return seeds, of which the first alone is for the quick tests."""
    rest = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, seeds))
    return [0, *rest]


def halves(problem: Problem, value: float, blocks: Floats | None = None) -> Menu:
    """As now, or twice as fast in everything."""
    law = DelayLaw(
        step_s=problem.step_s[:, None] * [1.0, 0.5],
        sample_s=problem.sample_s[:, None] * [1.0, 0.5],
        fixed_s=problem.fixed_s[:, None] * [1.0, 0.5],
    )
    return Menu(law=law, value=np.array([1.0, value]), blocks=blocks)


def allowed_staleness(problem: Problem, menu: Menu) -> int:
    """csa's own with option 0, if each learner may take it; 1 at least."""
    only = (menu.may.sum(axis=1) == 1).all()
    if not menu.may[:, 0].all() and not only:
        return 1
    law = menu.law_of(menu.may.argmax(axis=1))
    try:
        plan = csa(
            replace(
                problem, step_s=law.step_s, sample_s=law.sample_s, fixed_s=law.fixed_s
            )
        )
    except InfeasibleError:
        return 1
    return max(1, max_staleness(plan.steps))


def solve(problem: Problem, menu: Menu, rho: Floats) -> MenuAllocation | None:
    try:
        return csa_options(problem, menu, least_coverage=rho if rho.size else 0.0)
    except InfeasibleError:
        return None


def test_an_option_is_taken_where_it_is_worth_its_time() -> None:
    # As now 50 samples each: τ·50 + 50 ≤ 1,000, so τ = 19. Twice as fast 39 steps,
    # which pay from a value of 19/39 on.
    problem = twins()
    dear, cheap = (csa_options(problem, halves(problem, v)) for v in (0.6, 0.4))
    assert dear.options.tolist() == [1, 1]
    assert dear.steps.tolist() == [39, 39]
    assert cheap.options.tolist() == [0, 0]
    assert cheap.steps.tolist() == [19, 19]
    assert dear.value == pytest.approx(0.6 * 39 * 100)
    assert dear.gap == 0.0


def test_coverage_keeps_someone_on_the_whole_model() -> None:
    problem, blocks = twins(), np.array([[1.0, 1.0], [1.0, 0.0]])
    menu = halves(problem, 0.6, blocks)
    plan = csa_options(problem, menu, least_coverage=np.array([1.0, 0.25]))
    assert sorted(plan.options.tolist()) == [0, 1]
    assert menu.coverage(plan.samples, plan.options)[1] >= 0.25
    assert plan.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", some_slow(3))
def test_no_plan_is_worth_more(seed: int) -> None:
    for problem, menu, _ in small_menus(seed, 25):
        z = allowed_staleness(problem, menu)
        bare = replace(menu, blocks=None)
        best = most_value(problem, bare, z, np.zeros(0))
        found = solve(problem, bare, np.zeros(0))
        assert (found is None) == (best is None), problem
        if found is None or best is None:
            continue
        check(problem, bare, found, z, np.zeros(0))
        assert found.bound >= best * (1 - 1e-9)
        if (menu.may.sum(axis=1) > 1).any():
            assert found.value == pytest.approx(best, rel=1e-9)
            assert found.gap == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_slow(2))
def test_no_plan_that_covers_all_blocks_is_worth_more(seed: int) -> None:
    for problem, menu, rho in small_menus(10 + seed, 25):
        if menu.blocks is None or problem.learners > 3 or menu.options > 4:
            continue
        z = allowed_staleness(problem, menu)
        best = most_value(problem, menu, z, rho)
        found = solve(problem, menu, rho)
        assert (found is None) == (best is None), problem
        if found is None or best is None:
            continue
        check(problem, menu, found, z, rho)
        assert found.bound >= best * (1 - 1e-9)
        if (menu.may.sum(axis=1) > 1).any() and found.gap < 1e-9:
            assert found.value == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", some_slow(3))
def test_without_a_choice_it_is_csa(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for problem in [*small(seed, 40), heterogeneous(seed)]:
        menu = with_menu(problem, 1, rng)
        try:
            expected = csa(problem)
        except InfeasibleError:
            assert solve(problem, menu, np.zeros(0)) is None
            continue
        found = csa_options(problem, menu)
        assert found.samples.tolist() == expected.samples.tolist()
        assert found.steps.tolist() == expected.steps.tolist()
        assert not found.options.any()


@pytest.mark.parametrize("most", [None, 3300])
@pytest.mark.parametrize("seed", range(3))
def test_never_worth_less_nor_staler_than_csa(seed: int, most: int | None) -> None:
    problem = heterogeneous(seed, most=most)
    menu = with_menu(problem, 4, np.random.default_rng(seed))
    plain, found = csa(problem), csa_options(problem, menu)
    z = max(1, max_staleness(plain.steps))
    check(problem, menu, found, z, np.zeros(0))
    assert found.value >= float(plain.steps @ plain.samples)
    assert found.gap < 1e-3


def test_many_learners_have_a_small_gap() -> None:
    problem = heterogeneous(5, 3000)
    menu = with_menu(problem, 5, np.random.default_rng(5))
    found = csa_options(problem, menu)
    check(problem, menu, found, 1, np.zeros(0))
    assert found.gap < 1e-5


@pytest.mark.slow
def test_coverage_of_many_learners_has_a_certificate() -> None:
    problem = heterogeneous(6, 200)
    blocks = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.5]])
    rng = np.random.default_rng(6)
    menu = with_menu(problem, 3, rng, blocks=blocks)
    rho = np.array([0.5, 0.6, 0.7])
    free, found = (
        csa_options(problem, menu),
        csa_options(problem, menu, least_coverage=rho),
    )
    check(problem, menu, found, 1, rho)
    assert found.bound <= free.bound * (1 + 1e-9)
    assert found.gap < 0.05


def test_a_staleness_of_ones_own() -> None:
    problem = heterogeneous(1)
    menu = with_menu(problem, 3, np.random.default_rng(1))
    tight, loose = (csa_options(problem, menu, staleness=z) for z in (0, 4))
    assert np.ptp(tight.steps) == 0
    assert np.ptp(loose.steps) <= 4
    assert tight.value <= loose.value


def test_options_make_room_where_csa_finds_none() -> None:
    slow = twins(deadline_s=0.15)  # 50 samples take 0.1 s to arrive, 0.05 s a step
    with pytest.raises(InfeasibleError):
        csa(replace(slow, samples=160))
    found = csa_options(replace(slow, samples=160), halves(slow, 0.5))
    assert found.options.tolist() == [1, 1]


def test_too_many_samples_are_counted() -> None:
    problem = twins(deadline_s=0.01)
    message = (
        r"100 samples do not fit in 0\.01 s, even for 1 step of each learner by the "
        r"option that takes most: 20 do; use fewer samples, more learners, other"
    )
    with pytest.raises(InfeasibleError, match=message):
        csa_options(problem, halves(problem, 0.5))


def test_a_learner_too_slow_by_every_option_is_named() -> None:
    slow = replace(twins(), least=np.array([1, 60]), deadline_s=0.05)
    message = r"learner 1 needs 0\.06 s for 1 step over its least of 60 by its fastest"
    with pytest.raises(InfeasibleError, match=message):
        csa_options(slow, halves(slow, 0.5))


def test_a_block_that_cannot_be_covered_is_named() -> None:
    # 1 step takes 2 ms a sample as now: 25 samples of each at most, so 50 of 150.
    problem = replace(twins(deadline_s=0.1), samples=150)
    menu = halves(problem, 0.5, np.array([[1.0, 1.0], [1.0, 0.0]]))
    message = (
        r"block 1 can be trained on 0\.\d+ of all samples at most, less than .* 0\.9"
    )
    with pytest.raises(InfeasibleError, match=message):
        csa_options(problem, menu, least_coverage=np.array([0.0, 0.9]))


def test_what_does_not_belong_together_is_refused() -> None:
    problem = twins()
    menu = halves(problem, 0.5)
    with pytest.raises(ConfigError, match="a menu for 2 learners and a problem of 20"):
        csa_options(heterogeneous(0), menu)
    with pytest.raises(ConfigError, match="step_s of option 0 is not the problem's"):
        csa_options(replace(problem, step_s=problem.step_s * 2), menu)
    with pytest.raises(ConfigError, match="without blocks"):
        csa_options(problem, menu, least_coverage=0.1)
    with pytest.raises(ConfigError, match="a staleness of -1"):
        csa_options(problem, menu, staleness=-1)
    with pytest.raises(ConfigError, match="least_steps is 0"):
        csa_options(problem, menu, least_steps=0)


@pytest.mark.parametrize("seed", some_slow(5))
def test_the_scheme_gives_csas_plan_by_the_best_options(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for problem in small(seed, 20):
        offered = replace(problem, menu=with_menu(problem, 3, rng))
        try:
            best = csa_options(offered)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                csa_with_options(offered)
            continue
        found = csa_with_options(offered)
        law = offered.law_of(best)
        plan = csa(
            Problem.of(
                law,
                samples=problem.samples,
                deadline_s=problem.deadline_s,
                least=problem.least,
                most=problem.most,
            )
        )
        assert found.options.tolist() == best.options.tolist()
        limit = max(1, max_staleness(best.steps))
        expected = best if max_staleness(plan.steps) > limit else plan
        assert found.samples.tolist() == expected.samples.tolist()
        assert found.steps.tolist() == expected.steps.tolist()
        assert max_staleness(found.steps) <= limit
        assert (law.seconds(found.samples, found.steps) <= problem.deadline_s).all()
        assert found.value <= found.bound * (1 + 1e-12)
        assert found.gap >= best.gap


@pytest.mark.slow
def test_the_scheme_covers_what_the_menu_asks_for() -> None:
    stood = 0
    for problem, menu, rho in small_menus(2, 60):
        if not rho.any():
            continue
        offered = replace(problem, menu=replace(menu, least_coverage=rho))
        try:
            best = csa_options(problem, menu, least_coverage=rho)
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                csa_with_options(offered)
            continue
        found = csa_with_options(offered)
        assert found.options.tolist() == best.options.tolist()
        assert (menu.coverage(found.samples, found.options) >= rho - 1e-9).all()
        law = menu.law_of(found.options)
        assert (law.seconds(found.samples, found.steps) <= problem.deadline_s).all()
        plan = csa(
            replace(
                problem, step_s=law.step_s, sample_s=law.sample_s, fixed_s=law.fixed_s
            )
        )
        covers = (menu.coverage(plan.samples, best.options) >= rho - 1e-9).all()
        if not covers:
            stood += 1
            assert found.samples.tolist() == best.samples.tolist()
    assert stood  # the solver's own plan, since csa's would not cover


def test_the_scheme_is_csa_where_options_make_no_difference() -> None:
    problem = heterogeneous(3)
    offered = replace(problem, menu=Menu.of([problem, problem], [1.0, 1.0]))
    found, plain = csa_with_options(offered), csa(problem)
    assert found.samples.tolist() == plain.samples.tolist()
    assert found.steps.tolist() == plain.steps.tolist()
