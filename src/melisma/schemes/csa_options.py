"""Allocation with a menu: samples, steps and an option for each learner.

Option m of learner k has its own delay law and a value v: what a pass over a sample
is worth through it (``system.menu``).

    maximise    Σₖ v(k, mₖ)·τₖ·dₖ                                       (value)
    subject to  C²ₖₘ τₖ dₖ + C¹ₖₘ dₖ + C⁰ₖₘ ≤ T    with m = mₖ            (time)
                Σₖ dₖ = D,   least ≤ dₖ ≤ most,   dₖ ∈ ℕ                 (work)
                maxₖ τₖ − minₖ τₖ ≤ z,   τₖ ≥ least_steps                (staleness)
                Σₖ s(mₖ, β)·dₖ ≥ ρ·D    for each block β of the model    (coverage)

z is `csa`'s own staleness with option 0 for everyone, 1 at least, and 1 where `csa`
finds nothing; s is the share of a block that an option trains. So no answer is staler
than csa's, nor worth less. The least staleness comes first only as a bound, unlike in
`csa`: options that are cheap and worth little could always narrow the window, or raise
its lowest τ, and training would be the worse for it.

For a window [a, a + z] of steps, option and steps are a *ray*: learner k takes d
samples along it, up to h(k, m, τ), each worth v·τ. The window can be met just if D is
between Σ least and Σ maxₘ h(k, m, a), which falls with a. Inside, a multiple-choice
knapsack is left: a price on Σ d makes learners independent (``maths.rays``), which
gives a bound and a plan that misses it by part of one learner's share; the items that
decide the rest are tried in full (``maths.rays_core``). Windows are searched by branch
and bound, a range of them at once. Coverage has a price for each block (``coverage``).

Field notes: TimelyFL, ADEL-FL, FedCG, LEGEND and others choose such options by rules of
thumb, or by KKT conditions on one or two of them; none proves its choice.

The answer is proven best (``gap`` 0) where the deciding items and the windows that are
left are few; beyond, ``bound`` says how far it may be. With coverage that binds, small
problems are solved by HiGHS to its own tolerance, larger ones have a gap.

Differences from `csa`:
1. τ may be less than what fits, if more would leave the window.
2. The value weighs steps by samples; `csa` counts Σ τ. Where no learner has a choice,
   the answer is csa's own, whose Σ τ·d another one may pass: ``gap`` says by how much.

The scheme of that name, `csa_with_options`, chooses options so, and then gives each
learner what `csa` gives it by its option.
"""

from dataclasses import replace

import numpy as np

from melisma.errors import ConfigError, InfeasibleError
from melisma.maths.arrays import Floats, Ints, numbers
from melisma.maths.search import last_true
from melisma.schemes.csa import csa
from melisma.schemes.menus import coverage, search
from melisma.schemes.menus.windows import Plan, Windows
from melisma.system.law import DelayLaw
from melisma.system.menu import Menu
from melisma.system.metrics import max_staleness
from melisma.system.problem import MenuAllocation, Problem


def csa_options(
    problem: Problem,
    menu: Menu | None = None,
    *,
    least_steps: int = 1,
    staleness: int | None = None,
    least_coverage: float | Floats | None = None,
) -> MenuAllocation:
    """Samples, steps and options of most value, no staler than `csa`; certified.

    ``problem`` is that of option 0. ``menu`` replaces its own; without any, learners
    take part as now. ``staleness`` replaces csa's own, and ``least_coverage`` the ρ of
    the menu, one number or one for each block. Raises InfeasibleError if someone would
    not get ``least_steps`` done by any option, or a block cannot be covered so much.
    """
    menu = menu or problem.menu or Menu.of([problem], [1.0])
    problem = replace(problem, menu=menu)
    least = menu.least_coverage if least_coverage is None else least_coverage
    rho = _checked(menu, least_steps, staleness, least)
    plain = _plain(problem, menu, least_steps)
    if staleness is None:
        staleness = 1 if plain is None else max(1, max_staleness(plain.steps))
    elif plain is not None and max_staleness(plain.steps) > staleness:
        plain = None
    windows = Windows(problem, menu, staleness)
    top = _top(windows, least_steps)
    fixed = plain is not None and (menu.may.sum(axis=1) == 1).all()
    solve = search.bounded if fixed else search.solved
    price = search.priced(windows)
    found = search.best(windows, least_steps, top, plain, price, solve)
    if not coverage.covered(windows, _plan(found), rho):
        near = int(_plan(found).steps.min())
        known = plain if plain and coverage.covered(windows, plain, rho) else None
        found = coverage.best(windows, least_steps, near, known, rho)
    plan = _plan(found)
    return MenuAllocation(
        samples=plan.samples,
        steps=plan.steps,
        options=plan.options,
        value=plan.value,
        bound=found.bound,
    )


def csa_with_options(problem: Problem) -> MenuAllocation:
    """Options of most value, and csa's own samples and steps by them; certified.

    `csa_options` chooses the options. Of plans by these, csa's was as good or better to
    learn from than that of most value, which is within a few per cent of it in Σ v·τ·d
    (docs/options.md); and where options make no difference, it is csa. That of most
    value stands where csa's would be staler, or leave a block of the model short.
    """
    found = csa_options(problem)
    menu = problem.menu or Menu.of([problem], [1.0])
    plan = csa(_by(problem, menu.law_of(found.options)))
    shares = menu.coverage(plan.samples, found.options)
    is_short = bool((shares < menu.least_coverage - coverage.SHORT).any())
    if is_short or max_staleness(plan.steps) > max(1, max_staleness(found.steps)):
        return found
    value = menu.worth(plan.samples, plan.steps, found.options)
    return replace(found, samples=plan.samples, steps=plan.steps, value=value)


def _by(problem: Problem, law: DelayLaw) -> Problem:
    """Return the problem of learners who have no choice, with another law."""
    return replace(
        problem,
        step_s=law.step_s,
        sample_s=law.sample_s,
        fixed_s=law.fixed_s,
        menu=None,
    )


def _plan(found: search.Found) -> Plan:
    assert found.plan is not None  # a window fits, so there is one
    return found.plan


def _checked(
    menu: Menu, least_steps: int, staleness: int | None, least: float | Floats
) -> Floats:
    """Return ρ of each block; raise ConfigError if things do not belong together."""
    if least_steps < 1:
        raise ConfigError(f"least_steps is {least_steps}: give at least 1")
    if staleness is not None and staleness < 0:
        raise ConfigError(f"a staleness of {staleness}: give at least 0 steps")
    if menu.blocks is None:
        if np.any(np.asarray(least) > 0):
            raise ConfigError("a least coverage without blocks: give the menu's blocks")
        return np.empty(0)
    rho = numbers("least_coverage", least, shape=menu.blocks.shape[1:], each="block")
    if rho.max() > 1.0:
        raise ConfigError(f"a least coverage of {rho.max():g}: give 0 to 1")
    return rho


def _plain(problem: Problem, menu: Menu, least_steps: int) -> Plan | None:
    """Return csa's plan with the first option that each may take, or None.

    That is option 0, or its only one.
    """
    options: Ints = menu.may.argmax(axis=1)
    if (options > 0).any() and (menu.may.sum(axis=1) > 1).any():
        return None
    try:
        found = csa(_by(problem, menu.law_of(options)), least_steps=least_steps)
    except InfeasibleError:
        return None
    d, tau = found.samples, found.steps
    return Plan(menu.worth(d, tau, options), d, tau, options)


def _top(windows: Windows, least_steps: int) -> int:
    """Return the most steps that all can do alike, each by some option."""
    problem, menu = windows.problem, windows.menu
    K, D, T, low = problem.learners, problem.samples, problem.deadline_s, problem.low
    if low.sum() > D or problem.high.sum() < D:
        problem.check_room()
    few = windows.sampled()
    limit = problem.steps_at_most
    guess = last_true(few.fits, least_steps, limit, guess=least_steps)
    top = last_true(windows.fits, least_steps, limit, guess=guess)
    if top >= least_steps:
        return top
    most = windows.reach(least_steps).max(axis=0)
    what = f"{least_steps} step" + "s" * (least_steps != 1)
    if (late := np.flatnonzero(most == 0)).size:
        k = int(late[0])
        seconds = menu.law.only(np.array([k])).seconds(low[k], least_steps)
        raise InfeasibleError(
            f"learner {k} needs {seconds[menu.may[[k]]].min():.6g} s for {what} over "
            f"its least of {low[k]} by its fastest option, past the deadline of "
            f"{T:.6g} s ({late.size} of {K} learners do): leave such learners out, "
            "lower 'least', allow them other options or extend the deadline"
        )
    raise InfeasibleError(
        f"{D} samples do not fit in {T:.6g} s, even for {what} of each learner by the "
        f"option that takes most: {most.sum()} do; use fewer samples, more learners, "
        "other options or a longer deadline"
    )
